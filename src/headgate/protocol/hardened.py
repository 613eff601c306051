"""Hardened units: those that others overtook for too long, which come before all else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class KeptPlace(NamedTuple):
    """Where a task (ordinal) will start: GPUs, by index, of a node, and what it needs beside."""

    ordinal: int
    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardened:
    """A unit of a job whose places nothing else may use, hardened `since` a time.

    There is one place for each of its tasks on GPUs. The rest of what they need is kept of the
    nodes, as runs leave it.
    """

    job: str
    since: float
    places: tuple[KeptPlace, ...]
