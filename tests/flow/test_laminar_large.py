"""Wide places: hubs of classes with hundreds of nodes, against OR-tools."""

from __future__ import annotations

import numpy as np
import pytest
from tests.flow.laminar_oracle import Problem, optimum

from flow_bench import instances
from flow_bench.laminar import Options
from flow_bench.problem import problem_of
from headgate.base.arrays import Ints
from headgate.flow import LaminarSolver, verify_laminar


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("load", ["sat", "base", "over5"])
def test_plans_are_optimal_cold_and_after_changes(
    monkeypatch: pytest.MonkeyPatch, classes: int, load: str
) -> None:
    size = instances.Size(nodes=1200, gpus=1, nodes_in_rack=16, jobs=20, tasks_of_job=60)
    monkeypatch.setattr(instances, "SIZES", {"S": size})
    problem = problem_of(instances.generate("S", load, 5), classes, 5)
    places, choice = problem.build()
    capacity = places.capacity.copy()
    solver = LaminarSolver(places.parent, capacity)
    ids = solver.add(choice.offsets, choice.place, choice.cost)
    every = np.arange(len(ids))
    rng = np.random.default_rng(5)

    _check(solver, ids, every, places.parent, capacity, choice)
    for _ in range(2):
        gone = rng.random(len(every)) < 0.02
        solver.remove(ids[every[gone]])
        every = every[~gone]
        nodes = rng.choice(places.racks, 12, replace=False)
        capacity[nodes] = rng.integers(0, 2, len(nodes))
        solver.set_capacity(nodes, capacity[nodes])
        for wanted in np.argsort(np.bincount(choice.place))[-3:].tolist():  # hubs, and a pool
            _reprice(solver, ids, every, wanted, choice, rng)
        _check(solver, ids, every, places.parent, capacity, choice)


def test_a_deficit_is_filled_when_many_units_could_fill_it() -> None:
    many, rng = 20_000, np.random.default_rng(5)
    parent, capacity = np.array([-1, -1]), np.array([1, many])
    cost = rng.integers([0, 5000], [1000, 6000], (many + 2, 2))
    place = np.tile([0, 1], many + 2)
    choice = Options(offsets=2 * np.arange(many + 3), place=place, cost=cost.ravel())
    solver = LaminarSolver(parent, capacity)
    ids = solver.add(choice.offsets, choice.place, choice.cost)
    every = np.arange(many + 2)
    _check(solver, ids, every, parent, capacity, choice)
    alone = solver.place_of(ids) == 0
    solver.remove(ids[alone])
    _check(solver, ids, every[~alone], parent, capacity, choice)


def _reprice(
    solver: LaminarSolver,
    ids: Ints,
    every: Ints,
    place: int,
    choice: Options,
    rng: np.random.Generator,
) -> None:
    """Change the cost of some options at a place."""
    unit = np.repeat(np.arange(len(ids)), np.diff(choice.offsets))
    option = np.flatnonzero((choice.place == place) & np.isin(unit, every))
    option = option[rng.random(len(option)) < 0.5]
    spread = int(np.ptp(choice.cost)) // 20
    choice.cost[option] += rng.integers(-spread, spread, len(option))
    solver.reprice(place, ids[unit[option]], choice.cost[option])


def _check(
    solver: LaminarSolver, ids: Ints, every: Ints, parent: Ints, capacity: Ints, choice: Options
) -> None:
    offsets, place, cost = choice.offsets, choice.place, choice.cost
    sizes = np.diff(offsets)[every]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    option = np.repeat(offsets[every] - starts[:-1], sizes) + np.arange(starts[-1])
    problem = Problem(
        parent=parent, capacity=capacity, offsets=starts, place=place[option], cost=cost[option]
    )
    outcome = solver.solve()
    solver._check()
    best = optimum(problem)
    assert (outcome.unplaced, outcome.cost) == (best.unplaced, best.cost)
    units = ids[every]
    certificate = verify_laminar(
        parent, capacity, starts, place[option], cost[option],
        solver.place_of(units), solver.leaf_of(units), solver.prices(),
    )  # fmt: skip
    assert certificate.clean, str(certificate)
