"""A round as a laminar problem: every task in one place, GPUs or a pool of those that have none.

    (cluster, class) ──► (rack, class) ──► (node, class)    class: GPUs of one memory size

    pools, per group of jobs: not asked for, waiting; for all: freed early

A task may go to the cluster, to racks and to nodes (`aggregated.options`) of each class that it
fits; the larger the class, the dearer. It may also stay without a GPU, in a pool of its group; the
solver leaves as few as possible without any place. A GPU that is held now is a unit as well: it
sits on its node, and gives way for the price of the wait until it is free.

The places are those of all GPUs that are up, so that the next round differs in what has changed:
tasks that went or came, GPUs that were taken or freed, capacities, prices of waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.base.rows import RowMap
from headgate.flow import (
    Certificate,
    Ints,
    LaminarSolver,
    options_of,
    verify_laminar,
)
from headgate.planning.census import Bools
from headgate.policies.flow.aggregated import Placed, Round, around, options

CLASS_PRICE = 1
"""Microseconds per class that a GPU is larger than needed: breaks ties, keeps large ones free."""

_NOT_ASKED = -1
"""The price of a task beyond the `most` of its group: below that of any GPU, so no GPU gets it."""

_ENDLESS = 1 << 40  # room for all GPUs that give way

_SPARE = 16
"""Pools for so many groups are there before they are needed: places join at a price."""

Ways = tuple[Ints, Ints, Ints]
"""Offsets `[units + 1]`, places and costs of options: what some units may take."""


class LaminarRound:
    """A round, solved, and the next one, and so on, while the same GPUs are up.

    Units are tasks and held GPUs; places are those of the tree, leaves first, then the pools.
    """

    def __init__(self, round_: Round, up: Ints) -> None:
        """Solve a first round, which has all its tasks; `up` are all GPUs, `[nodes, classes]`."""
        self._tree = _Tree(round_.node_rack, up)
        self._pools = _Pools(len(self._tree.parent), len(round_.job) + _SPARE)
        parent = np.concatenate([self._tree.parent, np.full(self._pools.places, -1)])
        self._capacity = np.zeros(len(parent), np.int64)
        self._capacity[self._pools.freed] = _ENDLESS
        self.solver = LaminarSolver(parent, self._capacity)
        self._parent = parent
        self._unit, self._place, self._leaf = RowMap(), RowMap(), RowMap()  # of a task
        self._task = RowMap()  # of a unit; -1 for a held GPU
        self._held = np.zeros(0, bool)  # by GPU, and its unit, and the wait that it costs
        self._held_unit, self._held_price = RowMap(), RowMap()
        self.next(round_, np.zeros(0, np.int64))

    @property
    def units(self) -> int:
        """How many tasks are units."""
        return int(self._pools.offered.sum())

    def has(self, tasks: Ints) -> Bools:
        """Return whether tasks (rows) are units."""
        has: Bools = self._unit[tasks] >= 0
        return has

    def next(self, round_: Round, gone: Ints) -> None:
        """Solve the round that follows: without the tasks `gone`, with those of `round_` besides.

        A task that is a unit already gets the options that it has in `round_`.
        """
        self._remove(round_, gone)
        self._pools.seat(round_.job, self._add_pools)
        known = self.has(round_.task)
        fresh = np.flatnonzero(~known)
        self._pools.count(round_.job[round_.task_job[fresh]], 1)
        capacity = self._capacities(round_)
        new_gpus = self._reprice(round_, capacity)
        self._set_capacities(capacity)
        self._add(round_, fresh, np.flatnonzero(known), new_gpus)
        self.round = round_
        self._outcome = self.solver.solve()
        self._follow()

    def _remove(self, round_: Round, gone: Ints) -> None:
        """Take tasks away that went, and GPUs that are held no longer."""
        held = np.zeros(max(len(self._held), int(round_.later_gpu.max(initial=-1)) + 1), bool)
        held[round_.later_gpu] = True
        freed = np.flatnonzero(self._held & ~held[: len(self._held)])
        units = self._unit[gone]
        self.solver.remove(np.concatenate([units, self._held_unit[freed]]))
        self._unit[gone] = -1
        self._leaf[gone] = -1
        self._held_unit[freed] = -1
        self._held = held
        self._pools.count(self._pools.group_of(gone), -1)

    def _set_capacities(self, capacity: Ints) -> None:
        changed = np.flatnonzero(capacity != self._capacity)
        self.solver.set_capacity(changed, capacity[changed])
        self._capacity = capacity

    def _capacities(self, round_: Round) -> Ints:
        """Return what places have room for."""
        slots = round_.slots[self._tree.node, self._tree.kind]
        capacity = np.zeros(len(self._parent), np.int64)
        capacity[: len(slots)] = slots
        capacity[self._pools.freed] = _ENDLESS
        offered = self._pools.offered
        slot = self._pools.slot_of(round_.job)
        asked = np.zeros_like(offered)
        asked[slot] = np.minimum(np.minimum(round_.most, offered[slot]), slots.sum())
        capacity[self._pools.beyond(np.arange(len(offered)))] = offered - asked
        if round_.may_wait:
            capacity[self._pools.waits(slot)] = np.maximum(asked[slot] - round_.least, 0)
        return capacity

    def _reprice(self, round_: Round, capacity: Ints) -> Ints:
        """Tell what waiting costs now; return which held GPUs are new, as indices."""
        gpu, price = round_.later_gpu, round_.later_price
        unit = self._held_unit[gpu]
        known = unit >= 0
        changed = known & (self._held_price[gpu] != price)
        self.solver.reprice(self._pools.freed, unit[changed], price[changed])
        self._held_price[gpu] = price
        if round_.may_wait:
            slot = self._pools.slot_of(round_.job)
            place = self._pools.waits(slot)
            stale = (self._pools.price[slot] != round_.wait_price) & (capacity[place] > 0)
            self.solver.reprice_all(place[stale], 2 * round_.wait_price[stale])
            self._pools.price[slot[stale]] = round_.wait_price[stale]
        return np.flatnonzero(~known)

    def _add(self, round_: Round, fresh: Ints, known: Ints, new_gpus: Ints) -> None:
        """Add held GPUs and tasks that are new; give tasks that are known their new options.

        GPUs first: so they find their nodes empty, and tasks find them there, which is several
        times less to search.
        """
        held = self.solver.add(*self._options_of_gpus(round_, new_gpus))
        self._task[held] = -1
        self._held_unit[round_.later_gpu[new_gpus]] = held
        ways = self._options(round_, self._pools.price[self._pools.slot_of(round_.job)])
        if len(known):
            self.solver.replace(self._unit[round_.task[known]], *_some(ways, known))
            ways = _some(ways, fresh)
        units = self.solver.add(*ways)
        task = round_.task[fresh]
        self._unit[task] = units
        self._leaf[task] = -1
        self._task[units] = task
        self._pools.note(task, round_.job[round_.task_job[fresh]])

    def _options_of_gpus(self, round_: Round, held: Ints) -> Ways:
        """Return the options of some held GPUs of a round: to stay, or to give way."""
        own = self._tree.at[round_.later_node[held], round_.later_class[held]]
        place, cost = np.full((len(held), 2), self._pools.freed), np.zeros((len(held), 2), np.int64)
        place[:, 0], cost[:, 1] = own, round_.later_price[held]
        return 2 * np.arange(len(held) + 1), place.ravel(), cost.ravel()

    def _options(self, round_: Round, wait_price: Ints) -> Ways:
        """Return the options of all tasks of a round.

        `wait_price` is by group; a pool that is closed keeps the price that it had last.
        """
        pools, wide = self._pools, 1 + round_.may_wait
        slot = pools.slot_of(round_.job)[round_.task_job]
        place, cost = np.empty((2, len(slot), wide), np.int64)
        place[:, 0], cost[:, 0] = pools.beyond(slot), _NOT_ASKED
        if round_.may_wait:
            place[:, 1], cost[:, 1] = pools.waits(slot), 2 * wait_price[round_.task_job]
        return options(round_, self._tree.at, CLASS_PRICE, place, cost)

    def _add_pools(self, count: int) -> None:
        added = np.full(count, -1)
        self.solver.add_places(added, np.zeros(count, np.int64))
        self._parent = np.concatenate([self._parent, added])
        self._capacity = np.concatenate([self._capacity, np.zeros(count, np.int64)])

    def _follow(self) -> None:
        """Note where tasks are that have moved."""
        moved = self.solver.moved()
        task = self._task[moved]
        moved, task = moved[task >= 0], task[task >= 0]
        leaf = self.solver.leaf_of(moved)
        self._leaf[task] = np.where(leaf < len(self._tree.node), leaf, -1)
        self._place[task] = self.solver.place_of(moved)

    def placed(self, tasks: Ints) -> Placed:
        """Return who is placed where; tasks are given as rows, and told by their index there."""
        leaf = self._leaf[tasks]
        index = np.flatnonzero(leaf >= 0)
        leaf = self._in_line(self._place[tasks[index]], leaf[index])
        return Placed(
            task=index,
            node=self._tree.node[leaf],
            kind=self._tree.kind[leaf],
            price=self.solver.cost_of(self._unit[tasks[index]]),
        )

    def _in_line(self, place: Ints, leaf: Ints) -> Ints:
        """Return the leaves of tasks, dealt anew among those that went through one rack or hub.

        First come, first nodes, as in a round that follows no other: else a task would wait for the
        same node as long as it waits.
        """
        leaves = len(self._tree.node)
        guest = np.flatnonzero(place >= leaves)
        if len(guest):
            around, guests = place[guest], len(guest)
            order = np.sort(around * guests + np.arange(guests)) % guests
            leaf[guest[order]] = np.sort(around * leaves + leaf[guest]) % leaves
        return leaf

    def certificate(self, whole: Round) -> Certificate:
        """Check the plan against this round built anew: `whole` has all its tasks."""
        held, pools, capacity = (
            np.arange(len(whole.later_gpu)),
            self._pools,
            self._capacities(whole),
        )
        slot = pools.slot_of(whole.job)
        is_open = capacity[pools.waits(slot)] > 0
        wait_price = np.where(is_open, whole.wait_price, pools.price[slot])
        units = np.concatenate([self._held_unit[whole.later_gpu], self._unit[whole.task]])
        gpus, tasks = self._options_of_gpus(whole, held), self._options(whole, wait_price)
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

    def price_of_slot(self, node: int, kind: int) -> int | None:
        """Return what is lost with one GPU of a node and class less; None for a task's run.

        The price of the leaf need not be it: where the optimum is degenerate, several are true.
        """
        leaf = self._tree.at[node, kind, None]
        room = self._capacity[leaf]
        self.solver.set_capacity(leaf, room - 1)
        without = self.solver.solve()
        self.solver.set_capacity(leaf, room)
        self.solver.solve()
        self._follow()
        if without.unplaced > self._outcome.unplaced:
            return None
        return without.cost - self._outcome.cost


class _Tree:
    """The places that have GPUs: nodes, then racks, then the whole cluster.

    `at` numbers them, `[nodes + racks + 1, classes]`, -1 where there is no GPU of the class; `node`
    and `kind` tell what a leaf is.
    """

    def __init__(self, node_rack: Ints, up: Ints) -> None:
        nodes, there = len(up), around(up, node_rack) > 0
        row, kind = np.nonzero(there)
        self.at = np.full(there.shape, -1)
        self.at[row, kind] = np.arange(len(row))
        leaves, roots = np.searchsorted(row, (nodes, len(there) - 1))
        self.node, self.kind = row[:leaves], kind[:leaves]
        inner = self.at[-1, kind[leaves:roots]]
        self.parent = np.concatenate([
            self.at[nodes + node_rack[self.node], self.kind],
            inner,
            np.full(len(row) - roots, -1),
        ])  # fmt: skip


class _Pools:
    """Where units are that have no GPU: `freed` for GPUs that give way, two for each group.

    Of the tasks of a group, those beyond its `most`, or beyond the GPUs there are, are not asked
    for; of the others, all but `least` may wait. A group has its pools while it has units; then
    another one may have them. `offered` counts the units of each pair of pools, `price` is what
    waiting cost there when it was last told.
    """

    def __init__(self, first: int, groups: int) -> None:
        self.freed = first
        self._slot, self._group = RowMap(), RowMap()  # of a group; of a task
        self._owner = np.full(groups, -1)
        self.offered = np.zeros(groups, np.int64)
        self.price = np.zeros(groups, np.int64)

    @property
    def places(self) -> int:
        """How many places these are."""
        return 1 + 2 * len(self._owner)

    def beyond(self, slot: Ints) -> Ints:
        """Return the pools of those not asked for."""
        return self.freed + 1 + 2 * slot

    def waits(self, slot: Ints) -> Ints:
        """Return the pools of those that wait."""
        return self.freed + 2 + 2 * slot

    def slot_of(self, groups: Ints) -> Ints:
        """Return which pair of pools groups have."""
        return self._slot[groups]

    def group_of(self, tasks: Ints) -> Ints:
        """Return the groups of tasks that are, or were, units."""
        return self._group[tasks]

    def note(self, tasks: Ints, groups: Ints) -> None:
        """Remember whose tasks these are."""
        self._group[tasks] = groups

    def count(self, groups: Ints, step: int) -> None:
        """Count units that came or went."""
        slot = self._slot[groups]
        self.offered += step * np.bincount(slot, minlength=len(self.offered))

    def seat(self, groups: Ints, add_places: Callable[[int], None]) -> None:
        """Give pools to groups that have none: those of groups that are gone, or new ones."""
        new = groups[self._slot[groups] < 0]
        if not len(new):
            return
        here = np.zeros(len(self._owner), bool)
        here[self._slot[groups[self._slot[groups] >= 0]]] = True
        left = np.flatnonzero(~here & (self.offered == 0))
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


def _some(ways: Ways, units: Ints) -> Ways:
    """Return the options of some units."""
    offsets, place, cost = ways
    chosen, at = options_of(offsets, units)
    return chosen, place[at], cost[at]
