"""The work in flight: what each GPU is held by, and which tasks are left; kept up round by round.

Both are written to as they follow from one snapshot to the next, so whoever keeps one shows it to
nobody else.
"""

from __future__ import annotations

import numpy as np

from headgate.base.column import Array
from headgate.base.order import in_order
from headgate.planning._native import recount_idle
from headgate.planning.census import Bools, numbers_of
from headgate.planning.shares import Ints
from headgate.planning.standing import Standing
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.tables import GPU_GONE

_OF_HOLDERS = ("job", "kind", "launched_at", "read_s", "progress_s")


class Holders:
    """GPUs by row, and of the task that holds each one what its columns say.

    `task` is its row, negative where a GPU is free or gone; everything else means something only
    where it is not. `job` and `kind` are rows, the rest is as in `TaskTable`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; O(GPUs x log)."""
        self._read(snapshot)

    def _read(self, snapshot: Snapshot) -> None:
        gpus = len(snapshot.gpus.task)
        self.task: Ints = np.full(gpus, GPU_GONE)
        self.stopping = np.zeros(gpus, bool)
        self.job, self.kind = np.zeros(gpus, np.int64), np.zeros(gpus, np.int64)
        self.launched_at, self.read_s, self.progress_s = np.zeros((3, gpus))
        self._write(snapshot, np.arange(gpus))

    def follow(self, now: Standing) -> None:
        """Say what the snapshot of a standing says.

        O(GPUs + changes x log), unless GPUs have come or the line of states is another one.
        """
        snapshot, changes = now.snapshot, now.changes_since(self._seen)
        if changes is None or len(self.task) != len(snapshot.gpus.task):
            self._read(snapshot)
            return
        moved = np.zeros(len(snapshot.tasks.state) + 1, bool)  # the last one: of no task
        moved[changes.tasks] = True
        touched = moved[np.maximum(self.task, -1)]
        touched[changes.gpus] = True
        self._write(snapshot, np.flatnonzero(touched))

    def _write(self, snapshot: Snapshot, gpus: Array) -> None:
        self._seen = snapshot
        task = snapshot.gpus.task.take(gpus).astype(np.int64)
        self.task[gpus] = task
        held = np.flatnonzero(task >= 0)
        held = held[in_order(task[held])]  # columns are read fastest in order
        gpus, rows = gpus[held], task[held]
        self.stopping[gpus] = snapshot.tasks.state.take(rows) == TaskState.STOPPING
        for name in _OF_HOLDERS:
            getattr(self, name)[gpus] = getattr(snapshot.tasks, name).take(rows)


_IDLE = np.isin(
    np.arange(len(TaskState)), (TaskState.BLOCKED, TaskState.WAITING, TaskState.STOPPING)
)
_KINDS = 1 << 32  # more than there are


class Backlog:
    """Unfinished tasks on GPUs that do not run, or are being stopped: so they will start anew.

    Those that start from nothing are counted by job and kind: `count[i]` of the job in row `job[i]`
    and of the kind in row `kind[i]`. The others, that have saved some work, are rows: `begun`.
    Jobs no longer in flight may be among them.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; O(tasks since the first job in flight)."""
        self._read(snapshot)

    @property
    def job(self) -> Ints:
        """Rows of jobs."""
        return self._key // _KINDS

    @property
    def kind(self) -> Ints:
        """Rows of kinds."""
        return self._key % _KINDS

    def _read(self, snapshot: Snapshot) -> None:
        self._key = self.count = self.begun = np.zeros(0, np.int64)
        active = np.flatnonzero(snapshot.jobs.state.array() == JobState.ACTIVE)
        end = len(snapshot.tasks.state)
        first = snapshot.jobs.first_task[int(active[0])] if len(active) else end
        rows = range(first, end)
        self._write(snapshot, rows, np.zeros(len(rows), bool))

    def follow(self, now: Standing) -> None:
        """Say what the snapshot of a standing says; O(jobs x kinds + changes x log)."""
        before, changes = self._seen, now.changes_since(self._seen)
        if changes is None:
            self._read(now.snapshot)
            return
        rows = changes.tasks
        known = rows[: np.searchsorted(rows, len(before.tasks.state))]
        fresh = np.zeros(len(rows), bool)
        idle = _IDLE[before.tasks.state.take(known)]
        fresh[: len(known)] = idle & (before.tasks.progress_s.take(known) == 0)
        self._write(now.snapshot, rows, fresh)

    def _write(self, snapshot: Snapshot, rows: range | Ints, was_fresh: Bools) -> None:
        """Take note of tasks that have changed: which of them were idle with nothing saved."""
        self._seen, tasks = snapshot, snapshot.tasks
        those = numbers_of(rows)
        self._key, self.count, begun = recount_idle(
            self._key,
            self.count,
            those,
            tasks.state.take(rows),
            tasks.gpus.take(rows),
            tasks.job.take(rows),
            tasks.kind.take(rows),
            tasks.progress_s.take(rows),
            was_fresh=was_fresh,
            idle=_IDLE,
            kinds=_KINDS,
        )
        if len(self.begun) or len(begun):
            self.begun = np.union1d(np.setdiff1d(self.begun, those), begun)
