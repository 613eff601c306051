"""Stage 2 of a round: its min-cost flow problem, or the difference from the last one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.order import nth_of_equals
from headgate.base.rows import RowMap
from headgate.flow import Ints
from headgate.planning.census import Bools
from headgate.planning.shares import Floats
from headgate.policies.flow.eligible import Round, WaitingTasks
from headgate.policies.flow.prices import wait_prices
from headgate.state import Changes, TaskState

NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowProblem:
    """GPUs, tasks and prices; int64 arrays, prices in microseconds.

    A job (or a group of jobs that are limited together) places at most `most` of its tasks, and at
    least `least` if enough GPUs fit (always `most` unless `may_wait`); each further one that it may
    place costs twice `wait_price` if it waits. A GPU that is held now, one of `held_node` and
    `held_class`, costs `held_price` in addition: the wait until it is free. A byte read costs
    `per_byte`, by `Locality` (`planning.costs.shard_prices`); read r has replicas on
    `replica_node[replica_first[r]:replica_first[r + 1]]`.

    Rows identify tasks, jobs and GPUs from round to round.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by ascending memory
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
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
    held_class: Ints  # [held GPUs]
    held_price: Ints  # [held GPUs]

    @property
    def slots(self) -> Ints:
        """GPUs that are free or held, `[nodes, classes]`."""
        cells, classes = self.free.size, self.free.shape[1]
        held = np.bincount(self.held_node * classes + self.held_class, minlength=cells)
        slots: Ints = self.free + held.reshape(self.free.shape)
        return slots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FullProblem:
    """A problem with all its tasks, to be solved from nothing, and all GPUs that are up."""

    problem: FlowProblem
    up: Ints  # [nodes, classes] GPUs, held or free


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
    tasks, entitled, now = round_.tasks, round_.entitled, round_.now
    offered.clear()
    nothing = np.zeros(len(tasks.row), bool)
    new = offered.more(tasks, entitled.most[entitled.group], nothing)
    offered.add(tasks.row[new], tasks.task_group[new])
    up = np.bincount(now.hardware.cell, minlength=now.free.size).reshape(now.free.shape)
    return FullProblem(problem=problem_with(round_, new, offered), up=up)


def _change(round_: Round, changes: Changes, offered: OfferedTasks) -> ProblemChange | None:
    """Return the difference of a round's problem from the last one, None if it is large.

    Also None if tasks are offered whose jobs are no longer supported.
    """
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
    return problem_with(round_, np.flatnonzero(offered.has(round_.tasks.row)), OfferedTasks())


def problem_with(round_: Round, tasks: Ints, offered: OfferedTasks) -> FlowProblem:
    """Return the problem of a round with some tasks (indices); record their reads in `offered`.

    O(reads and replicas of these tasks + GPUs + jobs + waiting tasks).
    """
    snapshot, now, entitled = round_.snapshot, round_.now, round_.entitled
    ahead, row = round_.in_flight, now.task[tasks]
    read = snapshot.tasks.input.take(row).astype(np.int64)
    offsets, shard = snapshot.inputs.shards.flat(read)
    size_bytes = snapshot.shards.size_bytes.take(shard)
    replica_first, replica_node = snapshot.shards.replicas.flat(shard)
    read_bytes = np.diff(np.append(0, np.cumsum(size_bytes))[offsets])
    offered.record_reads(round_.tasks.task_group[tasks], read_bytes, shard)
    return FlowProblem(
        node_rack=snapshot.nodes.rack.array().astype(np.int64),
        free=now.free,
        task=row,
        task_job=entitled.group[now.task_job[tasks]],
        task_class=now.task_class[tasks],
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
        held_gpu=NONE if ahead is None else ahead.runs.gpu,
        held_node=NONE if ahead is None else ahead.runs.node,
        held_class=NONE if ahead is None else ahead.runs.memory_class,
        held_price=NONE if ahead is None else ahead.price,
    )


def _wait_price(round_: Round, offered: OfferedTasks) -> Ints:
    """Return the price of waiting of each group's tasks, `[groups]`, for each of two arcs."""
    now, group, alpha3 = round_.now, round_.entitled.group, round_.prices.alpha3
    groups = len(round_.entitled.most)
    if alpha3 is None:
        return np.zeros(groups, np.int64)
    waiting = np.bincount(group, now.waiting.sum(axis=1), minlength=groups)
    read_bytes = offered.eligible_bytes(round_.tasks, group, groups)
    return wait_prices(
        read_bytes / np.maximum(waiting, 1),
        round_.snapshot.bandwidth,
        alpha3=alpha3,
        least=now.free.shape[1],
    )
