"""A timetable whose units get the sets of nodes on which they end soonest, by their links.

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
from headgate.planning.place.choose import ByLinks
from headgate.planning.place.choose.on_cluster import ClusterPlacer, Layouts, Room, layouts_of
from headgate.planning.place.choose.packed_timetable import PackedTimetable
from headgate.planning.place.timetable import EndAt
from headgate.planning.times.reservations import Reservation
from headgate.planning.topology.layout import Request
from headgate.planning.units.unit import Unit
from headgate.state import Scratch

_SETS = 6  # of nodes, tried at each time
_TIMES = 24  # at which runs end, tried for sets that are not free now


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choice:
    """GPUs (rows) for a unit on some nodes, and what they cost."""

    nodes: Bools
    gpus: Ints
    leaves: Ints
    cost: LinkCost


class LinkedTimetable(PackedTimetable):
    """See above; for a unit that communicates, a query is as many as sets and times are tried."""

    def __init__(self, scratch: Scratch, end_at: EndAt, placer: ByLinks) -> None:
        """Start as any timetable."""
        super().__init__(scratch, end_at)
        self._placer = placer
        self._links = LinkCosts(scratch, end_at)
        self._found: tuple[Unit, _Choice] | None = None  # for the unit that was weighed last

    @cached_property
    def _layouts(self) -> Layouts:
        return layouts_of(self._scratch.snapshot)

    # --- starts --------------------------------------------------------------------------------

    def start(self, unit: Unit, run_s: float, *, kept: bool = False) -> bool:
        """Place a unit now, on the set on which it ends soonest, if it fits; see `Timetable`."""
        if kept or self._among is not None or not self._links.matter(unit):
            return super().start(unit, run_s, kept=kept)
        self._kept = False
        found, self._found = self._found, None
        best = found[1] if found is not None and found[0] is unit else None
        if best is None:
            best = self._best_now(unit, run_s, run_s)
        if best is None:  # tasks of several demands may fit on all nodes
            return len(set(unit.demands)) > 1 and super().start(unit, run_s)
        with self.only(best.nodes):
            started = super().start(unit, run_s * best.cost.slowdown)
        if started:
            self._links.add(unit, best.leaves, best.cost.ends_at)
        return started

    def better(self, unit: Unit, run_s: float, expected_s: float) -> Reservation | None:
        """Return the set that a unit waits for though it fits now, as it ends sooner there.

        `run_s` bounds its run time at slowdown 1; none if the `expected_s` are unknown.
        """
        if not math.isfinite(expected_s) or not self._links.matter(unit):
            return None
        self._kept = False
        now = self._best_now(unit, run_s, expected_s)
        if now is None:
            return None
        later = None
        if not now.cost.is_least:
            later = self._best_later(unit, expected_s, now.cost.paid_at - SAME_INSTANT_S)
        if later is None:
            self._found = unit, now
            return None
        spread = self._links.spread(now.leaves, later.leaves, now.cost.rate)
        return Reservation(unit=unit, at=later.cost.at, gpus=later.gpus, spread=spread)

    def run_s_on(self, found: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds at slowdown 1 takes as reserved."""
        if not math.isfinite(run_s) or not self._links.matter(found.unit):
            return run_s
        leaves = self._links.leaves(found.gpus)
        return self._links.cost(found.unit, leaves, found.at, run_s).ends_at - found.at

    def earliest(self, unit: Unit, run_s: float) -> Reservation | None:
        """Return the reservation with which a unit ends soonest, or if unknown, starts so."""
        first = super().earliest(unit, run_s)
        if first is None or self._among is not None or not self._links.matter(unit):
            return first
        work_s = run_s if math.isfinite(run_s) else 0.0
        leaves = self._links.leaves(first.gpus)
        cost = self._links.cost(unit, leaves, first.at, work_s)
        if first.at <= self.now or cost.is_least:
            return first
        before = cost.paid_at if work_s else first.at + 2 * SAME_INSTANT_S
        later = self._best_later(unit, run_s, before)
        if later is None or (later.cost.rate >= cost.rate and not work_s):
            return first
        return replace(first, at=later.cost.at, gpus=later.gpus)

    # --- sets ----------------------------------------------------------------------------------

    def _best_now(self, unit: Unit, run_s: float, expected_s: float) -> _Choice | None:
        """Return the set of those free now on which a unit ends soonest."""
        demand, tasks = unit.by_demand(self._scratch.snapshot)[0]
        distinct, work_s = unit.distinct_nodes, expected_s if math.isfinite(expected_s) else 0.0
        room = self._room_now(demand, len(tasks), run_s, set(), distinct=distinct)
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
        return bool(self._in_time(choice.gpus, self.now, run_s).all())

    def _tried(self, unit: Unit, run_s: float, work_s: float, nodes: Bools) -> _Choice | None:
        """Return the choice of a unit that starts now on some nodes, if it fits."""
        with self.only(nodes), self._scratch.trial():
            before = len(self._scratch.starts)
            rows = self._place(unit, run_s)
            leaves = self._links.leaves_of(self._scratch.starts[before:])
        if rows is None:
            return None
        cost = self._links.cost(unit, leaves, self.now, work_s)
        return _Choice(nodes=nodes, gpus=np.array(rows, np.int64), leaves=leaves, cost=cost)

    def _best_later(self, unit: Unit, run_s: float, before: float) -> _Choice | None:
        """Return the set, free later, on which a unit ends soonest, if it ends `before` a time."""
        demand, tasks = unit.by_demand(self._scratch.snapshot)[0]
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
                found = self._earliest_on(unit, run_s, nodes)
                if found is None or found.at <= self.now or found.at + work_s >= before:
                    continue
                leaves = self._links.leaves(found.gpus)
                cost = self._links.cost(unit, leaves, found.at, work_s)
                if cost.paid_at < before:
                    before = cost.paid_at
                    best = _Choice(nodes=nodes, gpus=found.gpus, leaves=leaves, cost=cost)
        return best

    def _earliest_on(self, unit: Unit, run_s: float, nodes: Bools) -> Reservation | None:
        with self.only(nodes):
            return super().earliest(unit, run_s)

    def _rooms(
        self, unit: Unit, demand: int, count: int, run_s: float, before: float
    ) -> Iterator[tuple[float, Ints]]:
        """Yield times after now and before one at which GPUs become free, and the room then."""
        alive = len(self._scratch.snapshot.nodes.alive)
        available = self._available(self._every, self.now, run_s)
        available = np.where(self.suits(demand)[self._every], available, math.inf)
        node, free_at = self._places(demand, available, 1 if unit.distinct_nodes else count)
        times = np.unique(free_at)
        times = times[(times > self.now) & (times < before)]
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
        found = list[Bools]()
        for sites in layouts.of_nodes.sets(request, _SETS):
            among = np.zeros(len(room), bool)
            among[nodes[sites]] = True
            found.append(among)
        if not found and room.sum() >= count:  # some nodes have no place in the topology
            found.append(np.ones(len(room), bool))
        return found

    # --- tight sets ----------------------------------------------------------------------------

    def _pick(self, room: Ints, count: int) -> list[int]:
        """Return the nodes of `count` tasks: one if they fit, else those of least diameter."""
        if room.max(initial=0) >= count or self._layouts.of_nodes.is_flat:
            return super()._pick(room, count)
        nodes = self._layouts.node
        if len(room) < len(self._scratch.snapshot.nodes.alive):
            room = np.pad(room, (0, len(self._scratch.snapshot.nodes.alive) - len(room)))
        here = room[nodes]
        request = Request(count=count, room=here, idle=here > 0, capacity=here)
        sites = self._layouts.of_nodes.compact(request) if here.sum() >= count else None
        if sites is None:
            return super()._pick(room, count)
        chosen: list[int] = nodes[sites].tolist()
        return chosen

    def _gpus_now(
        self, demand: int, node: int, run_s: float, places: int
    ) -> Iterator[tuple[int, ...]]:
        """Yield GPUs of a node for one task, and for the next: those that are close together."""
        spec, first = self._demands[demand], self._scratch.snapshot.nodes.first_gpu[node]
        if not spec.gpus or spec.in_part or self._layouts.of_gpus is None:
            yield from super()._gpus_now(demand, node, run_s, places)
            return
        low, high = np.searchsorted(self._node, (node, node + 1))
        rows = self._row[low:high]
        usable = np.zeros(len(self._free_at), bool)
        usable[rows] = self._usable_now(demand, rows, run_s)
        most = min(places, int(usable[rows].sum()) // spec.gpus)
        free = Room(
            room=np.zeros(0, np.int64),
            usable=usable,
            held=~usable,
            kept=np.zeros(0, bool),
            rank=self.reserved_from,
        )
        chosen = self._gpu_choice.gpus_on(node, most * spec.gpus, free) if most else []
        for end in range(spec.gpus, len(chosen) + 1, spec.gpus):
            yield tuple(gpu - first for gpu in chosen[end - spec.gpus : end])

    @cached_property
    def _gpu_choice(self) -> ClusterPlacer:
        return ClusterPlacer(self._scratch.snapshot, self._placer)
