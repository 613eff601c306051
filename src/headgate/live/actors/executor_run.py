"""A run on an executor, from its launch until its end is acknowledged."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace

from headgate.live.base.records import OutcomeRecord
from headgate.live.run.process import WorkerProcess
from headgate.live.run.run_meter import Peaks
from headgate.model import Usage


@dataclass(slots=True, kw_only=True)
class ExecutorRun:
    """One run until its end is acknowledged; `end` is its future outcome.

    `stopping` is set when it is to end after notice and at most `grace_s` seconds, `killing` when
    immediately, `expired` when another member of its gang has reached the time limit. `worker` has
    its program while that runs, `computed` is set once that has ended without notice. `notice` says
    how it ended after its notice, which was for its time limit if `timed_out` is set. `served` is
    the worker that it has left idle, `keeping` the work on the files that it has written.
    """

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    killing: asyncio.Event = field(default_factory=asyncio.Event)
    grace_s: float = math.inf
    expired: asyncio.Event = field(default_factory=asyncio.Event)
    usage: Usage = field(default_factory=Usage)
    worker: WorkerProcess | None = None
    computed: bool = False
    notice: str = ""
    timed_out: bool = False
    served: WorkerProcess | None = None
    keeping: asyncio.Task[None] | None = None
    end: asyncio.Task[OutcomeRecord]

    def has_exited(self, status: int | None) -> None:
        """Record the exit status of the program; None where that is not known."""
        self.usage = replace(self.usage, exit_status=status)

    def has_used(self, peaks: Peaks) -> None:
        """Record what the program was seen to use."""
        self.usage = peaks.added_to(self.usage)
