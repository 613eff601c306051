"""What is booked of nodes ahead in a round: CPUs, memory and custom kinds.

What a node has free of a kind changes with time: runs leave theirs when they are expected to end,
reservations and claims take theirs from when they begin until they end. Amounts of a node are
alike, unlike its GPUs, so sums over what holds them suffice. A `Timetable` has one for all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.protocol import Start
from headgate.state import Scratch
from headgate.state.ledger import room_in
from headgate.state.moves import grants_of_moves

Needs = Sequence[tuple[int, int]]
"""Amounts by kind of resource, as `Names.needs` has them."""


class _Change(NamedTuple):
    """What is free more of a node from a time on, or less if `number` is negative."""

    at: float
    needs: Needs
    number: int


class _Kept(NamedTuple):
    """What a reservation takes of a node from a time to another."""

    at: float
    until: float
    needs: Needs
    number: int


class NodeBook:
    """The amounts of nodes over the time of one round."""

    def __init__(self, scratch: Scratch, end_at: Callable[[Ints], Floats], soonest: float) -> None:
        """Start from the runs of the scratch's snapshot, which end no sooner than `soonest`."""
        self._scratch, self._end_at, self._soonest = scratch, end_at, soonest
        self._needs = scratch.snapshot.names.needs
        self._kept: dict[int, list[_Kept]] = {}  # by node
        self._claims: dict[int, list[_Kept]] = {}  # by node
        self._claimed: dict[int, Ints] = {}  # what is claimed from now on, by kind: [nodes]
        self._starts: dict[int, list[_Change]] = {}  # what starts of this round leave, by node
        self._ends: dict[int, list[_Change]] = {}  # what runs leave, by node

    def keep(self, node: int, demand: int, count: int, at: float, until: float) -> None:
        """Book what so many tasks of a demand need of a node, from a time to another."""
        if self._needs[demand]:
            kept = _Kept(at, until, self._needs[demand], count)
            self._kept.setdefault(node, []).append(kept)

    def release(self) -> None:
        """End all that is booked ahead, but for claims."""
        self._kept.clear()

    def claim(self, nodes: Ints, demand: int, at: Floats, until: Floats) -> None:
        """Book what tasks of a demand need of nodes (rows), one each, as `Timetable.claim` does."""
        needs, now = self._needs[demand], self._scratch.snapshot.now
        for node, begin, end in zip(nodes.tolist(), at.tolist(), until.tolist(), strict=True):
            self._claims.setdefault(node, []).append(_Kept(begin, end, needs, 1))
        for kind, amount in needs:
            if kind not in self._claimed:
                self._claimed[kind] = np.zeros(len(self._scratch.ledger.nodes.alive), np.int64)
            np.add.at(self._claimed[kind], nodes[at <= now], amount)

    def unclaim(self) -> None:
        """End all claims."""
        self._claims.clear()
        self._claimed.clear()

    def unclaimed(self, kind: int) -> Ints:
        """Return how much of a kind is free now and not claimed, `[nodes]`."""
        free: Ints = self._scratch.ledger.nodes.free.kind(kind)
        if kind not in self._claimed:
            return free
        left: Ints = np.maximum(free - self._claimed[kind], 0)
        return left

    def use(self, starts: Iterable[Start], until: float) -> None:
        """Count what starts of this round hold, which the ledger has taken, as free at a time."""
        for start in starts:
            needs = self._needs[self._scratch.snapshot.tasks.demand[start.task]]
            if needs:
                self._starts.setdefault(start.node, []).append(_Change(until, needs, 1))

    def left_free(self, now: float, run_s: float) -> Mapping[int, Ints]:
        """Return what a unit that runs for `run_s` seconds must leave free of nodes, by kind.

        `[nodes]`: what is claimed from now on, and what reservations need within its time.
        """
        kept = dict(self.kept_within(now, run_s))
        for kind, amounts in self._claimed.items():
            kept[kind] = kept[kind] + amounts if kind in kept else amounts
        return kept

    def kept_within(self, now: float, run_s: float) -> Mapping[int, Ints]:
        """Return what a run of `run_s` seconds from now on must leave free of nodes, by kind.

        `[nodes]`: what reservations need that begin before its end, beyond what runs leave by then.
        O(nodes with reservations x (their reservations + runs)).
        """
        beside: dict[int, Ints] = {}
        end = now + run_s - SAME_INSTANT_S
        for node, kept in self._kept.items():
            for at in sorted({max(each.at, now) for each in kept if each.at < end}):
                for kind, amount in self._net(node, kept, at).items():
                    if kind not in beside:
                        beside[kind] = np.zeros(len(self._scratch.ledger.nodes.alive), np.int64)
                    beside[kind][node] = max(amount, beside[kind][node])
        return beside

    def _net(self, node: int, kept: Iterable[_Kept], at: float) -> dict[int, int]:
        """Return what reservations need of a node at a time, less what runs have left by then."""
        net: dict[int, int] = {}
        for each in kept:
            if each.at <= at < each.until:
                for kind, amount in each.needs:
                    net[kind] = net.get(kind, 0) + amount * each.number
        for change in self._left(node):
            if change.at <= at + SAME_INSTANT_S:
                for kind, amount in change.needs:
                    if kind in net:
                        net[kind] -= amount
        return net

    def is_kept(self, node: int) -> bool:
        """Return whether anything of a node is booked ahead."""
        return node in self._kept

    def kept_nodes(self) -> Ints:
        """Return the nodes (rows) of which anything is booked ahead."""
        return np.fromiter(self._kept, np.int64, len(self._kept))

    def room_at(
        self,
        demand: int,
        node: int,
        ordinal: Ints,
        *,
        at: float,
        run_s: float,
        taken: Mapping[int, int],
    ) -> Floats:
        """Return when a node has room for its n-th task of a demand, GPUs aside; inf for never.

        From a time `at` on, for a run of `run_s` seconds, beside the amounts `taken`, by kind.
        O((reservations + runs of the node) ^ 2).
        """
        changes = list(self._left(node))
        booked = (*self._kept.get(node, ()), *self._claims.get(node, ()))
        for each in booked:
            changes.append(_Change(each.at, each.needs, -each.number))
            changes.append(_Change(each.until, each.needs, each.number))
        needs = self._needs[demand]
        times, room = self._room(node, needs, changes, at, taken)
        if booked:  # else room only grows
            ends = np.searchsorted(times, times + run_s - SAME_INSTANT_S)
            room = np.array([room[n : max(end, n + 1)].min() for n, end in enumerate(ends)])
            room = np.maximum.accumulate(room)
        first = np.searchsorted(room, ordinal, side="right")
        found: Floats = np.append(times, np.inf)[first]
        return found

    def cost_of_room(
        self,
        demand: int,
        node: int,
        ordinal: Ints,
        of_tasks: Callable[[Ints], Floats],
        least: float,
    ) -> Floats:
        """Return what it costs that a node has room for its n-th task of a demand, GPUs aside.

        Runs are stopped for it, the cheapest first; inf if all of them leave too little.
        """
        changes = self._changes(node, of_tasks, least)
        costs, room = self._room(node, self._needs[demand], changes, 0.0, {})
        found: Floats = np.append(costs, np.inf)[np.searchsorted(room, ordinal, side="right")]
        return found

    def _room(
        self,
        node: int,
        needs: Needs,
        changes: Sequence[_Change],
        at: float,
        taken: Mapping[int, int],
    ) -> tuple[Floats, Ints]:
        """Return times from `at` on, ascending, and how many tasks with these needs fit from then.

        Until the next time.
        """
        when = np.array([change.at for change in changes])
        times = np.unique(np.append(np.maximum(when, at), at))
        times = times[np.isfinite(times)]
        past = np.searchsorted(times, np.maximum(when, at))
        free = self._scratch.ledger.nodes.free

        def free_then(kind: int) -> Ints:
            more = [dict(change.needs).get(kind, 0) * change.number for change in changes]
            steps = np.bincount(past, more, len(times) + 1)[: len(times)].astype(np.int64)
            amounts: Ints = free.at(node, kind) - taken.get(kind, 0) + np.cumsum(steps)
            return np.maximum(amounts, 0)

        return times, np.broadcast_to(room_in(needs, free_then), len(times))

    def _left(self, node: int) -> Iterable[_Change]:
        """Yield what runs, and starts of this round, leave when they end."""
        if node not in self._ends:
            self._ends[node] = self._changes(node, self._end_at, self._soonest)
        yield from self._ends[node]
        yield from self._starts.get(node, ())

    def _changes(
        self, node: int, of_tasks: Callable[[Ints], Floats], least: float
    ) -> list[_Change]:
        """Return what runs leave, by their values of `of_tasks`; `least` for those that move."""
        grants = self._scratch.snapshot.grants
        task = grants.task.array().astype(np.int64)
        here = np.flatnonzero((grants.node.array() == node) & (task >= 0))
        value = np.maximum(of_tasks(task[here]), least)
        value[np.isin(here, grants_of_moves(self._scratch.snapshot)[1])] = least
        order = np.argsort(value, kind="stable")
        rows = zip(value[order].tolist(), here[order].tolist(), strict=True)
        return [_Change(at, self._needs[grants.demand[row]], 1) for at, row in rows]


def room_over_time(
    scratch: Scratch, demand: int, most: int, left_s: Callable[[Ints], Floats]
) -> tuple[Ints, Floats]:
    """Return places of tasks of a demand, GPUs aside: their nodes (rows), and in how long each is.

    The first `most` of each node that may take runs of it: 0 for one that is free on the scratch,
    else the rest of the run that leaves it, by `left_s` of tasks (rows); inf for never.
    O(grants x log + nodes x most).
    """
    snapshot, ledger = scratch.snapshot, scratch.ledger
    needs, grants = snapshot.names.needs, snapshot.grants
    task = grants.task.array().astype(np.int64)
    some = np.flatnonzero(task >= 0)
    node, rest_s = grants.node.take(some).astype(np.int64), left_s(task[some])
    order = np.lexsort((rest_s, node))
    node, rest_s, demands = node[order], rest_s[order], grants.demand.take(some[order])
    first = np.searchsorted(node, node)  # of its node

    def free_then(kind: int) -> Ints:
        of_demand = np.array([dict(each).get(kind, 0) for each in needs], np.int64)
        left = np.cumsum(of_demand[demands])
        before = left[first] - of_demand[demands[first]]
        free: Ints = ledger.nodes.free.kind(kind)[node] + left - before
        return free

    nodes = np.flatnonzero(ledger.usable_nodes(demand))
    room_now = ledger.room(demand)[nodes]
    room = np.broadcast_to(room_in(needs[demand], free_then), len(node))
    places, when = np.repeat(nodes, most), np.empty((len(nodes), most))
    for ordinal in range(most):
        at = np.full(len(ledger.nodes.alive), np.inf)
        enough = np.flatnonzero(room > ordinal)[::-1]
        at[node[enough]] = rest_s[enough]  # the first of each node is written last
        when[:, ordinal] = np.where(room_now > ordinal, 0.0, at[nodes])
    return places, when.ravel()
