"""Stage 2 of a round: its min-cost flow problem, or how it differs from the last one's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.order import nth_of_equals
from headgate.base.rows import RowMap
from headgate.flow import Ints
from headgate.planning.census import Bools
from headgate.planning.shares import Floats
from headgate.policies.flow.eligible import Round, Tasks
from headgate.policies.flow.prices import wait_prices
from headgate.state import Changes, TaskState

NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """What is free, what waits, and what each thing costs; int64 arrays, prices in microseconds.

    A job (or several that are limited together, as one) places at most `most` of its tasks, and at
    least `least` where GPUs allow (always `most` unless `may_wait`); one that it might place but
    does not costs twice `wait_price`. A GPU that is held now, one of `held_node` and `held_class`,
    costs `held_price` besides: the wait until it is free. A byte that is read costs `per_byte`, by
    `Locality` (`planning.costs.shard_prices`); of what read r reads there are replicas on
    `replica_node[replica_first[r]:replica_first[r + 1]]`.

    Rows name tasks, jobs and GPUs from round to round.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by growing memory
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
    read_first: Ints  # [tasks + 1] where what each task reads begins: one row per shard
    read_bytes: Ints  # [reads]
    per_byte: Floats  # [3]
    replica_first: Ints  # [reads + 1]
    replica_node: Ints  # [replicas]
    job: Ints  # [jobs] rows
    most: Ints  # [jobs]
    least: Ints  # [jobs]
    wait_price: Ints  # [jobs]
    may_wait: bool
    held_gpu: Ints  # [held GPUs] rows, growing
    held_node: Ints  # [held GPUs]
    held_class: Ints  # [held GPUs]
    held_price: Ints  # [held GPUs]

    @property
    def slots(self) -> Ints:
        """GPUs that are free now or held, `[nodes, classes]`."""
        cells, classes = self.free.size, self.free.shape[1]
        held = np.bincount(self.held_node * classes + self.held_class, minlength=cells)
        slots: Ints = self.free + held.reshape(self.free.shape)
        return slots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """A problem that begins a line of problems, and the GPUs that are up, held or free."""

    problem: Problem
    up: Ints  # [nodes, classes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """What a problem differs in from the last one, on the same GPUs.

    The tasks of `problem` are those that are new to it or have other arcs now, `gone` are rows of
    tasks that have left; of all but tasks, `problem` has everything.
    """

    problem: Problem
    gone: Ints


class Offered:
    """The tasks in the problem, from round to round: the first ones of those that are alike.

    As many are offered as their group is entitled to. Who has been offered once stays until it
    waits no longer: beyond what its group may place, it only fills a pool.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.tasks = 0
        self._has = RowMap(0)  # by task
        self._count, self._bytes = RowMap(0), RowMap(0)  # by first task of those alike
        self._is_read = np.zeros(0, bool)  # by shard

    def has(self, tasks: Ints) -> Bools:
        """Return which tasks (rows) are offered."""
        has: Bools = self._has[tasks] > 0
        return has

    def more(self, tasks: Tasks, most: Ints, offered: Bools) -> Ints:
        """Return which tasks to offer besides those `offered`, as indices; `most` is by job."""
        able = np.flatnonzero(tasks.eligible & ~offered)
        room = most[tasks.job[able]] - self._count[tasks.alike[able]]
        able, room = able[room > 0], room[room > 0]
        return able[nth_of_equals(tasks.alike[able]) < room]

    def add(self, row: Ints, alike: Ints) -> None:
        """Offer tasks from now on."""
        self._has[row] = 1
        self._count.add(alike, 1)
        self.tasks += len(row)

    def remove(self, row: Ints, alike: Ints) -> None:
        """Offer tasks no longer."""
        self._has[row] = 0
        self._count.add(alike, -1)
        self.tasks -= len(row)

    def note_reads(self, alike: Ints, read_bytes: Ints, shards: Ints) -> None:
        """Take note of what tasks read, each together, and of the shards that it is."""
        self._bytes[alike] = read_bytes
        new = int(shards.max(initial=-1)) + 1 - len(self._is_read)
        if new > 0:
            self._is_read = np.concatenate([self._is_read, np.zeros(new, bool)])
        self._is_read[shards] = True

    def read_among(self, shards: Ints) -> Ints:
        """Return which of some shards, ascending, a task read that is or was offered."""
        known = shards[: np.searchsorted(shards, len(self._is_read))]
        return known[self._is_read[known]]

    def eligible_bytes(self, tasks: Tasks, group: Ints, groups: int) -> Floats:
        """Return what the eligible tasks of each group read together; `group` is by job."""
        able = np.flatnonzero(tasks.eligible)
        each = self._bytes[tasks.alike[able]]
        total = np.bincount(group[tasks.job[able]], each, minlength=groups)
        return total.astype(np.float64)


def pose(round_: Round, changes: Changes | None, offered: Offered) -> Whole | Change:
    """Return the problem of a round, as a change of the last one where that is worth it.

    `changes` are those since the round for which tasks were `offered`, if there is one.
    """
    change = None if changes is None else _change(round_, changes, offered)
    return change or whole(round_, offered)


def whole(round_: Round, offered: Offered) -> Whole:
    """Return the problem of a round with all tasks that it offers."""
    tasks, entitled, now = round_.tasks, round_.entitled, round_.now
    offered.clear()
    nothing = np.zeros(len(tasks.row), bool)
    new = offered.more(tasks, entitled.most[entitled.group], nothing)
    offered.add(tasks.row[new], tasks.alike[new])
    up = np.bincount(now.hardware.cell, minlength=now.free.size).reshape(now.free.shape)
    return Whole(problem=problem_of(round_, new, offered), up=up)


def _change(round_: Round, changes: Changes, offered: Offered) -> Change | None:
    """Return what the problem of a round differs in from the last one, None where that is much.

    None, too, where tasks are offered whose jobs are no longer placed by this policy.
    """
    tasks, entitled, snapshot = round_.tasks, round_.entitled, round_.snapshot
    there = changes.tasks[offered.has(changes.tasks)]
    gone = there[snapshot.tasks.state.take(there) != TaskState.WAITING]
    is_offered = offered.has(tasks.row)
    if np.count_nonzero(is_offered) + len(gone) != offered.tasks:
        return None
    before = offered.tasks
    offered.remove(gone, snapshot.tasks.task_group.take(gone).astype(np.int64))
    new = offered.more(tasks, entitled.most[entitled.group], is_offered)
    other = _with_other_reads(round_, changes, offered, np.flatnonzero(is_offered))
    if 2 * (len(new) + len(other)) > before:
        return None
    problem = problem_of(round_, np.sort(np.concatenate([new, other])), offered)
    offered.add(tasks.row[new], tasks.alike[new])
    return Change(problem=problem, gone=gone)


def _with_other_reads(round_: Round, changes: Changes, offered: Offered, still: Ints) -> Ints:
    """Return which of the tasks `still` offered read shards of other sizes or places now."""
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


def offered_problem(round_: Round, offered: Offered) -> Problem:
    """Return the problem of a round with all tasks that are offered, built from scratch."""
    return problem_of(round_, np.flatnonzero(offered.has(round_.tasks.row)), Offered())


def problem_of(round_: Round, tasks: Ints, offered: Offered) -> Problem:
    """Return the problem of a round with some tasks (indices); `offered` notes what they read.

    O(reads and replicas of these tasks + GPUs + jobs + tasks that wait).
    """
    snapshot, now, entitled = round_.snapshot, round_.now, round_.entitled
    ahead, row = round_.in_flight, now.task[tasks]
    read = snapshot.tasks.input.take(row).astype(np.int64)
    offsets, shard = snapshot.inputs.shards.flat(read)
    size_bytes = snapshot.shards.size_bytes.take(shard)
    replica_first, replica_node = snapshot.shards.replicas.flat(shard)
    read_bytes = np.diff(np.append(0, np.cumsum(size_bytes))[offsets])
    offered.note_reads(round_.tasks.alike[tasks], read_bytes, shard)
    return Problem(
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


def _wait_price(round_: Round, offered: Offered) -> Ints:
    """Return what waiting costs a task of each group, once on each of two arcs."""
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
