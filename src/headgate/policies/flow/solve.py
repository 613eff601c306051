"""Stage 3 of a round: the optimal flow of its problem, re-optimized from round to round.

    (cluster, class) ──► (rack, class) ──► (node, class)    class: GPUs of one memory and model

    pools, per group of jobs: excess tasks, waiting tasks; for all: displaced held GPUs

The problem is a laminar one: every task takes one place, a GPU or a pool of tasks without a GPU.
The options of a task are the cluster, racks and nodes (`options`) of each class that it accepts; a
larger class costs more, and so does one of a model that more tasks name. It may also stay without a
GPU, in a pool of its group; the solver leaves as few units as possible without any place. A GPU
that is held now is a unit as well: it occupies its node and is displaced at the price of the wait
until it is free. Where GPUs are reserved for later, each window of a class is a class of its own
(`windows`).

The places are those of all GPUs that are up, so that the next round differs only in its changes:
tasks added and removed, GPUs taken and freed, capacities, prices of waiting.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.rows import RowMap
from headgate.flow import Certificate, LaminarSolver, options_of, verify_laminar
from headgate.policies.flow.options import Options, around, task_options
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.problem import FlowProblem, FullProblem, ProblemChange
from headgate.policies.flow.windows import WINDOWS

CLASS_PRICE = 1
"""Microseconds per class that a GPU is larger than needed: breaks ties, keeps large ones free.

Of equal memory, classes of models that fewer tasks name count as smaller.
"""

_EXCESS_PRICE = -1
"""The price of a task above the `most` of its group: below that of any GPU, so it gets none."""

_UNLIMITED = 1 << 40  # capacity for all displaced GPUs

_SPARE_GROUPS = 16
"""Groups whose pools exist before they are needed: adding places is expensive."""


def solve(posed: FullProblem | ProblemChange, last: Flow | None) -> Flow:
    """Return the optimal flow of a problem: the last one, re-optimized, or a new one."""
    if isinstance(posed, FullProblem):
        return Flow(posed)
    assert last is not None
    last.change(posed.problem, posed.removed)
    return last


class Flow:
    """The optimal flow of a problem, then of the next one, and so on, while the same GPUs are up.

    Units are tasks and held GPUs; places are those of the tree, leaves first, then the pools.
    """

    def __init__(self, full: FullProblem) -> None:
        """Solve a problem from nothing."""
        problem = full.problem
        self._tree = _Tree(problem.node_rack, full.up)
        self._pools = _Pools(len(self._tree.parent), len(problem.job) + _SPARE_GROUPS)
        parent = np.concatenate([self._tree.parent, np.full(self._pools.places, -1)])
        self._capacity = np.zeros(len(parent), np.int64)
        self._capacity[self._pools.freed] = _UNLIMITED
        self.solver = LaminarSolver(parent, self._capacity)
        self._parent = parent
        self._unit, self._place, self._leaf = RowMap(), RowMap(), RowMap()  # of a task
        self._task = RowMap()  # of a unit; -1 for a held GPU
        self._held = np.zeros(0, bool)  # by GPU; below, its unit, and the price of its wait
        self._held_unit, self._held_price, self._held_kind = RowMap(), RowMap(), RowMap()
        self._windows = problem.windows
        self.changes = -1  # of the problem, since it was solved from nothing
        self.change(problem, np.zeros(0, np.int64))

    def change(self, problem: FlowProblem, removed: Ints) -> None:
        """Re-optimize for the next problem: without the tasks `removed`, with those of `problem`.

        A task that is a unit already gets its options in `problem`.
        """
        self.changes += 1
        self._remove(problem, removed)
        self._pools.assign(problem.job, self._add_pools)
        known = self._unit[problem.task] >= 0
        fresh = np.flatnonzero(~known)
        self._pools.count(problem.job[problem.task_job[fresh]], 1)
        capacity = self._capacities(problem)
        new_gpus = self._reprice(problem, capacity)
        self._set_capacities(capacity)
        self._add(problem, fresh, np.flatnonzero(known), new_gpus)
        self._outcome = self.solver.solve()
        self._record_moves()

    def _remove(self, problem: FlowProblem, removed: Ints) -> None:
        """Remove tasks, and GPUs that are no longer held, or not in the same window."""
        held = np.zeros(max(len(self._held), int(problem.held_gpu.max(initial=-1)) + 1), bool)
        held[problem.held_gpu] = True
        freed = np.flatnonzero(self._held & ~held[: len(self._held)])
        if self._windows > 1:
            moved = problem.held_gpu[self._held_kind[problem.held_gpu] != problem.held_kind]
            freed = np.concatenate([freed, moved[self._held_unit[moved] >= 0]])
        units = self._unit[removed]
        self.solver.remove(np.concatenate([units, self._held_unit[freed]]))
        self._unit[removed] = -1
        self._leaf[removed] = -1
        self._held_unit[freed] = -1
        self._held = held
        self._pools.count(self._pools.group_of(removed), -1)

    def _set_capacities(self, capacity: Ints) -> None:
        changed = np.flatnonzero(capacity != self._capacity)
        self.solver.set_capacity(changed, capacity[changed])
        self._capacity = capacity

    def _capacities(self, problem: FlowProblem) -> Ints:
        """Return the capacities of all places."""
        slots = problem.slots[self._tree.node, self._tree.kind]
        capacity = np.zeros(len(self._parent), np.int64)
        capacity[: len(slots)] = slots
        capacity[self._pools.freed] = _UNLIMITED
        offered = self._pools.offered
        slot = self._pools.slot_of(problem.job)
        placeable = np.zeros_like(offered)
        placeable[slot] = np.minimum(np.minimum(problem.most, offered[slot]), slots.sum())
        capacity[self._pools.excess(np.arange(len(offered)))] = offered - placeable
        if problem.may_wait:
            capacity[self._pools.waits(slot)] = np.maximum(placeable[slot] - problem.least, 0)
        return capacity

    def _reprice(self, problem: FlowProblem, capacity: Ints) -> Ints:
        """Set the prices of waiting in the solver; return the indices of held GPUs that are new."""
        gpu, price = problem.held_gpu, problem.held_price
        unit = self._held_unit[gpu]
        known = unit >= 0
        changed = known & (self._held_price[gpu] != price)
        self.solver.reprice(self._pools.freed, unit[changed], price[changed])
        self._held_price[gpu] = price
        if problem.may_wait:
            slot = self._pools.slot_of(problem.job)
            place = self._pools.waits(slot)
            stale = (self._pools.price[slot] != problem.wait_price) & (capacity[place] > 0)
            self.solver.reprice_all(place[stale], 2 * problem.wait_price[stale])
            self._pools.price[slot[stale]] = problem.wait_price[stale]
        return np.flatnonzero(~known)

    def _add(self, problem: FlowProblem, fresh: Ints, known: Ints, new_gpus: Ints) -> None:
        """Add held GPUs and tasks that are new; replace the options of known tasks.

        GPUs first: they then take their nodes without a search, and tasks displace them, which is
        several times faster than the reverse.
        """
        held = self.solver.add(*self._options_of_gpus(problem, new_gpus))
        self._task[held] = -1
        self._held_unit[problem.held_gpu[new_gpus]] = held
        self._held_kind[problem.held_gpu[new_gpus]] = problem.held_kind[new_gpus]
        options = self._options(problem, self._pools.price[self._pools.slot_of(problem.job)])
        if len(known):
            self.solver.replace(self._unit[problem.task[known]], *_some(options, known))
            options = _some(options, fresh)
        units = self.solver.add(*options)
        task = problem.task[fresh]
        self._unit[task] = units
        self._leaf[task] = -1
        self._task[units] = task
        self._pools.record(task, problem.job[problem.task_job[fresh]])

    def _options_of_gpus(self, problem: FlowProblem, held: Ints) -> Options:
        """Return the options of some held GPUs: to stay on the node, or to be displaced."""
        own = self._tree.places[problem.held_node[held], problem.held_kind[held]]
        place, cost = np.full((len(held), 2), self._pools.freed), np.zeros((len(held), 2), np.int64)
        place[:, 0], cost[:, 1] = own, problem.held_price[held]
        return 2 * np.arange(len(held) + 1), place.ravel(), cost.ravel()

    def _options(self, problem: FlowProblem, wait_price: Ints) -> Options:
        """Return the options of all tasks of a problem.

        `wait_price` is by group; a pool without capacity keeps its last price.
        """
        pools, width = self._pools, 1 + problem.may_wait
        slot = pools.slot_of(problem.job)[problem.task_job]
        place, cost = np.empty((2, len(slot), width), np.int64)
        place[:, 0], cost[:, 0] = pools.excess(slot), _EXCESS_PRICE
        if problem.may_wait:
            place[:, 1], cost[:, 1] = pools.waits(slot), 2 * wait_price[problem.task_job]
        return task_options(problem, self._tree.places, CLASS_PRICE, place, cost)

    def _add_pools(self, count: int) -> None:
        added = np.full(count, -1)
        self.solver.add_places(added, np.zeros(count, np.int64))
        self._parent = np.concatenate([self._parent, added])
        self._capacity = np.concatenate([self._capacity, np.zeros(count, np.int64)])

    def _record_moves(self) -> None:
        """Record the places of tasks that the solver has moved."""
        moved = self.solver.moved()
        task = self._task[moved]
        moved, task = moved[task >= 0], task[task >= 0]
        leaf = self.solver.leaf_of(moved)
        self._leaf[task] = np.where(leaf < len(self._tree.node), leaf, -1)
        self._place[task] = self.solver.place_of(moved)

    def placed(self, tasks: Ints) -> Placed:
        """Return which of `tasks` (rows) are placed; `Placed.task` are indices into `tasks`."""
        leaf = self._leaf[tasks]
        index = np.flatnonzero(leaf >= 0)
        leaf = self._by_age(self._place[tasks[index]], leaf[index])
        gpu_class, window = np.divmod(self._tree.kind[leaf], self._windows)
        return Placed(
            task=index,
            node=self._tree.node[leaf],
            gpu_class=gpu_class,
            window=window + (WINDOWS - self._windows),
            price=self.solver.cost_of(self._unit[tasks[index]]),
        )

    def _by_age(self, place: Ints, leaf: Ints) -> Ints:
        """Return the leaves of tasks; tasks placed in one rack or cluster take its nodes in order.

        This is as in a problem solved from nothing: otherwise a task would be sent to the same node
        in each round while it waits.
        """
        leaves = len(self._tree.node)
        guest = np.flatnonzero(place >= leaves)
        if len(guest):
            around, guests = place[guest], len(guest)
            order = np.sort(around * guests + np.arange(guests)) % guests
            leaf[guest[order]] = np.sort(around * leaves + leaf[guest]) % leaves
        return leaf

    def certificate(self, full: FlowProblem) -> Certificate:
        """Check the flow against its problem built from nothing: `full` has all tasks."""
        held, pools, capacity = (
            np.arange(len(full.held_gpu)),
            self._pools,
            self._capacities(full),
        )
        slot = pools.slot_of(full.job)
        is_open = capacity[pools.waits(slot)] > 0
        wait_price = np.where(is_open, full.wait_price, pools.price[slot])
        units = np.concatenate([self._held_unit[full.held_gpu], self._unit[full.task]])
        gpus, tasks = self._options_of_gpus(full, held), self._options(full, wait_price)
        offsets = np.concatenate([gpus[0], gpus[0][-1] + tasks[0][1:]])
        return verify_laminar(
            self._parent,
            capacity,
            offsets,
            np.concatenate([gpus[1], tasks[1]]),
            np.concatenate([gpus[2], tasks[2]]),
            self.solver.place_of(units),
            self.solver.leaf_of(units),
            self.solver.prices(),
        )

    def price_of_slot(self, node: int, gpu_class: int) -> int | None:
        """Return the cost of one GPU of a node and class less; None if one task less would start.

        Also None if the flow has no such GPU: multi-GPU units take it.
        The dual price of the leaf may differ: at a degenerate optimum, several prices are optimal.
        """
        leaf = self._tree.places[node, (gpu_class + 1) * self._windows - 1, None]
        room = self._capacity[leaf]
        if not room.all():
            return None
        self.solver.set_capacity(leaf, room - 1)
        without = self.solver.solve()
        self.solver.set_capacity(leaf, room)
        self.solver.solve()
        self._record_moves()
        if without.unplaced > self._outcome.unplaced:
            return None
        return without.cost - self._outcome.cost


class _Tree:
    """The places that have GPUs: nodes, then racks, then the whole cluster.

    `places` numbers them, `[nodes + racks + 1, kinds]`, -1 without a GPU of the kind; `node` and
    `kind` are those of each leaf.
    """

    def __init__(self, node_rack: Ints, up: Ints) -> None:
        nodes, has_gpus = len(up), around(up, node_rack) > 0
        row, of_kind = np.nonzero(has_gpus)
        self.places = np.full(has_gpus.shape, -1)
        self.places[row, of_kind] = np.arange(len(row))
        leaves, roots = np.searchsorted(row, (nodes, len(has_gpus) - 1))
        self.node, self.kind = row[:leaves], of_kind[:leaves]
        inner = self.places[-1, of_kind[leaves:roots]]
        self.parent = np.concatenate([
            self.places[nodes + node_rack[self.node], self.kind],
            inner,
            np.full(len(row) - roots, -1),
        ])  # fmt: skip


class _Pools:
    """The pools of units without a GPU: `freed` for displaced GPUs, two for each group of jobs.

    The tasks of a group above its `most`, or above the number of GPUs, are excess; of the others,
    all but `least` may wait. A group has its pools while it has units; then they are reassigned.
    `offered` counts the units of each pair of pools, `price` is the price of waiting last set in
    the solver.
    """

    def __init__(self, first: int, groups: int) -> None:
        self.freed = first
        self._slot, self._group = RowMap(), RowMap()  # of a group; of a task
        self._owner = np.full(groups, -1)
        self.offered = np.zeros(groups, np.int64)
        self.price = np.zeros(groups, np.int64)

    @property
    def places(self) -> int:
        """The number of places."""
        return 1 + 2 * len(self._owner)

    def excess(self, slot: Ints) -> Ints:
        """Return the pools of excess tasks."""
        return self.freed + 1 + 2 * slot

    def waits(self, slot: Ints) -> Ints:
        """Return the pools of waiting tasks."""
        return self.freed + 2 + 2 * slot

    def slot_of(self, groups: Ints) -> Ints:
        """Return the pairs of pools of groups."""
        return self._slot[groups]

    def group_of(self, tasks: Ints) -> Ints:
        """Return the groups of tasks that are, or were, units."""
        return self._group[tasks]

    def record(self, tasks: Ints, groups: Ints) -> None:
        """Record the groups of tasks."""
        self._group[tasks] = groups

    def count(self, groups: Ints, step: int) -> None:
        """Add `step` to the counts of units, for each entry of `groups`."""
        slot = self._slot[groups]
        self.offered += step * np.bincount(slot, minlength=len(self.offered))

    def assign(self, groups: Ints, add_places: Callable[[int], None]) -> None:
        """Assign pools to groups without any: those of groups that have ended, or new ones."""
        new = groups[self._slot[groups] < 0]
        if not len(new):
            return
        in_use = np.zeros(len(self._owner), bool)
        in_use[self._slot[groups[self._slot[groups] >= 0]]] = True
        left = np.flatnonzero(~in_use & (self.offered == 0))
        if len(left) < len(new):
            more = len(new) - len(left) + len(self._owner) // 4
            left = np.concatenate([left, len(self._owner) + np.arange(more)])
            self._owner = np.concatenate([self._owner, np.full(more, -1)])
            self.offered = np.concatenate([self.offered, np.zeros(more, np.int64)])
            self.price = np.concatenate([self.price, np.zeros(more, np.int64)])
            add_places(2 * more)
        slot = left[: len(new)]
        former = self._owner[slot]
        self._slot[former[former >= 0]] = -1
        self._slot[new], self._owner[slot] = slot, new


def _some(options: Options, units: Ints) -> Options:
    """Return the options of some units."""
    offsets, place, cost = options
    chosen, rows = options_of(offsets, units)
    return chosen, place[rows], cost[rows]
