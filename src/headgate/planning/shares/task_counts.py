"""The tasks of jobs in flight, counted by job and type (`GpuKinds`), updated by changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Bools, Ints
from headgate.model import WHOLE, Demand
from headgate.planning._native import recount
from headgate.planning.shares.gpu_kinds import GpuKinds
from headgate.planning.units.unit import is_multi_gpu
from headgate.state import Snapshot, TaskState
from headgate.state.elastic import in_units

_STATES = np.arange(len(TaskState))
_UNFINISHED = np.isin(
    _STATES,
    (
        TaskState.BLOCKED,
        TaskState.WAITING,
        TaskState.STARTING,
        TaskState.RUNNING,
        TaskState.STOPPING,  # of a job in flight: most tasks will wait again, or move
        TaskState.MOVING,
    ),
)
_FLAGS = (_UNFINISHED + 2 * (_STATES == TaskState.WAITING)).astype(np.uint8)
"""By state: bit 1 for unfinished, bit 2 for waiting."""


def unfinished(states: Ints) -> Bools:
    """Return which tasks in these states wait, run, or will, if their jobs are in flight."""
    found: Bools = _UNFINISHED[states]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandSizes:
    """The GPUs of each demand, `[demands]`."""

    gpus_milli: Ints  # thousandths, at least 1 of a demand for GPUs
    multi_gpu: Bools  # see `is_multi_gpu`

    def after(self, demands: Sequence[Demand]) -> DemandSizes:
        """Return the sizes of demands of which these are the first; O(new ones)."""
        new = demands[len(self.multi_gpu) :]
        if not new:
            return self
        milli = np.array([max(d.gpus_milli, 1) if d.gpus else 0 for d in new], np.int64)
        multi_gpu = np.array([is_multi_gpu(demand) for demand in new], bool)
        return DemandSizes(
            gpus_milli=np.append(self.gpus_milli, milli),
            multi_gpu=np.append(self.multi_gpu, multi_gpu),
        )


NO_DEMANDS = DemandSizes(gpus_milli=np.zeros(0, np.int64), multi_gpu=np.zeros(0, bool))


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
    """The changed tasks that are not multi-GPU: those that wait, in a job in flight, or waited."""

    row: Ints  # [waiting] rows of tasks, ascending
    job: Ints  # [waiting] rows of jobs
    type: Ints  # [waiting]
    waited: Ints  # rows of tasks that waited before, ascending


def any_of_class(table: Ints) -> Bools:
    """Return which rows of a table have another number than 0, `[rows]`."""
    found = np.zeros(len(table), bool)
    for column in table.T:  # several times faster than `any` along the short axis
        found |= column != 0
    return found


def _whole(milli: Ints) -> Ints:
    """Return GPUs for thousandths of them, `[rows, types]`, rounded up."""
    gpus = np.zeros(milli.shape, np.int64)
    for of_type, column in zip(gpus.T, milli.T, strict=True):
        some = np.flatnonzero(column)
        of_type[some] = -(-column[some] // WHOLE)
    return gpus


def numbers_of(rows: range | Ints) -> Ints:
    """Return rows as an array."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def index_of(rows: Ints, count: int) -> Ints:
    """Return the index in `rows` of each of `count` rows, -1 for others, `[count]`."""
    index = np.full(count, -1)
    index[rows] = np.arange(len(rows))
    return index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskCounts:
    """The tasks on GPUs of each job in flight, counted; int64 arrays.

    *Multi-GPU* tasks are those of gangs, and of multi-GPU demands (`is_multi_gpu`). `table` has a
    row per job with four columns by type: unfinished tasks that are not multi-GPU, those of them
    that wait, thousandths of GPUs of unfinished multi-GPU tasks, and those of waiting ones. The
    types are those of the kinds of GPUs, and one more, the last one, for tasks that no GPU suits.
    """

    job: Ints  # [jobs] rows, ascending
    types: int
    table: Ints  # [jobs, 4 x types]
    sizes: DemandSizes

    @property
    def unfinished(self) -> Ints:
        """GPUs of unfinished tasks, parts of one rounded up, `[jobs, types]`."""
        single, _, multi_gpu_milli, _ = self._columns()
        return single + _whole(multi_gpu_milli)

    @property
    def waiting(self) -> Ints:
        """Waiting tasks that are not multi-GPU, `[jobs, types]`."""
        return self._columns()[1]

    @property
    def multi_gpu(self) -> Ints:
        """GPUs of waiting multi-GPU tasks, parts of one rounded up, `[jobs, types]`."""
        return _whole(self._columns()[3])

    @property
    def has_multi_gpu(self) -> Bools:
        """Whether each job has unfinished multi-GPU tasks, `[jobs]`."""
        return any_of_class(self._columns()[2])

    def _columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        first, second, third, fourth = (
            self.table[:, n * self.types : (n + 1) * self.types] for n in range(4)
        )
        return first, second, third, fourth

    def after(
        self, changes: TaskChanges, kinds: GpuKinds, job: Ints
    ) -> tuple[TaskCounts, WaitingChange]:
        """Return the counts after changes, for the jobs `job` in flight, and the waiting tasks.

        No task counts as unfinished before its job is in flight. O(changes + jobs x types).
        """
        snapshot, rows = changes.snapshot, changes.rows
        tasks, jobs = snapshot.tasks, len(snapshot.jobs.state)
        if np.array_equal(job, self.job):
            table = self.table.copy()
        else:
            index = index_of(self.job, jobs)[job]  # -1: the empty row at the end
            empty = np.zeros((1, self.table.shape[1]), np.int64)
            table = np.concatenate([self.table, empty])[index]
        sizes = self.sizes.after(snapshot.names.demands)
        demand, its_job = tasks.demand.take(rows), tasks.job.take(rows)
        row, of_job, types, waited = recount(
            numbers_of(rows),
            tasks.state.take(rows),
            changes.before,
            sizes.gpus_milli[demand],
            sizes.multi_gpu[demand] | in_units(snapshot, its_job),
            kinds.of_demand[demand],
            its_job,
            flags=_FLAGS,
            index=index_of(job, jobs),
            table=table,
        )
        task_counts = TaskCounts(job=job, types=self.types, table=table, sizes=sizes)
        return task_counts, WaitingChange(row=row, job=of_job, type=types, waited=waited)


def no_task_counts(types: int) -> TaskCounts:
    """Return the task counts of no job."""
    none = np.zeros(0, np.int64)
    table = np.zeros((0, 4 * types), np.int64)
    return TaskCounts(job=none, types=types, table=table, sizes=NO_DEMANDS)
