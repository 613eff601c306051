"""The nodes with most room first: where tasks start unless a policy says otherwise.

So a unit is on few nodes, and the last of them is the one with the least room that suffices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.part_book import runs_on_parts
from headgate.planning.place.part_places import PartPlaces
from headgate.planning.place.timetable import GpuCosts, Look, Timetable
from headgate.planning.times.reservations import TasksOnNode

Pick = Callable[[Ints, int], list[int]]
"""The nodes of so many tasks, given how many fit each; fewer if too few fit."""

TaskGpus = Callable[[int, int, float, int], Iterator[tuple[int, ...]]]
"""See `tightest_gpus`."""

Demands = Sequence[tuple[int, list[int]]]
"""Tasks (rows) by demand, as in `Unit.by_demand`."""


class Chosen(NamedTuple):
    """Places for the tasks of a unit."""

    gpus: Ints
    """Rows."""
    tasks: tuple[TasksOnNode, ...]


NOWHERE = Chosen(np.zeros(0, np.int64), ())


class _WholePlaces(NamedTuple):
    """Places for tasks on whole GPUs, their nodes (rows), and when they are free, as in a look."""

    table: Timetable
    demand: int
    node: Ints
    free_at: Floats
    gpus_free_at: Floats
    look: Look

    def take(self, nodes: list[int], by: float) -> Ints:
        """Return the GPUs (indices) of tasks on nodes, one entry per task, free by a time."""
        gpus, first = self.table.demands[self.demand].gpus, self.look.costs is not None
        found = self.table.latest(nodes, self.gpus_free_at, by, gpus, first=first)
        self.look.whole.append(found)
        return found


def most_room_first(room: Ints, count: int) -> list[int]:
    """Return the nodes of `count` tasks on few nodes, given how many fit each; fewer if too few.

    The roomiest nodes first; the last one is that with the least room that suffices.
    """
    some = (room > 0).nonzero()[0]
    order = some[np.argsort(-room[some], kind="stable")]
    most = np.minimum(room[order], count)
    missing = count - (np.cumsum(most) - most)  # when it is the turn of each
    enough = (room[order] >= missing).nonzero()[0]
    if not len(enough):
        return np.repeat(order, most).tolist()
    turn = enough[0]
    left = int(missing[turn])
    last = order[turn:][room[order[turn:]] >= left]
    node = int(last[room[last].argmin()])
    return [*np.repeat(order[:turn], most[:turn]).tolist(), *[node] * left]


def soonest_first(rows: Ints, at: Floats) -> Ints:
    """Return the order in which GPUs (rows), available at some times, are claimed (indices)."""
    del rows
    return np.argsort(at, kind="stable")


def tightest_gpus(
    table: Timetable, demand: int, node: int, run_s: float, places: int
) -> Iterator[tuple[int, ...]]:
    """Yield the best GPUs of a node for one task, and for the next once that is placed.

    For so many tasks, or as many as fit. Of whole GPUs the smallest, then those with the tightest
    window.
    """
    spec, ledger = table.demands[demand], table.scratch.ledger
    first = table.scratch.snapshot.nodes.first_gpu[node]
    if not spec.gpus:
        yield from repeat((), places)
    elif spec.in_part:
        order = ledger.tightest(node)
        room = np.minimum(table.parts_now(demand, run_s, first, first + len(order))[order], places)
        most = runs_on_parts(room, np.zeros_like(order), spec.gpus, 1)
        places = min(places, int(most[0]))
        slots = np.repeat(order, np.minimum(room, places))[: places * spec.gpus]
        for nth in range(places):  # so those of one task are different
            yield tuple(slots[nth::places].tolist())
    else:
        low, high = np.searchsorted(table.node, (node, node + 1))
        rows, memory = table.row[low:high], table.memory[low:high]
        usable = np.flatnonzero(table.usable_now(demand, rows, run_s))
        order = np.lexsort((rows[usable], table.reserved_from[rows[usable]], memory[usable]))
        chosen = (rows[usable[order]] - first).tolist()
        for end in range(spec.gpus, min(len(chosen), places * spec.gpus) + 1, spec.gpus):
            yield tuple(chosen[end - spec.gpus : end])


class Compact:
    """The default chooser; others use it for what they do not choose themselves.

    A choice costs O(GPUs x log).
    """

    claim_order = staticmethod(soonest_first)
    takes_first_fit = True

    def __init__(
        self, table: Timetable, pick: Pick = most_room_first, gpus: TaskGpus | None = None
    ) -> None:
        """Choose nodes by `pick`, and GPUs of a node by `gpus`."""
        self._table, self.pick = table, pick
        self.gpus = gpus or self._tightest

    def _tightest(
        self, demand: int, node: int, run_s: float, places: int
    ) -> Iterator[tuple[int, ...]]:
        return tightest_gpus(self._table, demand, node, run_s, places)

    def place(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand, none on nodes `used`; return whether all are placed.

        Each on another node, if they are to be `distinct`.
        """
        table = self._table
        room = table.room_now(demand, len(tasks), run_s, used, distinct=distinct)
        if table.demands[demand].in_part:  # the first nodes, so that others stay whole
            nodes = np.repeat(np.arange(len(room)), room).tolist()
        else:
            nodes = self.pick(room, len(tasks))
        return self.place_on(nodes, demand, tasks, run_s)

    def place_on(self, nodes: list[int], demand: int, tasks: list[int], run_s: float) -> bool:
        """Place tasks on nodes, one entry per task; return whether all are placed."""
        if len(nodes) < len(tasks):
            return False
        left = iter(tasks)
        for node, places in Counter(nodes[: len(tasks)]).items():
            for gpus in self.gpus(demand, node, run_s, places):
                if not self._table.scratch.place(next(left), node, gpus):
                    return False
        return next(left, None) is None

    def gpus_at(
        self,
        demands: Demands,
        at: float,
        run_s: float,
        *,
        distinct: bool,
        costs: GpuCosts | None = None,
    ) -> tuple[Chosen, float]:
        """Return places for tasks by demand, and when all of them are free, inf if never.

        If that is after `at` and there are reservations, which may then be in the way, there is no
        choice. With `costs`, these are used in place of times, and the cheapest are chosen.
        """
        table = self._table
        if costs is None:
            available = table.available(table.every, at, run_s)
        else:
            available = costs.gpu[table.row]
        if table.among is not None:
            available = np.where(table.among[table.node], available, math.inf)
        void = table.has_reservations and costs is None
        chosen, soonest = [np.zeros(0, np.int64)], at
        look, spots = Look(at, run_s, costs), list[TasksOnNode]()
        for left, (demand, count) in zip(range(len(demands))[::-1], counted(demands), strict=True):
            spec = table.demands[demand]
            if not spec.gpus:
                if costs is not None:  # they are no reason to stop a run
                    continue
                _, free_at = self._beside(demand, count, look, spots, distinct=distinct)
                soonest = max(soonest, nth_least(free_at, count))
                if math.isinf(soonest):
                    return NOWHERE, math.inf
                self.beside(demand, count, look, soonest, spots, distinct=distinct)
                continue
            places = self._places(demand, count, available, look, spots, distinct=distinct)
            soonest = max(soonest, nth_least(places.free_at, count))
            if math.isinf(soonest) or (void and soonest > at and not left):
                return NOWHERE, soonest
            nodes = self.pick(np.bincount(places.node[places.free_at <= soonest]), count)
            spots += self.spots(demand, nodes, look)
            chosen.append(places.take(nodes, soonest))
            available[chosen[-1]] = math.inf
        return Chosen(table.row[np.concatenate(chosen)], tuple(spots)), soonest

    def _places(
        self,
        demand: int,
        count: int,
        available: Floats,
        look: Look,
        spots: list[TasksOnNode],
        *,
        distinct: bool,
    ) -> _WholePlaces | PartPlaces:
        """Return the places of tasks on GPUs, beside other tasks of the unit on these `spots`."""
        table = self._table
        if table.demands[demand].in_part:
            return self.parts(demand, count, available, look, spots, distinct=distinct)
        fits = available
        if not (suits := table.suits(demand)[table.every]).all():
            fits = np.where(suits, available, math.inf)
        if distinct and spots:
            fits = fits.copy()
            fits[np.isin(table.node, [each.node for each in spots])] = math.inf
        node, free_at = table.places(demand, fits, 1 if distinct else count, look)
        return _WholePlaces(table, demand, node, free_at, fits, look)

    def parts(
        self,
        demand: int,
        count: int,
        available: Floats,
        look: Look,
        spots: Sequence[TasksOnNode],
        *,
        distinct: bool,
    ) -> PartPlaces:
        """Return the same of tasks on parts of GPUs."""
        table = self._table
        gpus = table.scratch.ledger.gpus
        is_open = table.suits(demand)[table.row] & (gpus.withheld.array()[table.row] == 0)
        if table.among is not None:
            is_open &= table.among[table.node]
        if distinct and spots:
            is_open &= ~np.isin(table.node, [each.node for each in spots])
        for whole in look.whole:
            is_open[whole] = False
        return PartPlaces(table, demand, 1 if distinct else count, available, is_open, look)

    def in_part(
        self,
        demand: int,
        count: int,
        available: Floats,
        look: Look,
        by: float,
        spots: list[TasksOnNode],
        *,
        distinct: bool,
    ) -> Ints | None:
        """Add places of tasks on parts of GPUs, free by a time; return the GPUs (indices).

        None if there are too few.
        """
        places = self.parts(demand, count, available, look, spots, distinct=distinct)
        room = np.bincount(places.node[places.free_at <= by])
        if room.sum() < count:
            return None
        nodes = self.pick(room, count)
        spots += self.spots(demand, nodes, look)
        return places.take(nodes, by)

    def spots(self, demand: int, nodes: Sequence[int], look: Look) -> list[TasksOnNode]:
        """Return tasks on nodes, one entry per task, and count in `look` what they take."""
        spots = [TasksOnNode(node, demand, count) for node, count in Counter(nodes).items()]
        for node, _, count in spots:
            look.take(node, self._table.scratch.snapshot.names.needs[demand], count)
        return spots

    def beside(
        self,
        demand: int,
        count: int,
        look: Look,
        by: float,
        spots: list[TasksOnNode],
        *,
        distinct: bool,
    ) -> bool:
        """Add places, free by a time, of tasks without GPUs; return whether there are enough."""
        node, free_at = self._beside(demand, count, look, spots, distinct=distinct)
        room = np.bincount(node[free_at <= by])
        if room.sum() < count:
            return False
        spots += self.spots(demand, self.pick(room, count), look)
        return True

    def _beside(
        self, demand: int, count: int, look: Look, spots: list[TasksOnNode], *, distinct: bool
    ) -> tuple[Ints, Floats]:
        """Return places of tasks without GPUs, and when they are free."""
        node, free_at = self._table.places_beside(demand, 1 if distinct else count, look)
        if distinct:
            free_at[np.isin(node, [each.node for each in spots])] = math.inf
        return node, free_at


def nth_least(values: Floats, n: int) -> float:
    """Return the n-th of the least values, inf if there are fewer."""
    return float(np.partition(values, n - 1)[n - 1]) if len(values) >= n else math.inf


def counted(demands: Demands) -> list[tuple[int, int]]:
    """Return the number of tasks of each demand."""
    return [(demand, len(tasks)) for demand, tasks in demands]
