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

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from headgate.flow import (
    Certificate,
    Ints,
    LaminarSolver,
    OptionsPart,
    joined_options,
    options_of,
    verify_laminar,
)
from headgate.policies.flow.aggregated import Options, Placed, Round, options
from headgate.policies.flow.rowmap import RowMap

CLASS_PRICE = 1
"""Microseconds per class that a GPU is larger than needed: breaks ties, keeps large ones free."""

_NOT_ASKED = -1
"""The price of a task beyond the `most` of its group: below that of any GPU, so no GPU gets it."""

_ENDLESS = 1 << 40  # room for all GPUs that give way

_SPARE = 16
"""Pools for so many groups are there before they are needed: places join at a price."""

Flags = NDArray[np.bool_]

Ways = tuple[Ints, Ints, Ints]
"""Unit, place and cost of some options; units ascend."""


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

    def has(self, tasks: Ints) -> Flags:
        """Return whether tasks (rows) are units."""
        has: Flags = self._unit[tasks] >= 0
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
        """Add tasks and held GPUs that are new; give tasks that are known their new options."""
        price = self._pools.price[self._pools.slot_of(round_.job)]
        offsets, place, cost = self._options(round_, new_gpus, price)
        gpus = len(new_gpus)
        if len(known):
            of_known = _some(offsets, place, cost, gpus + known)
            self.solver.replace(self._unit[round_.task[known]], *of_known)
            new = np.concatenate([np.arange(gpus), gpus + fresh])
            offsets, place, cost = _some(offsets, place, cost, new)
        units = self.solver.add(offsets, place, cost)
        task = round_.task[fresh]
        self._unit[task] = units[gpus:]
        self._leaf[task] = -1
        self._task[units[gpus:]] = task
        self._task[units[:gpus]] = -1
        self._held_unit[round_.later_gpu[new_gpus]] = units[:gpus]
        self._pools.note(task, round_.job[round_.task_job[fresh]])

    def _options(self, round_: Round, held: Ints, wait_price: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the options of some held GPUs of a round and of all its tasks, in this order.

        So GPUs find their nodes empty, and tasks find them there: several times less to search.
        `wait_price` is by group; a pool that is closed keeps the price that it had last.
        """
        tree, pools = self._tree, self._pools
        tasks, units = len(round_.task), len(held) + len(round_.task)
        gpu, every = np.arange(len(held)), len(held) + np.arange(tasks)
        slot = pools.slot_of(round_.job)[round_.task_job]
        own = tree.at[0][round_.later_node[held], round_.later_class[held]]
        ways = [
            *(
                way
                for option, at in zip(options(round_), tree.at, strict=True)
                for way in _to_gpus(option, at, round_.task_class[option.task], len(held))
            ),
            (every, pools.beyond(slot), np.full(tasks, _NOT_ASKED)),
            (gpu, own, np.zeros(len(held), np.int64)),
            (gpu, np.full(len(held), pools.freed), round_.later_price[held]),
        ]
        if round_.may_wait:
            ways.append((every, pools.waits(slot), 2 * wait_price[round_.task_job]))
        return joined_options(
            units,
            [
                OptionsPart(np.bincount(unit, minlength=units), to, price)
                for unit, to, price in ways
            ],
        )

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
        return verify_laminar(
            self._parent,
            capacity,
            *self._options(whole, held, wait_price),
            self.solver.place_of(units),
            self.solver.leaf_of(units),
            self.solver.prices(),
        )

    def price_of_slot(self, node: int, kind: int) -> int | None:
        """Return what is lost with one GPU of a node and class less; None for a task's run.

        The price of the leaf need not be it: where the optimum is degenerate, several are true.
        """
        leaf = self._tree.at[0][node, kind, None]
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

    `at` has a table of numbers per level, `[places of the level, classes]`, -1 where there is no
    GPU of the class; `node` and `kind` tell what a leaf is.
    """

    def __init__(self, node_rack: Ints, up: Ints) -> None:
        in_rack = np.zeros((int(node_rack.max(initial=-1)) + 1, up.shape[1]), np.int64)
        np.add.at(in_rack, node_rack, up)
        in_all = in_rack.sum(axis=0, keepdims=True)
        self.node, self.kind = np.nonzero(up)
        _, rack_kind = np.nonzero(in_rack)
        nodes = _numbered(up, 0)
        racks = _numbered(in_rack, len(self.node))
        hubs = _numbered(in_all, len(self.node) + len(rack_kind))
        self.at = (nodes, racks, hubs)
        self.parent = np.concatenate([
            racks[node_rack[self.node], self.kind],
            hubs[0, rack_kind],
            np.full(np.count_nonzero(in_all), -1),
        ])  # fmt: skip


def _numbered(gpus: Ints, first: int) -> Ints:
    table = np.full(gpus.shape, -1, np.int64)
    table[gpus > 0] = first + np.arange(np.count_nonzero(gpus))
    return table


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


def _to_gpus(option: Options, at: Ints, smallest: Ints, first: int) -> Iterator[Ways]:
    """Yield those to each class that a task fits and that is there; `first` is the first task."""
    for kind in range(at.shape[1]):
        place = at[:, kind][option.place]
        row = np.flatnonzero((place >= 0) & (smallest <= kind))
        price = option.price[row] + CLASS_PRICE * (kind - smallest[row])
        yield first + option.task[row], place[row], price


def _some(offsets: Ints, place: Ints, cost: Ints, units: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the options of some units."""
    chosen, at = options_of(offsets, units)
    return chosen, place[at], cost[at]
