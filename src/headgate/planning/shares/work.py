"""The work in flight: the run on each GPU, and the idle tasks; updated from round to round.

Both classes are updated in place from one snapshot to the next, so each instance has one owner.
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.column import Array
from headgate.base.order import in_order
from headgate.model import WHOLE
from headgate.planning._native import recount_idle
from headgate.planning.shares.task_counts import NO_DEMANDS, numbers_of
from headgate.state import Changes, JobState, Snapshot, TaskState
from headgate.state.moves import gpus_of, grants_of_moves
from headgate.state.tables import GPU_GONE

_STOPPING = (TaskState.STOPPING, TaskState.MOVING)
_IS_STOPPING = np.isin(np.arange(len(TaskState)), _STOPPING)
_COLUMNS = ("job", "runtime_class", "launched_at", "read_s", "progress_s")


class RunsByGpu:
    """For each GPU, by row, the task that holds it and columns of that task, `[GPU rows]`.

    `task` is its row, negative if the GPU is free or removed; the other columns are valid only if
    it is not. `job` and `runtime_class` are rows, the others have the units of `TaskTable`. Of
    tasks that move, which are `stopping`, too, `kept` are the GPUs on which their next runs start,
    `left` those of the present ones.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; O(GPUs x log)."""
        gpus = len(snapshot.gpus.task)
        self.task: Ints = np.full(gpus, GPU_GONE)
        self.stopping, self.kept, self.left = np.zeros((3, gpus), bool)
        self.job, self.runtime_class = np.zeros(gpus, np.int64), np.zeros(gpus, np.int64)
        self.launched_at, self.read_s, self.progress_s = np.zeros((3, gpus))
        self._write(snapshot, np.arange(gpus))

    def update(self, snapshot: Snapshot, changes: Changes) -> None:
        """Update to a snapshot that differs by `changes` from the last one.

        No node has joined or was lost in between. O(GPUs + changes x log).
        """
        task_changed = np.zeros(len(snapshot.tasks.state) + 1, bool)  # the last one: of no task
        task_changed[changes.tasks] = True
        changed = task_changed[np.maximum(self.task, -1)]
        changed[changes.gpus] = True
        self._write(snapshot, np.flatnonzero(changed))

    def _write(self, snapshot: Snapshot, gpus: Array) -> None:
        task = snapshot.gpus.task.take(gpus).astype(np.int64)
        self.task[gpus] = task
        held = np.flatnonzero(task >= 0)
        held = held[in_order(task[held])]  # columns are read fastest in order
        gpus, rows = gpus[held], task[held]
        self.stopping[gpus] = _IS_STOPPING[snapshot.tasks.state.take(rows)]
        for name in _COLUMNS:
            getattr(self, name)[gpus] = getattr(snapshot.tasks, name).take(rows)
        self.kept[:] = self.left[:] = False
        for marks, grants in zip((self.kept, self.left), grants_of_moves(snapshot), strict=True):
            marks[gpus_of(snapshot, grants)] = True


_IDLE = np.isin(np.arange(len(TaskState)), (TaskState.BLOCKED, TaskState.WAITING, *_STOPPING))
_CLASSES = 1 << 32  # above the number of runtime classes


class IdleTasks:
    """Unfinished tasks on GPUs without a run, or with one that is being stopped, or that move.

    Those without a checkpoint are counted by job and runtime class: tasks that need `gpus[i]` GPUs
    together, of the job in row `job[i]` and of the class in row `runtime_class[i]`. `begun` are the
    rows of the others. Tasks of ended jobs may be among them.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; O(tasks since the first job in flight)."""
        self._key = self._milli = self.begun = np.zeros(0, np.int64)
        self._sizes = NO_DEMANDS
        active = np.flatnonzero(snapshot.jobs.state.array() == JobState.ACTIVE)
        end = len(snapshot.tasks.state)
        first = snapshot.jobs.first_task[int(active[0])] if len(active) else end
        rows = range(first, end)
        self._write(snapshot, rows, np.zeros(len(rows), bool))

    @property
    def job(self) -> Ints:
        """Rows of jobs."""
        return self._key // _CLASSES

    @property
    def runtime_class(self) -> Ints:
        """Rows of runtime classes."""
        return self._key % _CLASSES

    @property
    def gpus(self) -> Floats:
        """GPUs that the tasks of each job and runtime class need together."""
        return self._milli / WHOLE

    def gpus_of(self, snapshot: Snapshot, tasks: Ints) -> Floats:
        """Return the GPUs that tasks (rows) of the last snapshot need."""
        gpus: Floats = self._sizes.gpus_milli[snapshot.tasks.demand.take(tasks)] / WHOLE
        return gpus

    def update(self, snapshot: Snapshot, changes: Changes) -> None:
        """Update to a snapshot that differs by `changes` from the last one.

        O(jobs x classes + changes x log).
        """
        before, rows = changes.before.tasks, changes.tasks
        known = rows[: np.searchsorted(rows, len(before.state))]
        fresh = np.zeros(len(rows), bool)
        idle = _IDLE[before.state.take(known)]
        fresh[: len(known)] = idle & (before.progress_s.take(known) == 0)
        self._write(snapshot, rows, fresh)

    def _write(self, snapshot: Snapshot, rows: range | Ints, was_fresh: Bools) -> None:
        """Update for changed tasks; `was_fresh`: those that were idle without a checkpoint."""
        tasks, changed = snapshot.tasks, numbers_of(rows)
        self._sizes = self._sizes.after(snapshot.names.demands)
        self._key, self._milli, begun = recount_idle(
            self._key,
            self._milli,
            changed,
            tasks.state.take(rows),
            self._sizes.gpus_milli[tasks.demand.take(rows)],
            tasks.job.take(rows),
            tasks.runtime_class.take(rows),
            tasks.progress_s.take(rows),
            was_fresh=was_fresh,
            idle=_IDLE,
            classes=_CLASSES,
        )
        if len(self.begun) or len(begun):
            self.begun = np.union1d(np.setdiff1d(self.begun, changed), begun)
