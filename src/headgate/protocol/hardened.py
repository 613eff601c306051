"""Hardened units: those that others overtook for too long, which come before all else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from headgate.base.text import enumerated
from headgate.base.units import format_clock
from headgate.protocol.reasons import Reason


class KeptPlace(NamedTuple):
    """Where a task (ordinal) will start: GPUs, by index, of a node, and what it needs beside."""

    ordinal: int
    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardened:
    """A unit of a job whose places nothing else may use, hardened `since` a time.

    There is one place for each of its tasks on GPUs. The rest of what they need is kept of the
    nodes, as runs leave it. It ends with the `policy` by whose rules it hardened, "" where that is
    not known.
    """

    job: str
    since: float
    places: tuple[KeptPlace, ...]
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesKept(Reason):
    """The unit has lost patience: GPUs are kept for it, some of which runs of `jobs` hold yet.

    The last of these reaches its time limit at `limit_at`, in the world's clock, in `limit_s`
    seconds; both are None if one has none.
    """

    gpus: int
    free_gpus: int
    jobs: tuple[str, ...]
    limit_at: float | None
    limit_s: float | None

    def cause(self) -> str:
        if not self.gpus:
            return "others overtook it for too long, so what it needs of nodes is kept for it"
        free = "is" if self.free_gpus == 1 else "are"
        kept = f"{self.free_gpus} of the {self.gpus} GPUs kept for it {free} free"
        return f"others overtook it for too long, so {kept}"

    def way_out(self) -> str:
        if not self.jobs:
            return "starts when running tasks leave the CPUs and memory that it needs"
        first, more = self.jobs[:3], len(self.jobs) - 3
        names = enumerated([*first, f"{more} more"] if more > 0 else first)
        ends = f"starts at the latest when {names} end{'s' * (len(self.jobs) == 1)}"
        if self.limit_s is None or self.limit_at is None:
            return f"{ends}, without a time limit: an administrator may cancel or move that"
        if self.limit_s <= 0:
            return f"{ends}: their time limits have passed, they are being stopped"
        return f"{ends}, at their time limits by {format_clock(self.limit_at, self.limit_s)}"

    def holds_until(self) -> float:
        return math.inf if self.limit_at is None else self.limit_at
