"""What a run keeps of each job, however many there are: 45 bytes, by order of arrival.

Four times and the lost GPU seconds take 8 bytes each, as figures are exact: with 4, seconds of a
history of a year would be rounded to 2 s. The most GPUs take 4, the state 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.base.column import Array
from headgate.model import Job
from headgate.planning.times.reservations import RESERVED_AT
from headgate.protocol import (
    Command,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    SlotsWithdrawn,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStopped,
)
from headgate.state import JobState
from headgate.state.life import ENDED
from headgate.state.view import View

_COLUMNS = {
    "state": "u1",
    "submitted_at": "f8",
    "started_at": "f8",
    "ended_at": "f8",
    "lost_gpu_s": "f8",
    "peak_gpus_milli": "i4",
}
_MEMOS = {RESERVED_AT: "f8"}  # of the policy

RECORD_BYTES = sum(np.dtype(code).itemsize for code in (_COLUMNS | _MEMOS).values())
"""What the record of one job takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRecords:
    """Jobs by order of arrival, one array per fact; see `headgate.state.tables.JobTable`.

    `reserved_at` is when the job's first reservation begins, NaN for a job without one.
    `migrations` is a number for all jobs together.
    """

    state: NDArray[np.uint8]
    submitted_at: NDArray[np.float64]
    started_at: NDArray[np.float64]
    ended_at: NDArray[np.float64]
    lost_gpu_s: NDArray[np.float64]
    peak_gpus_milli: NDArray[np.int32]
    reserved_at: NDArray[np.float64]
    migrations: int = 0

    def __len__(self) -> int:
        return len(self.state)

    @staticmethod
    def of(view: View) -> JobRecords:
        """Return what a state, or a snapshot of it, says of its jobs."""
        columns = {name: getattr(view.jobs, name).array() for name in _COLUMNS}
        memos = {name: view.memo(name) for name in _MEMOS}
        return JobRecords(**columns, **memos, migrations=int(view.jobs.migrations.array().sum()))

    @property
    def run_s(self) -> Array:
        """Seconds from the first task's start to the last task's end; NaN unless finished."""
        return np.where(self.state == JobState.FINISHED, self.ended_at - self.started_at, math.nan)


class JobRecorder:
    """An observer: keeps the record of each job when it ends, so that the state may forget it.

    `ended` names the jobs that have ended since it was last emptied.
    """

    def __init__(self, state: View, jobs: int) -> None:
        """Take the state that is observed, and the most jobs that will ever be submitted."""
        self.ended: list[str] = []
        self._state = state
        self._arrived = self._migrations = 0  # migrations: of ended jobs
        self._arrivals: dict[str, int] = {}  # order of jobs that have not ended
        self._later: dict[str, None] = {}  # those of them that come after others
        # Not grown, which would copy them again and again, and leave gaps in memory.
        every = _COLUMNS | _MEMOS
        self._columns = {name: np.zeros(jobs, code) for name, code in every.items()}

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """See a batch that was applied."""
        del commands
        for event in batch:
            match event:
                case TaskFinished() | TaskFailed() | TaskStopped():
                    self._look(event.run.job)
                case JobSubmitted():
                    self._arrive(event.job)
                case JobCancelled() | TaskCancelled() | SlotsWithdrawn():
                    self._look(event.job)
                case NodeLost() | NodeJoined():  # what a job that is ending still ran may be gone
                    for job in [*self._arrivals]:
                        self._look(job)
                case _:
                    pass

    def records(self) -> JobRecords:
        """Return the records of all jobs, those in flight with their present values."""
        for job in self._arrivals:
            self._note(job)
        rows = [self._row(job) for job in self._arrivals]
        in_flight = sum(self._state.jobs.migrations[row] for row in rows)
        columns = {name: column[: self._arrived] for name, column in self._columns.items()}
        return JobRecords(**columns, migrations=self._migrations + in_flight)

    def _arrive(self, job: Job) -> None:
        self._arrivals[job.id] = self._arrived
        self._arrived += 1
        if job.after:
            self._later[job.id] = None
            self._look(job.id)

    def _look(self, job: str) -> None:
        """Keep the record of a job if it has ended, and of those that ended with it."""
        if self._ended(job) and self._state.jobs.state[self._row(job)] != JobState.FINISHED:
            for later in [*self._later]:
                self._ended(later)

    def _ended(self, job: str) -> bool:
        """Keep the record of a job if it has ended since the last look; return whether it has."""
        if job not in self._arrivals or self._state.jobs.state[self._row(job)] not in ENDED:
            return False
        self._note(job)
        self._migrations += self._state.jobs.migrations[self._row(job)]
        del self._arrivals[job]
        self._later.pop(job, None)
        self.ended.append(job)
        return True

    def _row(self, job: str) -> int:
        return self._state.names.job_rows[job]

    def _note(self, job: str) -> None:
        number, row = self._arrivals[job], self._row(job)
        for name in _COLUMNS:
            self._columns[name][number] = getattr(self._state.jobs, name)[row]
        for name in _MEMOS:
            memo = self._state.memos.get(name)
            self._columns[name][number] = math.nan if memo is None else memo[row]
