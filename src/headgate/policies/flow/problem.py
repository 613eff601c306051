"""Stage 2 of a round: its min-cost flow problem, or the difference from the last one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.base.rows import RowMap
from headgate.policies.flow.eligible import Round, WaitingTasks
from headgate.policies.flow.prices import wait_prices
from headgate.policies.flow.windows import UNLIMITED, WINDOWS, free_by_window
from headgate.state import Changes, TaskState

NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowProblem:
    """GPUs, tasks and prices; int64 arrays, prices in microseconds.

    A kind of GPU is a class (`GpuClasses`), and in it a window (`windows`), unlimited ones last;
    before GPUs are reserved there are only unlimited ones. Tasks of a type accept some classes.

    A job (or a group of jobs that are limited together) places at most `most` of its tasks, and at
    least `least` if enough GPUs fit (always `most` unless `may_wait`); each further one that it may
    place costs twice `wait_price` if it waits. A GPU that is held now, one of `held_node` and
    `held_kind`, costs `held_price` in addition: the wait until it is free. A byte read costs
    `per_byte`, by `Locality` (`planning.units.costs.shard_prices`); read r has replicas on
    `replica_node[replica_first[r]:replica_first[r + 1]]`.

    Rows identify tasks, jobs and GPUs from round to round.
    """

    node_rack: Ints  # [nodes]
    windows: int  # of each class
    free: Ints  # [nodes, kinds] free GPUs
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_type: Ints  # [tasks]
    accepts: Bools  # [types, classes]
    task_window: Ints  # [tasks] shortest window that it needs
    read_first: Ints  # [tasks + 1] first read of each task, a read per shard
    read_bytes: Ints  # [reads]
    per_byte: Floats  # [3]
    replica_first: Ints  # [reads + 1]
    replica_node: Ints  # [replicas]
    job: Ints  # [jobs] rows
    most: Ints  # [jobs]
    least: Ints  # [jobs]
    wait_price: Ints  # [jobs]
    may_wait: bool
    held_gpu: Ints  # [held GPUs] rows, ascending
    held_node: Ints  # [held GPUs]
    held_kind: Ints  # [held GPUs]
    held_price: Ints  # [held GPUs]

    @property
    def slots(self) -> Ints:
        """GPUs that are free or held, `[nodes, kinds]`."""
        cells, kinds = self.free.size, self.free.shape[1]
        held = np.bincount(self.held_node * kinds + self.held_kind, minlength=cells)
        slots: Ints = self.free + held.reshape(self.free.shape)
        return slots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FullProblem:
    """A problem with all its tasks, to be solved from nothing, and all GPUs that are up."""

    problem: FlowProblem
    up: Ints  # [nodes, kinds] GPUs, held or free, which may be of any window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemChange:
    """The difference of a problem from the last one, on the same GPUs.

    The tasks of `problem` are those that are new or have other options now, all its other fields
    are complete; `removed` are the rows of tasks that are no longer part of it.
    """

    problem: FlowProblem
    removed: Ints


class OfferedTasks:
    """The tasks in the problem, from round to round: the first ones of each task group.

    As many are offered as their jobs are entitled to. An offered task stays until it no longer
    waits: if its jobs may not place it, it takes capacity of a pool only.
    """

    def __init__(self) -> None:
        """Start without tasks."""
        self.clear()

    def clear(self) -> None:
        """Remove all tasks."""
        self.tasks = 0
        self._has = RowMap(0)  # by task
        self._count, self._bytes = RowMap(0), RowMap(0)  # by task group
        self._is_read = np.zeros(0, bool)  # by shard
        self.windows = 1
        self._window = RowMap(0)  # by job: the windows in which its tasks have no option

    def without_tasks(self) -> OfferedTasks:
        """Return the same without tasks, with the windows."""
        fresh = OfferedTasks()
        fresh.windows, fresh._window = self.windows, self._window
        return fresh

    def set_windows(self, jobs: Ints, needed: Ints) -> Bools:
        """Set the shortest window of each job's tasks; return which have changed, `[jobs]`."""
        self.windows = WINDOWS
        changed: Bools = self._window[jobs] != UNLIMITED - needed
        self._window[jobs[changed]] = UNLIMITED - needed[changed]
        return changed

    def window_of(self, jobs: Ints) -> Ints:
        """Return the shortest window in which tasks of jobs have options."""
        if self.windows == 1:
            return np.zeros(len(jobs), np.int64)
        window: Ints = UNLIMITED - self._window[jobs]
        return window

    def has(self, tasks: Ints) -> Bools:
        """Return which tasks (rows) are offered, `[tasks]`."""
        has: Bools = self._has[tasks] > 0
        return has

    def more(self, tasks: WaitingTasks, most: Ints, offered: Bools) -> Ints:
        """Return the indices of tasks to offer in addition to `offered`; `most` is by job."""
        able = np.flatnonzero(tasks.eligible & ~offered)
        room = most[tasks.job[able]] - self._count[tasks.task_group[able]]
        able, room = able[room > 0], room[room > 0]
        return able[nth_of_equals(tasks.task_group[able]) < room]

    def add(self, row: Ints, task_group: Ints) -> None:
        """Offer tasks."""
        self._has[row] = 1
        self._count.add(task_group, 1)
        self.tasks += len(row)

    def remove(self, row: Ints, task_group: Ints) -> None:
        """Stop offering tasks."""
        self._has[row] = 0
        self._count.add(task_group, -1)
        self.tasks -= len(row)

    def record_reads(self, task_group: Ints, read_bytes: Ints, shards: Ints) -> None:
        """Record the bytes that each task reads, `[tasks]`, and the shards that they read."""
        self._bytes[task_group] = read_bytes
        new = int(shards.max(initial=-1)) + 1 - len(self._is_read)
        if new > 0:
            self._is_read = np.concatenate([self._is_read, np.zeros(new, bool)])
        self._is_read[shards] = True

    def read_among(self, shards: Ints) -> Ints:
        """Return which of `shards`, ascending, are read by tasks that are or were offered."""
        known = shards[: np.searchsorted(shards, len(self._is_read))]
        return known[self._is_read[known]]

    def eligible_bytes(self, tasks: WaitingTasks, group: Ints, groups: int) -> Floats:
        """Return the bytes that eligible tasks read, `[groups]`; `group` is by job."""
        able = np.flatnonzero(tasks.eligible)
        each = self._bytes[tasks.task_group[able]]
        total = np.bincount(group[tasks.job[able]], each, minlength=groups)
        return total.astype(np.float64)


def next_problem(
    round_: Round, changes: Changes | None, offered: OfferedTasks
) -> FullProblem | ProblemChange:
    """Return the problem of a round, as a change of the last one if that is small.

    `changes` are those since the round for which tasks were `offered`, None without one.
    """
    change = None if changes is None else _change(round_, changes, offered)
    return change or full_problem(round_, offered)


def full_problem(round_: Round, offered: OfferedTasks) -> FullProblem:
    """Return the problem of a round with all tasks that it offers."""
    tasks, entitled, standing = round_.tasks, round_.entitled, round_.standing
    offered.clear()
    if round_.windows is not None:
        offered.set_windows(standing.jobs, round_.windows.needed)
    nothing = np.zeros(len(tasks.row), bool)
    new = offered.more(tasks, entitled.most[entitled.group], nothing)
    offered.add(tasks.row[new], tasks.task_group[new])
    up = np.bincount(standing.hardware.cell, minlength=standing.free.size).reshape(
        standing.free.shape
    )
    up = np.repeat(up, offered.windows, axis=1)
    return FullProblem(problem=problem_with(round_, new, offered), up=up)


def _change(round_: Round, changes: Changes, offered: OfferedTasks) -> ProblemChange | None:
    """Return the difference of a round's problem from the last one, None if it is large.

    Also None if tasks are offered whose jobs are no longer supported, and for the first windows.
    """
    if round_.windows is not None and offered.windows == 1:
        return None
    tasks, entitled, snapshot = round_.tasks, round_.entitled, round_.snapshot
    changed = changes.tasks[offered.has(changes.tasks)]
    removed = changed[snapshot.tasks.state.take(changed) != TaskState.WAITING]
    is_offered = offered.has(tasks.row)
    if np.count_nonzero(is_offered) + len(removed) != offered.tasks:
        return None
    before = offered.tasks
    offered.remove(removed, snapshot.tasks.task_group.take(removed).astype(np.int64))
    new = offered.more(tasks, entitled.most[entitled.group], is_offered)
    other = _with_other_reads(round_, changes, offered, np.flatnonzero(is_offered))
    if round_.windows is not None:
        changed_jobs = offered.set_windows(round_.standing.jobs, round_.windows.needed)
        other = np.union1d(other, np.flatnonzero(is_offered & changed_jobs[tasks.job]))
    if 2 * (len(new) + len(other)) > before:
        return None
    problem = problem_with(round_, np.sort(np.concatenate([new, other])), offered)
    offered.add(tasks.row[new], tasks.task_group[new])
    return ProblemChange(problem=problem, removed=removed)


def _with_other_reads(round_: Round, changes: Changes, offered: OfferedTasks, still: Ints) -> Ints:
    """Return which of the tasks `still` offered read shards whose size or replicas changed."""
    known = offered.read_among(changes.shards)
    if not len(known):
        return NONE
    snapshot = round_.snapshot
    changed = np.zeros(len(snapshot.shards.size_bytes), bool)
    changed[known] = True
    inputs = snapshot.tasks.input.take(round_.tasks.row[still]).astype(np.int64)
    offsets, shard = snapshot.inputs.shards.flat(inputs)
    reader = np.repeat(np.arange(len(still)), np.diff(offsets))
    return still[np.unique(reader[changed[shard]])]


def offered_problem(round_: Round, offered: OfferedTasks) -> FlowProblem:
    """Return the problem of a round with all tasks that are offered, built from scratch."""
    tasks = np.flatnonzero(offered.has(round_.tasks.row))
    return problem_with(round_, tasks, offered.without_tasks())


def problem_with(round_: Round, tasks: Ints, offered: OfferedTasks) -> FlowProblem:
    """Return the problem of a round with some tasks (indices); record their reads in `offered`.

    O(reads and replicas of these tasks + GPUs + jobs + waiting tasks).
    """
    snapshot, standing, entitled = round_.snapshot, round_.standing, round_.entitled
    row, held = standing.task[tasks], _held(round_, offered.windows)
    read = snapshot.tasks.input.take(row).astype(np.int64)
    offsets, shard = snapshot.inputs.shards.flat(read)
    size_bytes = snapshot.shards.size_bytes.take(shard)
    replica_first, replica_node = snapshot.shards.replicas.flat(shard)
    read_bytes = np.diff(np.append(0, np.cumsum(size_bytes))[offsets])
    offered.record_reads(round_.tasks.task_group[tasks], read_bytes, shard)
    return FlowProblem(
        node_rack=snapshot.nodes.rack.array().astype(np.int64),
        windows=offered.windows,
        free=standing.free if offered.windows == 1 else free_by_window(standing, round_.windows),
        task=row,
        task_job=entitled.group[standing.task_job[tasks]],
        task_type=standing.task_type[tasks],
        accepts=standing.accepts,
        task_window=offered.window_of(standing.jobs[standing.task_job[tasks]]),
        read_first=offsets,
        read_bytes=size_bytes,
        per_byte=round_.prices.per_byte(snapshot.bandwidth),
        replica_first=replica_first,
        replica_node=replica_node,
        job=entitled.row,
        most=entitled.most,
        least=entitled.least,
        wait_price=_wait_price(round_, offered),
        may_wait=round_.prices.may_wait,
        held_gpu=held[0],
        held_node=held[1],
        held_kind=held[2],
        held_price=held[3],
    )


def _held(round_: Round, windows: int) -> tuple[Ints, ...]:
    """Return rows, nodes, kinds and prices of the held GPUs that are slots."""
    ahead, some = round_.in_flight, round_.windows
    if ahead is None:
        return NONE, NONE, NONE, NONE
    runs = ahead.runs
    held = (runs.gpu, runs.node, (runs.gpu_class + 1) * windows - 1, ahead.price)
    if windows == 1 or some is None:
        return held
    runs, window = some.held.runs, some.held_window
    more = (runs.gpu, runs.node, runs.gpu_class * windows + window, some.held.price)
    order = np.argsort(np.concatenate([held[0], more[0]]))
    return tuple(np.concatenate(both)[order] for both in zip(held, more, strict=True))


def _wait_price(round_: Round, offered: OfferedTasks) -> Ints:
    """Return the price of waiting of each group's tasks, `[groups]`, for each of two arcs."""
    standing, group, alpha3 = round_.standing, round_.entitled.group, round_.prices.alpha3
    groups = len(round_.entitled.most)
    if alpha3 is None:
        return np.zeros(groups, np.int64)
    waiting = np.bincount(group, standing.waiting.sum(axis=1), minlength=groups)
    read_bytes = offered.eligible_bytes(round_.tasks, group, groups)
    return wait_prices(
        read_bytes / np.maximum(waiting, 1),
        round_.snapshot.bandwidth,
        alpha3=alpha3,
        least=standing.free.shape[1],
    )
