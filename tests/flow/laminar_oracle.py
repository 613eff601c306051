"""Laminar problems in plain lists, their optimum, and the checks of their solver.

A `Mirror` is a model of a `LaminarSolver` after the same changes. `play` applies changes to both
and compares them after each solve: the optimum with that of OR-tools on the equivalent
network, the plan and the prices by `verify_laminar`. Changes name units and places by numbers that
are taken modulo what is there, so any part of a list of changes is a list of changes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from tests.flow.ortools_oracle import OrToolsSolver
from tests.flow.potentials import potentials
from tests.flow.unit_paths import unit_paths

from headgate.base.arrays import Ints
from headgate.flow import Certificate, Network, verify_laminar

Options = list[tuple[int, int]]
"""The (place, cost) of each option of a unit."""


# -------------------------------------------------------------------------------- problems


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Places and the options of all units, in the form of `verify_laminar`."""

    parent: Ints
    capacity: Ints
    offsets: Ints
    place: Ints
    cost: Ints

    @property
    def units(self) -> int:
        return len(self.offsets) - 1


def ints(values: object) -> Ints:
    return np.array(values, np.int64)


def joined(*parts: object) -> Ints:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def options_as_arrays(units: list[Options]) -> tuple[Ints, Ints, Ints]:
    """Return offsets, places and costs."""
    flat = [option for options in units for option in options]
    offsets = [0, *itertools.accumulate(map(len, units))]
    return ints(offsets), ints([place for place, _ in flat]), ints([cost for _, cost in flat])


def problem_of(parent: list[int], capacity: list[int], units: list[Options]) -> Problem:
    offsets, place, cost = options_as_arrays(units)
    return Problem(
        parent=ints(parent), capacity=ints(capacity), offsets=offsets, place=place, cost=cost
    )


# -------------------------------------------------------------------------------- optima


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """As many units placed as possible, and of such plans the cheapest."""

    unplaced: int
    cost: int


def equivalent(problem: Problem) -> Network:
    """Return the network: units, then places, then the sink; options, the tree, the leaves."""
    units, places = problem.units, len(problem.parent)
    sink = units + places
    child = np.flatnonzero(problem.parent >= 0)
    leaf = np.setdiff1d(np.arange(places), problem.parent)
    # A capacity above the number of units is no limit, and OR-tools rejects very large ones.
    endless = units + 1
    return Network(
        tail=joined(
            np.repeat(np.arange(units), np.diff(problem.offsets)),
            units + problem.parent[child],
            units + leaf,
        ),
        head=joined(units + problem.place, units + child, [sink] * len(leaf)),
        capacity=joined(
            [1] * len(problem.place),
            [endless] * len(child),
            np.minimum(problem.capacity[leaf], endless),
        ),
        cost=joined(problem.cost, [0] * (len(child) + len(leaf))),
        supply=joined([1] * units, [0] * places, [-units]),
    )


def optimum(problem: Problem) -> Optimum:
    """Return the optimum of OR-tools: max-flow first, then least cost."""
    solution = OrToolsSolver().solve(equivalent(problem))
    return Optimum(unplaced=problem.units - solution.sent, cost=solution.cost)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """The place of each unit, -1 for none, and the price of each place."""

    chosen_place: Ints
    leaf: Ints
    prices: Ints


def optimal_plan(problem: Problem) -> Plan:
    """Return a plan of OR-tools, with the dual prices of its flow."""
    plain, units = equivalent(problem), problem.units
    # A unit without a place goes straight to the sink, at more than any augmenting path costs.
    low, high = int(problem.cost.min(initial=0)), int(problem.cost.max(initial=0))
    network = Network(
        tail=joined(plain.tail, np.arange(units)),
        head=joined(plain.head, [plain.vertices - 1] * units),
        capacity=joined(plain.capacity, [1] * units),
        cost=joined(plain.cost, [high + units * (high - low) + 1] * units),
        supply=plain.supply,
    )
    flow = OrToolsSolver().solve(network).flow
    paths = unit_paths(network, flow, np.arange(units))
    last = paths[np.arange(units), (paths >= 0).sum(axis=1) - 1]
    placed = paths[:, 0] < len(problem.place)
    return Plan(
        chosen_place=np.where(placed, network.head[paths[:, 0]] - units, -1),
        leaf=np.where(placed, network.tail[last] - units, -1),
        prices=potentials(network, flow, network.vertices - 1)[units:-1],
    )


def certificate_of(problem: Problem, plan: Plan) -> Certificate:
    """Check a plan."""
    return verify_laminar(
        problem.parent,
        problem.capacity,
        problem.offsets,
        problem.place,
        problem.cost,
        plan.chosen_place,
        plan.leaf,
        plan.prices,
    )


def optimum_of_all(problem: Problem) -> Optimum:
    """Return the best of all plans, by trying every one."""
    parent, capacity = problem.parent.tolist(), problem.capacity.tolist()
    room = list(capacity)
    for place in sorted(range(len(parent)), key=lambda v: -len(_path_up(parent, v))):
        if parent[place] >= 0:
            room[parent[place]] += room[place]
    paths = [_path_up(parent, v) for v in range(len(parent))]
    offsets = problem.offsets.tolist()
    options = list(zip(problem.place.tolist(), problem.cost.tolist(), strict=True))
    each = [[None, *options[a:b]] for a, b in itertools.pairwise(offsets)]
    best = (problem.units + 1, 0)
    for plan in itertools.product(*each):
        chosen = [option for option in plan if option is not None]
        left = list(room)
        for place, _ in chosen:
            for above in paths[place]:
                left[above] -= 1
        if min(left, default=0) >= 0:
            best = min(best, (problem.units - len(chosen), sum(cost for _, cost in chosen)))
    return Optimum(unplaced=best[0], cost=best[1])


def _path_up(parent: list[int], place: int) -> list[int]:
    path = [place]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return path


# -------------------------------------------------------------------------------- changes


@dataclass(frozen=True, slots=True)
class Add:
    """Add units."""

    units: list[Options]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove units."""

    which: list[int]


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace the options of units."""

    which: list[int]
    units: list[Options]


@dataclass(frozen=True, slots=True)
class Reprice:
    """Set the costs of units' options at one place; units without one there are skipped."""

    place: int
    which: list[int]
    cost: list[int]


@dataclass(frozen=True, slots=True)
class RepriceAll:
    """Set the costs of all options at leaves, including the pool at place 0."""

    which: list[int]
    cost: list[int]


@dataclass(frozen=True, slots=True)
class SetCapacity:
    """Set the capacities of leaves, except the pool at place 0."""

    which: list[int]
    capacity: list[int]


@dataclass(frozen=True, slots=True)
class AddPlaces:
    """Add places: each a root, a child of a place that has children, or of an earlier new one.

    `above` is -1 for a root; other numbers count the new places first, latest first, then the old.
    A new place that gets a child has no capacity, whatever `capacity` says.
    """

    above: list[int]
    capacity: list[int]


@dataclass(frozen=True, slots=True)
class Solve:
    """Solve; with a budget of 0 seconds the plan need not be optimal."""

    hurried: bool = False


Change = Add | Remove | Replace | Reprice | RepriceAll | SetCapacity | AddPlaces | Solve


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Initial places, then changes."""

    parent: list[int]
    capacity: list[int]
    changes: list[Change]


# -------------------------------------------------------------------------------- two in step


class Outcome(Protocol):
    """What `solve` returns."""

    cost: int
    gap: int
    unplaced: int


class Laminar(Protocol):
    """The interface of a solver for laminar problems."""

    def add(self, offsets: Ints, place: Ints, cost: Ints) -> Ints: ...
    def remove(self, ids: Ints) -> None: ...
    def replace(self, ids: Ints, offsets: Ints, place: Ints, cost: Ints) -> None: ...
    def reprice(self, place: int, ids: Ints, cost: Ints) -> None: ...
    def reprice_all(self, place: Ints, cost: Ints) -> None: ...
    def set_capacity(self, place: Ints, capacity: Ints) -> None: ...
    def add_places(self, parent: Ints, capacity: Ints) -> Ints: ...
    def solve(self, budget_s: float | None = None) -> Outcome: ...
    def place_of(self, ids: Ints) -> Ints: ...
    def leaf_of(self, ids: Ints) -> Ints: ...
    def cost_of(self, ids: Ints) -> Ints: ...
    def moved(self) -> Ints: ...
    def prices(self) -> Ints: ...


@dataclass(slots=True)
class Mirror:
    """A model of a solver."""

    parent: list[int]
    capacity: list[int]
    units: dict[int, Options] = field(default_factory=dict)
    shown: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Place and leaf of each unit after the last solve."""

    def problem(self) -> Problem:
        return problem_of(self.parent, self.capacity, list(self.units.values()))

    def ids(self) -> Ints:
        return ints(list(self.units))

    def leaves(self) -> list[int]:
        above = set(self.parent)
        return [place for place in range(len(self.parent)) if place not in above]

    def known(self, units: list[Options]) -> list[Options]:
        """Return the options with their places modulo the number of places."""
        places = len(self.parent)
        return [[(place % places, cost) for place, cost in options] for options in units]

    def chosen(self, which: list[int]) -> list[int]:
        """Return the ids chosen, each once."""
        ids = list(self.units)
        return list(dict.fromkeys(ids[n % len(ids)] for n in which)) if ids else []


def make(change: Change, mirror: Mirror, solver: Laminar) -> None:
    """Apply a change to both."""
    match change:
        case Add(units):
            units = mirror.known(units)
            ids = solver.add(*options_as_arrays(units)).tolist()
            assert len(set(ids)) == len(units)
            assert not mirror.units.keys() & set(ids)
            mirror.units.update(zip(ids, units, strict=True))
        case Remove(which):
            ids = mirror.chosen(which)
            solver.remove(ints(ids))
            for unit in ids:
                del mirror.units[unit]
        case Replace(which, units):
            ids = mirror.chosen(which)[: len(units)]
            units = mirror.known(units[: len(ids)])
            solver.replace(ints(ids), *options_as_arrays(units))
            mirror.units.update(zip(ids, units, strict=True))
        case Reprice(place, which, cost):
            _reprice(place % len(mirror.parent), which, cost, mirror, solver)
        case RepriceAll(which, cost):
            _reprice_all(which, cost, mirror, solver)
        case SetCapacity(which, capacity):
            _set_capacity(which, capacity, mirror, solver)
        case AddPlaces(above, capacity):
            _add_places(above, capacity, mirror, solver)
        case Solve(hurried):
            check(mirror, solver, hurried=hurried)


def _reprice(
    place: int, which: list[int], cost: list[int], mirror: Mirror, solver: Laminar
) -> None:
    new = {
        unit: price
        for unit, price in zip(mirror.chosen(which), cost, strict=False)
        if place in dict(mirror.units[unit])
    }
    solver.reprice(place, ints(list(new)), ints(list(new.values())))
    for unit, price in new.items():
        mirror.units[unit] = [(p, price if p == place else c) for p, c in mirror.units[unit]]


def _reprice_all(which: list[int], cost: list[int], mirror: Mirror, solver: Laminar) -> None:
    leaves = mirror.leaves()
    new = {leaves[n % len(leaves)]: c for n, c in zip(which, cost, strict=True)}
    solver.reprice_all(ints(list(new)), ints(list(new.values())))
    for unit, options in mirror.units.items():
        mirror.units[unit] = [(place, new.get(place, c)) for place, c in options]


def _set_capacity(which: list[int], capacity: list[int], mirror: Mirror, solver: Laminar) -> None:
    leaves = mirror.leaves()[1:]
    if not leaves:
        return
    new = {leaves[n % len(leaves)]: c for n, c in zip(which, capacity, strict=True)}
    solver.set_capacity(ints(list(new)), ints(list(new.values())))
    for place, room in new.items():
        mirror.capacity[place] = room


def _add_places(above: list[int], capacity: list[int], mirror: Mirror, solver: Laminar) -> None:
    parent, old = [], len(mirror.parent)
    may_have_children = sorted(set(mirror.parent) - {-1})
    for n, number in enumerate(above):
        candidates = [*range(old + n - 1, old - 1, -1), *may_have_children]
        root = number < 0 or not candidates
        parent.append(-1 if root else candidates[number % len(candidates)])
    room = [0 if old + n in parent else c for n, c in enumerate(capacity)]
    new = solver.add_places(ints(parent), ints(room)).tolist()
    assert new == list(range(old, old + len(above)))
    mirror.parent += parent
    mirror.capacity += room


def check(mirror: Mirror, solver: Laminar, *, hurried: bool = False) -> None:
    """Solve, and compare everything that the solver returns with the model."""
    problem, ids = mirror.problem(), mirror.ids()
    best = optimum(problem)
    outcome = solver.solve(budget_s=0.0) if hurried else solver.solve()
    plan = Plan(chosen_place=solver.place_of(ids), leaf=solver.leaf_of(ids), prices=solver.prices())
    certificate = certificate_of(problem, plan)
    assert certificate.unplaced == outcome.unplaced
    paid = 0
    for options, place, cost in zip(
        mirror.units.values(), plan.chosen_place.tolist(), solver.cost_of(ids).tolist(), strict=True
    ):
        if place >= 0:
            assert (place, cost) in options
            paid += cost
    assert outcome.cost == paid
    _check_moved(mirror, solver, plan)
    if not hurried:
        assert (outcome.unplaced, outcome.cost) == (best.unplaced, best.cost)
        assert outcome.gap == 0
        assert certificate.clean, str(certificate)
        return
    broken = {fault.kind for fault in certificate.faults}
    assert not broken & {"option", "leaf", "capacity"}, str(certificate)
    assert outcome.gap >= 0
    assert outcome.unplaced >= best.unplaced
    if outcome.unplaced == best.unplaced:
        assert best.cost <= outcome.cost <= best.cost + outcome.gap
    else:
        assert outcome.gap > 0


def _check_moved(mirror: Mirror, solver: Laminar, plan: Plan) -> None:
    """Units at another place than after the last solve, and new ones, are among those moved."""
    where = list(zip(plan.chosen_place.tolist(), plan.leaf.tolist(), strict=True))
    shown = dict(zip(mirror.units, where, strict=True))
    elsewhere = {unit for unit, at in shown.items() if mirror.shown.get(unit, (-1, -1)) != at}
    moved = solver.moved().tolist()
    assert len(set(moved)) == len(moved)
    assert elsewhere <= set(moved) <= shown.keys()
    mirror.shown = shown


def play(case: Case, solver: type[Laminar]) -> None:
    """Apply the changes of a case to a mirror and a solver, then solve once more."""
    mirror = Mirror(list(case.parent), list(case.capacity))
    tested = solver(ints(case.parent), ints(case.capacity))
    for change in [*case.changes, Solve()]:
        make(change, mirror, tested)
