"""The sets of nodes on which units end soonest, by their links.

A unit that communicates costs its wait plus its run time x the slowdown of a set, and the time that
its neighbours lose there (`headgate.planning.links.costs`). Sets are the smallest parts of the
topology that have room: now, and at later times at which runs are expected to end. Any other unit
gets the tightest set, of least diameter, so that units of many tasks still find room; it never
waits for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.planning.links.costs import NO_SLOWER, LinkCost, LinkCosts
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.compact import most_room_first, tightest_gpus
from headgate.planning.place.choose.on_cluster import ClusterPlacer, Layouts, Usable, layouts_of
from headgate.planning.place.choose.packed import Packed
from headgate.planning.place.choose.whole_units import WholeUnits
from headgate.planning.place.timetable import Timetable
from headgate.planning.times.reservations import Reservation
from headgate.planning.topology.layout import Request
from headgate.planning.units.unit import Unit
from headgate.state.ledger import runs_in

_SETS = 6  # of nodes, tried at each time
_TIMES = 24  # at which runs end, tried for sets that are not free now


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choice:
    """GPUs (rows) for a unit on some nodes, and what they cost."""

    nodes: Bools
    gpus: Ints
    leaves: Ints
    cost: LinkCost


class LinkWeigher:
    """Weighs sets of nodes for units that communicate; as many queries as sets and times are tried.

    All other units start and are reserved by the chooser alone.
    """

    def __init__(self, table: Timetable, units: WholeUnits) -> None:
        """Place units by `units`, each among the nodes of a set."""
        self._table, self._units = table, units
        self._links = LinkCosts(table.scratch, table.end_at)
        self._found: tuple[Unit, _Choice] | None = None  # for the unit that was weighed last

    @cached_property
    def _layouts(self) -> Layouts:
        return layouts_of(self._table.scratch.snapshot)

    def matters(self, unit: Unit) -> bool:
        """Return whether links matter to a unit, which may use any node now."""
        return self._table.among is None and self._links.matter(unit)

    def start(self, unit: Unit, run_s: float) -> bool:
        """Place a unit to which links matter on the set, free now, on which it ends first."""
        known, self._found = self._found, None
        best = known[1] if known is not None and known[0] is unit else None
        if best is None:
            best = self._best_now(unit, run_s, run_s)
        if best is None:  # tasks of several demands may fit on all nodes
            return len(set(unit.demands)) > 1 and self._units.start(unit, run_s)
        with self._table.only(best.nodes):
            started = self._units.start(unit, run_s * best.cost.slowdown)
        if started:
            self._links.add(unit, best.leaves, best.cost.ends_at)
        return started

    def better(self, unit: Unit, run_s: float, expected_s: float) -> Reservation | None:
        """Return the set that a unit waits for though it fits now, as it ends sooner there.

        `run_s` bounds its run time at slowdown 1; none if the `expected_s` are unknown.
        """
        if not math.isfinite(expected_s) or not self._links.matter(unit):
            return None
        self._table.kept_only = False
        best = self._best_now(unit, run_s, expected_s)
        if best is None:
            return None
        later = None
        if not best.cost.is_least:
            later = self._best_later(unit, expected_s, best.cost.paid_at - SAME_INSTANT_S)
        if later is None:
            self._found = unit, best
            return None
        spread = self._links.spread(best.leaves, later.leaves, best.cost.rate)
        return Reservation(unit=unit, at=later.cost.at, gpus=later.gpus, spread=spread)

    def run_s_on(self, reservation: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds at slowdown 1 takes as reserved."""
        if not math.isfinite(run_s) or not self._links.matter(reservation.unit):
            return run_s
        leaves = self._links.leaves(reservation.gpus)
        return (
            self._links.cost(reservation.unit, leaves, reservation.at, run_s).ends_at
            - reservation.at
        )

    def sooner(self, first: Reservation, run_s: float) -> Reservation:
        """Return the reservation with which a unit ends soonest, or if unknown, starts so.

        `first` is the one with which it starts soonest.
        """
        unit, work_s = first.unit, run_s if math.isfinite(run_s) else 0.0
        leaves = self._links.leaves(first.gpus)
        cost = self._links.cost(unit, leaves, first.at, work_s)
        if first.at <= self._table.now or cost.is_least:
            return first
        before = cost.paid_at if work_s else first.at + 2 * SAME_INSTANT_S
        later = self._best_later(unit, run_s, before)
        if later is None or (later.cost.rate >= cost.rate and not work_s):
            return first
        return replace(first, at=later.cost.at, gpus=later.gpus)

    # --- sets ----------------------------------------------------------------------------------

    def _best_now(self, unit: Unit, run_s: float, expected_s: float) -> _Choice | None:
        """Return the set of those free now on which a unit ends soonest."""
        demand, tasks = unit.by_demand(self._table.scratch.snapshot)[0]
        distinct, work_s = unit.distinct_nodes, expected_s if math.isfinite(expected_s) else 0.0
        room = self._table.room_now(demand, len(tasks), run_s, set(), distinct=distinct)
        best: _Choice | None = None
        for nodes in self._sets(room, len(tasks)):
            choice = self._tried(unit, run_s, work_s, nodes)
            if choice is None:
                continue
            late_s = run_s * choice.cost.slowdown
            if choice.cost.slowdown > NO_SLOWER and not self._ends_in_time(choice, late_s):
                choice = self._tried(unit, late_s, work_s, nodes)
                if choice is None:
                    continue
            price, least = choice.cost, None if best is None else best.cost
            if least is None or (price.paid_at, price.rate) < (least.paid_at, least.rate):
                best = choice
            if best is not None and best.cost.is_least:
                break
        return best

    def _ends_in_time(self, choice: _Choice, run_s: float) -> bool:
        return bool(self._table.in_time(choice.gpus, self._table.now, run_s).all())

    def _tried(self, unit: Unit, run_s: float, work_s: float, nodes: Bools) -> _Choice | None:
        """Return the choice of a unit that starts now on some nodes, if it fits."""
        scratch = self._table.scratch
        with self._table.only(nodes), scratch.trial():
            before = len(scratch.starts)
            rows = self._units.place(unit, run_s)
            leaves = self._links.leaves_of(scratch.starts[before:])
        if rows is None:
            return None
        cost = self._links.cost(unit, leaves, self._table.now, work_s)
        return _Choice(nodes=nodes, gpus=np.array(rows, np.int64), leaves=leaves, cost=cost)

    def _best_later(self, unit: Unit, run_s: float, before: float) -> _Choice | None:
        """Return the set, free later, on which a unit ends soonest, if it ends `before` a time."""
        demand, tasks = unit.by_demand(self._table.scratch.snapshot)[0]
        best: _Choice | None = None
        work_s = run_s if math.isfinite(run_s) else 0.0
        known = set[bytes]()
        for at, room in self._rooms(unit, demand, len(tasks), run_s, before - work_s):
            if at + work_s >= before:
                break
            for nodes in self._sets(room, len(tasks)):
                if nodes.tobytes() in known:
                    continue
                known.add(nodes.tobytes())
                reservation = self._earliest_on(unit, run_s, nodes)
                if (
                    reservation is None
                    or reservation.at <= self._table.now
                    or reservation.at + work_s >= before
                ):
                    continue
                leaves = self._links.leaves(reservation.gpus)
                cost = self._links.cost(unit, leaves, reservation.at, work_s)
                if cost.paid_at < before:
                    before = cost.paid_at
                    best = _Choice(nodes=nodes, gpus=reservation.gpus, leaves=leaves, cost=cost)
        return best

    def _earliest_on(self, unit: Unit, run_s: float, nodes: Bools) -> Reservation | None:
        with self._table.only(nodes):
            return self._units.earliest(unit, run_s)

    def _rooms(
        self, unit: Unit, demand: int, count: int, run_s: float, before: float
    ) -> Iterator[tuple[float, Ints]]:
        """Yield times after now and before one at which GPUs become free, and the room then."""
        alive = len(self._table.scratch.snapshot.nodes.alive)
        table = self._table
        available = table.available(table.every, table.now, run_s)
        available = np.where(table.suits(demand)[table.every], available, math.inf)
        node, free_at = table.places(demand, available, 1 if unit.distinct_nodes else count)
        times = np.unique(free_at)
        times = times[(times > self._table.now) & (times < before)]
        if len(times) > _TIMES:  # what is free at a time left out is found from a later one
            times = times[np.linspace(0, len(times) - 1, _TIMES).astype(np.int64)]
        for at in times.tolist():
            yield at, np.bincount(node[free_at <= at], minlength=alive)

    def _sets(self, room: Ints, count: int) -> list[Bools]:
        """Return sets of nodes that have room for tasks, the most promising ones first."""
        layouts = self._layouts
        nodes = layouts.node
        busy = np.zeros(len(room), bool)
        used = self._links.fabric.leaf_node[self._links.busy_leaves()]
        busy[used[used >= 0]] = True
        request = Request(count=count, room=room[nodes], idle=~busy[nodes], capacity=room[nodes])
        sets = list[Bools]()
        for sites in layouts.of_nodes.sets(request, _SETS):
            among = np.zeros(len(room), bool)
            among[nodes[sites]] = True
            sets.append(among)
        if not sets and room.sum() >= count:  # some nodes have no place in the topology
            sets.append(np.ones(len(room), bool))
        return sets


class _TightSets:
    """Nodes of least diameter where one does not suffice, and GPUs of a node that are close."""

    def __init__(self, table: Timetable, placer: Placer) -> None:
        self._table, self._placer = table, placer

    @cached_property
    def _layouts(self) -> Layouts:
        return layouts_of(self._table.scratch.snapshot)

    def pick(self, room: Ints, count: int) -> list[int]:
        """Return the nodes of `count` tasks: one if they fit, else those of least diameter."""
        if room.max(initial=0) >= count or self._layouts.of_nodes.is_flat:
            return most_room_first(room, count)
        nodes = self._layouts.node
        if len(room) < len(self._table.scratch.snapshot.nodes.alive):
            room = np.pad(room, (0, len(self._table.scratch.snapshot.nodes.alive) - len(room)))
        here = room[nodes]
        request = Request(count=count, room=here, idle=here > 0, capacity=here)
        sites = self._layouts.of_nodes.compact(request) if here.sum() >= count else None
        if sites is None:
            return most_room_first(room, count)
        chosen: list[int] = nodes[sites].tolist()
        return chosen

    def gpus(self, demand: int, node: int, run_s: float, places: int) -> Iterator[tuple[int, ...]]:
        """Yield GPUs of a node for one task, and for the next: those that are close together."""
        table, spec = self._table, self._table.demands[demand]
        first = table.scratch.snapshot.nodes.first_gpu[node]
        if not spec.gpus or spec.in_part or self._layouts.of_gpus is None:
            yield from tightest_gpus(table, demand, node, run_s, places)
            return
        low, high = np.searchsorted(table.node, (node, node + 1))
        rows = table.row[low:high]
        usable = np.zeros(len(table.reserved_from), bool)
        usable[rows] = table.usable_now(demand, rows, run_s)
        most = min(places, runs_in(int(usable[rows].sum()), spec.gpus))
        free = Usable(
            room=np.zeros(0, np.int64),
            usable=usable,
            held=~usable,
            kept=np.zeros(0, bool),
            rank=table.reserved_from,
        )
        chosen = self._gpu_choice.gpus_on(node, most * spec.gpus, free) if most else []
        for end in range(spec.gpus, len(chosen) + 1, spec.gpus):
            yield tuple(gpu - first for gpu in chosen[end - spec.gpus : end])

    @cached_property
    def _gpu_choice(self) -> ClusterPlacer:
        return ClusterPlacer(self._table.scratch.snapshot, self._placer)


def tight_sets(table: Timetable, placer: Placer) -> Packed:
    """Return the chooser of the tightest set, of least diameter, where a unit fits no one node."""
    tight = _TightSets(table, placer)
    return Packed(table, tight.pick, tight.gpus)
