"""How the processes of a job communicate: a pattern, its volume, and the computing between."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pattern(StrEnum):
    """Which processes of a job send to which in one step; see docs/contention.md."""

    NONE = "none"
    RING = "all-reduce-ring"
    TREE = "all-reduce-tree"
    ALL_TO_ALL = "all-to-all"
    NEIGHBOURS = "nearest-neighbour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """One step of a job: its processes compute for `step_s` seconds, then communicate.

    `bytes_per_step` is, of an all-reduce, the size of what is reduced; of an all-to-all, what each
    process holds for all of them, itself included; of nearest neighbours, what a process sends to
    each. `processes` are those of the whole job, in blocks over its GPUs (over its tasks, where
    these have none); 0 is one for each.
    """

    pattern: Pattern = Pattern.NONE
    bytes_per_step: int = 0
    step_s: float = 0.0
    processes: int = 0
