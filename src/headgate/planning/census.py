"""The tasks of jobs in flight, counted by job and memory class, updated by changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.planning._native import recount
from headgate.planning.shares import Ints
from headgate.state import Snapshot, TaskState

Bools = NDArray[np.bool_]

_STATES = np.arange(len(TaskState))
_UNFINISHED = np.isin(
    _STATES,
    (
        TaskState.BLOCKED,
        TaskState.WAITING,
        TaskState.STARTING,
        TaskState.RUNNING,
        TaskState.STOPPING,  # of a job in flight: the task will wait again
    ),
)
_FLAGS = (_UNFINISHED + 2 * (_STATES == TaskState.WAITING)).astype(np.uint8)
"""By state: bit 1 for unfinished, bit 2 for waiting."""

_SEVERAL = np.int32(2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskChanges:
    """Tasks of a snapshot whose state may have changed, and their previous states."""

    snapshot: Snapshot
    rows: range | Ints  # ascending
    before: NDArray[np.uint8]


def task_changes(before: Snapshot, snapshot: Snapshot, rows: Ints) -> TaskChanges:
    """Return the changes of the tasks in `rows`, ascending, from one snapshot to a later one."""
    known = rows[: np.searchsorted(rows, len(before.tasks.state))]
    states = np.full(len(rows), TaskState.HELD, np.uint8)
    states[: len(known)] = before.tasks.state.take(known)
    return TaskChanges(snapshot=snapshot, rows=rows, before=states)


def new_tasks(snapshot: Snapshot, rows: range) -> TaskChanges:
    """Return the changes of the tasks in `rows`, all of them new."""
    before = np.full(len(rows), TaskState.HELD, np.uint8)
    return TaskChanges(snapshot=snapshot, rows=rows, before=before)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingChange:
    """The changed tasks on one GPU that wait now, in a job in flight, or that waited before."""

    row: Ints  # [waiting] rows of tasks, ascending
    job: Ints  # [waiting] rows of jobs
    memory_class: Ints  # [waiting] the number of classes if no GPU is large enough
    waited: Ints  # rows of tasks that waited before, ascending


def numbers_of(rows: range | Ints) -> Ints:
    """Return rows as an array."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def _gpus(snapshot: Snapshot, rows: range | Ints) -> NDArray[np.int32]:
    """Return the GPUs of tasks, `_SEVERAL` for a task on part of one: neither is supported."""
    gpus: NDArray[np.int32] = snapshot.tasks.gpus.take(rows)
    in_part = [row for row, demand in enumerate(snapshot.names.demands) if demand.in_part]
    if in_part:
        gpus = np.where(np.isin(snapshot.tasks.demand.take(rows), in_part), _SEVERAL, gpus)
    return gpus


def index_of(rows: Ints, count: int) -> Ints:
    """Return the index in `rows` of each of `count` rows, -1 for others, `[count]`."""
    index = np.full(count, -1)
    index[rows] = np.arange(len(rows))
    return index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Census:
    """The numbers of tasks on GPUs of each job in flight; int64 arrays.

    `table` has a row per job: unfinished tasks on one GPU by class, those of them that wait by
    class, and unfinished tasks on several GPUs or on part of one. The classes are those of a
    `Standing`, and one more for tasks that need more memory than any GPU has.
    """

    job: Ints  # [jobs] rows, ascending
    classes: int
    table: Ints  # [jobs, 2 x classes + 1]

    @property
    def unfinished(self) -> Ints:
        """Unfinished tasks on one GPU, `[jobs, classes]`."""
        return self.table[:, : self.classes]

    @property
    def waiting(self) -> Ints:
        """Waiting tasks on one GPU, `[jobs, classes]`."""
        return self.table[:, self.classes : -1]

    @property
    def unsupported(self) -> Ints:
        """Unfinished tasks on several GPUs or on part of one, `[jobs]`."""
        return self.table[:, -1]

    def after(
        self, changes: TaskChanges, class_bytes: Ints, job: Ints
    ) -> tuple[Census, WaitingChange]:
        """Return the census after changes, for the jobs `job` in flight, and the waiting tasks.

        No task counts as unfinished before its job is in flight.
        O(changes x log(classes) + jobs x classes + demands).
        """
        tasks, rows, jobs = changes.snapshot.tasks, changes.rows, len(changes.snapshot.jobs.state)
        if np.array_equal(job, self.job):
            table = self.table.copy()
        else:
            index = index_of(self.job, jobs)[job]  # -1: the empty row at the end
            empty = np.zeros((1, self.table.shape[1]), np.int64)
            table = np.concatenate([self.table, empty])[index]
        row, of_job, memory_class, waited = recount(
            numbers_of(rows),
            tasks.state.take(rows),
            changes.before,
            _gpus(changes.snapshot, rows),
            tasks.memory_bytes.take(rows),
            tasks.job.take(rows),
            flags=_FLAGS,
            class_bytes=class_bytes,
            index=index_of(job, jobs),
            table=table,
        )
        census = Census(job=job, classes=self.classes, table=table)
        return census, WaitingChange(row=row, job=of_job, memory_class=memory_class, waited=waited)


def empty_census(classes: int) -> Census:
    """Return the census of no job."""
    none = np.zeros(0, np.int64)
    return Census(job=none, classes=classes, table=np.zeros((0, 2 * classes + 1), np.int64))
