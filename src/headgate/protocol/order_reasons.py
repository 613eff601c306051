"""Reasons why what waits comes after other tasks, or other jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headgate.base.units import format_clock
from headgate.protocol.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForTasks(Reason):
    """Earlier tasks of the job have not finished."""

    unfinished: int

    def cause(self) -> str:
        return f"depends on {self.unfinished} unfinished task{'' if self.unfinished == 1 else 's'}"

    def way_out(self) -> str:
        return "starts after them"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRunning(Reason):
    """The job's `max_running` tasks are in flight: `running` of them run, the others wait."""

    running: int
    max_running: int

    def cause(self) -> str:
        return f"held back by max_running ({self.running} of {self.max_running} running)"

    def way_out(self) -> str:
        return "starts as these finish" if self.running else "starts after those that wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurplusHeld(Reason):
    """`running` units of an elastic job run, at least its minimum: this one is surplus."""

    running: int
    most: int

    def cause(self) -> str:
        return f"surplus: {self.running} of at most {self.most} units run"

    def way_out(self) -> str:
        after = "" if self.running else "after the job's first units, "
        return f"starts {after}where no other job needs the room"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesWay(Reason):
    """A unit beyond the minimum of its elastic job is stopped: others need what it holds."""

    def cause(self) -> str:
        return "surplus of an elastic job gives way to others"

    def way_out(self) -> str:
        return "starts again where no other job needs the room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grows(Reason):
    """A training job is stopped to start again with more tasks: on what no other job needs."""

    def cause(self) -> str:
        return "no other job needs the room"

    def way_out(self) -> str:
        return "starts again when its runs have ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurplusEnds(Reason):
    """Its place is chosen, and surplus of elastic jobs there is being stopped."""

    def cause(self) -> str:
        return "surplus of elastic jobs gives way to it"

    def way_out(self) -> str:
        return "starts when that has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForJobs(Reason):
    """Jobs that it comes after have not finished: `job`, and `others` more.

    `state` is PENDING, RUNNING or STOPPING. `ends_at` is when the job is expected to end, in the
    world's clock, in `ahead_s` seconds; both are None while tasks of it have not begun, and where
    the time of a run is unknown.
    """

    job: str
    state: str
    ends_at: float | None = None
    ahead_s: float | None = None
    others: int = 0

    def cause(self) -> str:
        end = ""
        if self.ends_at is not None and self.ahead_s is not None:
            end = f", expected end {format_clock(self.ends_at, self.ahead_s)}"
        others = f" and {self.others} more" if self.others else ""
        return f"depends on {self.job} ({self.state}{end}){others}"

    def holds_until(self) -> float:
        return math.inf if self.ends_at is None else self.ends_at

    def way_out(self) -> str:
        return "starts when they have finished" if self.others else "starts when it has finished"
