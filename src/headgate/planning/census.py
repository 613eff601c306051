"""The tasks of jobs in flight, counted by job and memory class, kept up from change to change."""

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
        TaskState.STOPPING,  # of a job in flight: it will wait again
    ),
)
_MEANING = (_UNFINISHED + 2 * (_STATES == TaskState.WAITING)).astype(np.uint8)
"""By state: 1 for unfinished, and 2 for waiting."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moved:
    """Tasks of a snapshot that may have moved, and the states in which they were before."""

    snapshot: Snapshot
    rows: range | Ints  # ascending
    then: NDArray[np.uint8]


def moved_since(before: Snapshot, snapshot: Snapshot, rows: Ints) -> Moved:
    """Return how the tasks of some rows, ascending, moved from one snapshot to another."""
    known = rows[: np.searchsorted(rows, len(before.tasks.state))]
    then = np.full(len(rows), TaskState.HELD, np.uint8)
    then[: len(known)] = before.tasks.state.take(known)
    return Moved(snapshot=snapshot, rows=rows, then=then)


def moved_in(snapshot: Snapshot, rows: range) -> Moved:
    """Return how the tasks of some rows moved since none of them was there."""
    return Moved(snapshot=snapshot, rows=rows, then=np.full(len(rows), TaskState.HELD, np.uint8))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Of moved tasks on one GPU: who waits now, in a job in flight; and who waited before."""

    row: Ints  # ascending, of those who wait
    job: Ints  # rows
    kind: Ints  # class, one beyond the last where no GPU is large enough
    waited: Ints  # rows, ascending


def numbers_of(rows: range | Ints) -> Ints:
    """Return the numbers of some rows, one by one."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def index_of(rows: Ints, count: int) -> Ints:
    """Return where each of `count` rows is in `rows`, -1 where it is not."""
    index = np.full(count, -1)
    index[rows] = np.arange(len(rows))
    return index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Census:
    """How many tasks that need GPUs each job in flight has; int64 arrays.

    `table` has a row per job: unfinished tasks of one GPU by class, those of them that wait by
    class, and unfinished tasks of several GPUs. The classes are those of a `Standing`, and one of
    tasks that need more than any GPU has.
    """

    job: Ints  # [jobs] rows, ascending
    classes: int
    table: Ints  # [jobs, 2 x classes + 1]

    @property
    def unfinished(self) -> Ints:
        """Unfinished tasks of one GPU, `[jobs, classes]`."""
        return self.table[:, : self.classes]

    @property
    def waiting(self) -> Ints:
        """Tasks of one GPU that wait, `[jobs, classes]`."""
        return self.table[:, self.classes : -1]

    @property
    def several(self) -> Ints:
        """Unfinished tasks of several GPUs, `[jobs]`."""
        return self.table[:, -1]

    def after(self, moved: Moved, class_bytes: Ints, job: Ints) -> tuple[Census, Waits]:
        """Return the census once tasks have moved and `job` are those in flight; and who waits.

        No task was unfinished before its job came into flight. O(moves + jobs x classes).
        """
        tasks, rows, jobs = moved.snapshot.tasks, moved.rows, len(moved.snapshot.jobs.state)
        if np.array_equal(job, self.job):
            table = self.table.copy()
        else:
            stays = index_of(self.job, jobs)[job]  # -1: the row of nobody, at the end
            nobody = np.zeros((1, self.table.shape[1]), np.int64)
            table = np.concatenate([self.table, nobody])[stays]
        row, of_job, kind, waited = recount(
            numbers_of(rows),
            tasks.state.take(rows),
            moved.then,
            tasks.gpus.take(rows),
            tasks.memory_bytes.take(rows),
            tasks.job.take(rows),
            meaning=_MEANING,
            class_bytes=class_bytes,
            at=index_of(job, jobs),
            table=table,
        )
        census = Census(job=job, classes=self.classes, table=table)
        return census, Waits(row=row, job=of_job, kind=kind, waited=waited)


def nobody(classes: int) -> Census:
    """Return the census of no job at all."""
    none = np.zeros(0, np.int64)
    return Census(job=none, classes=classes, table=np.zeros((0, 2 * classes + 1), np.int64))
