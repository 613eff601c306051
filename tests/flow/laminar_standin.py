"""A slow solver with the face of `LaminarSolver`: proves its tests until the real one is there.

It solves every time from scratch, by OR-tools; out of time, it takes the first option with room.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from tests.flow.laminar_oracle import (
    Options,
    Plan,
    Problem,
    certificate_of,
    ints,
    optimal_plan,
    optimum,
    problem_of,
)

from headgate.flow import BadNetwork, Ints

TOO_LARGE = 1 << 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    cost: int
    gap: int
    unplaced: int


def require(condition: bool, story: str) -> None:
    if not condition:
        raise BadNetwork(story)


class StandIn:
    def __init__(self, parent: Ints, capacity: Ints) -> None:
        self._parent: list[int] = []
        self._capacity: list[int] = []
        self._units: dict[int, Options] = {}
        self._at: dict[int, tuple[int, int, int]] = {}
        self._prices = ints([])
        self.add_places(parent, capacity)
        self._prices = ints([0] * len(parent))

    def add_places(self, parent: Ints, capacity: Ints) -> Ints:
        require(len(parent) == len(capacity), "parent and capacity have different lengths")
        old = len(self._parent)
        above, room = self._parent + parent.tolist(), self._capacity + capacity.tolist()
        for place in range(old, len(above)):
            require(room[place] >= 0, f"place {place} has the negative capacity {room[place]}")
            known = -1 <= above[place] < len(above)
            require(known, f"place {place} has the parent {above[place]}, which is not there")
        for place in range(len(above)):
            at = above[place]
            for _ in above:
                at = above[at] if at >= 0 else -1
            require(at < 0, f"place {place} is below itself")
        for place in sorted(set(above) - {-1}):
            require(room[place] == 0, f"place {place} has children and capacity {room[place]}")
        self._parent, self._capacity = above, room
        return np.arange(old, len(above))

    def add(self, offsets: Ints, place: Ints, cost: Ints) -> Ints:
        units = self._options(offsets, place, cost)
        free = itertools.filterfalse(self._units.__contains__, itertools.count())
        ids = list(itertools.islice(free, len(units)))
        for unit, options in zip(ids, units, strict=True):
            self._units[unit] = options
            self._at.pop(unit, None)
        return ints(ids)

    def remove(self, ids: Ints) -> None:
        self._known(ids, once=True)
        for unit in ids.tolist():
            del self._units[unit]

    def replace(self, ids: Ints, offsets: Ints, place: Ints, cost: Ints) -> None:
        self._known(ids, once=True)
        units = self._options(offsets, place, cost)
        require(len(units) == len(ids), "ids and offsets have different lengths")
        self._units.update(zip(ids.tolist(), units, strict=True))

    def set_capacity(self, place: Ints, capacity: Ints) -> None:
        require(len(place) == len(capacity), "place and capacity have different lengths")
        for where, room in zip(place.tolist(), capacity.tolist(), strict=True):
            require(0 <= where < len(self._parent), f"place {where} is not there")
            require(where not in self._parent, f"place {where} has children")
            require(room >= 0, f"place {where} has the negative capacity {room}")
        for where, room in zip(place.tolist(), capacity.tolist(), strict=True):
            self._capacity[where] = room

    def solve(self, budget_s: float | None = None) -> Outcome:
        problem = problem_of(self._parent, self._capacity, list(self._units.values()))
        self._at, self._prices = {}, ints([0] * len(self._parent))
        if not self._units:
            return Outcome(cost=0, gap=0, unplaced=0)
        plan = optimal_plan(problem) if budget_s is None else self._hasty(problem)
        self._prices = plan.prices
        cost = 0
        for unit, place, leaf in zip(
            self._units, plan.chosen_place.tolist(), plan.leaf.tolist(), strict=True
        ):
            if place >= 0:
                paid = min(c for p, c in self._units[unit] if p == place)
                self._at[unit] = place, leaf, paid
                cost += paid
        unplaced = len(self._units) - len(self._at)
        gap = certificate_of(problem, plan).gap if unplaced == optimum(problem).unplaced else 1
        return Outcome(cost=cost, gap=gap, unplaced=unplaced)

    def place_of(self, ids: Ints) -> Ints:
        return self._read(ids, 0)

    def leaf_of(self, ids: Ints) -> Ints:
        return self._read(ids, 1)

    def cost_of(self, ids: Ints) -> Ints:
        return self._read(ids, 2)

    def prices(self) -> Ints:
        return self._prices

    def _read(self, ids: Ints, which: int) -> Ints:
        self._known(ids, once=False)
        return ints([self._at.get(unit, (-1, -1, 0))[which] for unit in ids.tolist()])

    def _known(self, ids: Ints, *, once: bool) -> None:
        for n, unit in enumerate(ids.tolist()):
            require(unit in self._units, f"unit {unit} is not there")
            require(not once or unit not in ids[:n], f"unit {unit} is named twice")

    def _options(self, offsets: Ints, place: Ints, cost: Ints) -> list[Options]:
        require(len(place) == len(cost), "place and cost have different lengths")
        cuts = offsets.tolist()
        fit = bool(cuts) and cuts[0] == 0 and cuts[-1] == len(place) and cuts == sorted(cuts)
        require(fit, f"offsets do not cut {len(place)} options")
        for unit, (first, end) in enumerate(itertools.pairwise(cuts)):
            require(end > first, f"unit {unit} has no option")
        for where, price in zip(place.tolist(), cost.tolist(), strict=True):
            require(0 <= where < len(self._parent), f"place {where} is not there")
            require(abs(price) < TOO_LARGE, f"the cost {price} is too large")
        options = list(zip(place.tolist(), cost.tolist(), strict=True))
        return [options[a:b] for a, b in itertools.pairwise(cuts)]

    def _hasty(self, problem: Problem) -> Plan:
        left, places, leaves = list(self._capacity), [], []
        for options in self._units.values():
            way = next(((p, v) for p, _ in options for v in self._below(p) if left[v]), (-1, -1))
            places.append(way[0])
            leaves.append(way[1])
            if way[1] >= 0:
                left[way[1]] -= 1
        return Plan(
            chosen_place=ints(places), leaf=ints(leaves), prices=optimal_plan(problem).prices
        )

    def _below(self, place: int) -> list[int]:
        children = [v for v, above in enumerate(self._parent) if above == place]
        return [leaf for v in children for leaf in self._below(v)] if children else [place]
