"""The tasks of jobs in flight, counted by job and memory class, kept up from change to change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.decision.shares import Ints
from headgate.state import Snapshot, TaskState

Bools = NDArray[np.bool_]

_STATES = np.arange(len(TaskState))
_WAITING = _STATES == TaskState.WAITING
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """Tasks that need GPUs and are unfinished, or were: what they are now, and what they were."""

    row: Ints  # ascending
    job: Ints  # rows
    kind: Ints  # class, one beyond the last where no GPU is large enough
    single: Bools  # needs one GPU
    unfinished: Bools
    was_unfinished: Bools
    waits: Bools
    waited: Bools


def moved_since(before: Snapshot, snapshot: Snapshot, rows: Ints, class_bytes: Ints) -> Moves:
    """Return how the tasks of some rows, ascending, moved from one snapshot to another."""
    known = rows[: np.searchsorted(rows, len(before.tasks.state))]
    then = np.full(len(rows), TaskState.HELD, np.uint8)
    then[: len(known)] = before.tasks.state.take(known)
    return _moves(snapshot, rows, then, class_bytes)


def moved_in(snapshot: Snapshot, rows: range, class_bytes: Ints) -> Moves:
    """Return how the tasks of some rows moved since none of them was there."""
    then = np.full(len(rows), TaskState.HELD, np.uint8)
    return _moves(snapshot, rows, then, class_bytes)


def _moves(
    snapshot: Snapshot, rows: range | Ints, then: NDArray[np.uint8], class_bytes: Ints
) -> Moves:
    tasks = snapshot.tasks
    state, gpus = tasks.state.take(rows), tasks.gpus.take(rows)
    unfinished, was_unfinished = _UNFINISHED[state], _UNFINISHED[then]
    found = np.flatnonzero((gpus > 0) & (unfinished | was_unfinished))
    return Moves(
        row=found + rows.start if isinstance(rows, range) else rows[found],
        job=tasks.job.take(rows)[found].astype(np.int64),
        kind=np.searchsorted(class_bytes, tasks.memory_bytes.take(rows)[found]),
        single=gpus[found] == 1,
        unfinished=unfinished[found],
        was_unfinished=was_unfinished[found],
        waits=_WAITING[state[found]],
        waited=_WAITING[then[found]],
    )


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

    def after(self, moved: Moves, job: Ints, jobs: int) -> Census:
        """Return the census once tasks have moved and, of all `jobs` there are, `job` in flight.

        No task was unfinished before its job came into flight. O(moves + jobs x classes).
        """
        width = self.table.shape[1]
        table = self.table
        if not np.array_equal(job, self.job):
            stays = index_of(self.job, jobs)[job]  # -1: the row of nobody, at the end
            table = np.concatenate([table, np.zeros((1, width), np.int64)])[stays]
        at = index_of(job, jobs)[moved.job]
        unfinished = moved.unfinished.view(np.int8) - moved.was_unfinished
        waits = moved.waits.view(np.int8) - moved.waited
        cell = at * width + np.where(moved.single, moved.kind, width - 1)
        count = np.flatnonzero((unfinished != 0) & (at >= 0))
        wait = np.flatnonzero((waits != 0) & (at >= 0) & moved.single)
        cells = np.concatenate([cell[count], cell[wait] + self.classes])
        steps = np.concatenate([unfinished[count], waits[wait]])
        counted = np.bincount(cells, steps, table.size)
        return Census(
            job=job,
            classes=self.classes,
            table=table + counted.astype(np.int64).reshape(table.shape),
        )


def nobody(classes: int) -> Census:
    """Return the census of no job at all."""
    none = np.zeros(0, np.int64)
    return Census(job=none, classes=classes, table=np.zeros((0, 2 * classes + 1), np.int64))
