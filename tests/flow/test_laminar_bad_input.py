"""Invalid laminar problems are rejected with a reason; a rejected change changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.flow.laminar_oracle import (
    Add,
    Mirror,
    Options,
    Remove,
    Replace,
    SetCapacity,
    check,
    ints,
    make,
    options_as_arrays,
)

from headgate.flow import BadNetwork, LaminarSolver

# A pool (0) of two; a tree: root 1 with the leaves 2 (one unit) and 3 (one unit).
PARENT, CAPACITY = [-1, -1, 1, 1], [2, 0, 1, 1]
UNITS: list[Options] = [[(2, 1), (0, 9)], [(2, 2), (1, 4), (0, 9)], [(1, 5), (0, 8)]]
ONE = ([0, 1], [0], [7])  # a unit with one option, at the pool


def started() -> tuple[Mirror, LaminarSolver]:
    """Return a solver with three units and a plan; the unit of id 3 was removed."""
    mirror, solver = Mirror(list(PARENT), list(CAPACITY)), LaminarSolver(
        ints(PARENT), ints(CAPACITY)
    )  # fmt: skip
    make(Add([*UNITS, [(0, 1)]]), mirror, solver)
    check(mirror, solver)
    make(Remove([3]), mirror, solver)
    check(mirror, solver)
    return mirror, solver


@pytest.mark.parametrize(
    ("parent", "capacity", "message"),
    [
        ([-1, -1], [1], "different lengths"),
        ([-1, -1, -1], [1, 1, -3], "place 2 .*negative capacity -3"),
        ([-1, 0], [4, 1], "place 0 .*children.* 4"),
        ([-1, 2], [1, 1], "place 1 .*parent 2"),
        ([-1, -2], [1, 1], "place 1 .*parent -2"),
        ([-1, 1], [1, 0], "place 1 .*itself"),
        ([-1, 3, 1, 2], [1, 0, 0, 0], "place [123] .*itself"),
    ],
)
def test_places_that_are_no_forest_are_rejected(
    parent: list[int], capacity: list[int], message: str
) -> None:
    with pytest.raises(BadNetwork, match=message):
        LaminarSolver(ints(parent), ints(capacity))


Call = Callable[[LaminarSolver], object]

BAD_OPTIONS = [
    (([0, 1], [0], [7, 7]), "different lengths"),
    (([], [], []), "offsets"),
    (([0, 2], [0], [7]), "offsets"),
    (([1, 2], [0, 0], [7, 7]), "offsets"),
    (([0, 2, 1, 3], [0, 0, 0], [7, 7, 7]), "offsets"),
    (([0, 1, 1], [0], [7]), "unit 1 .*no option"),
    (([0, 1, 2], [0, 4], [7, 7]), "place 4"),
    (([0, 1, 2], [0, -1], [7, 7]), "place -1"),
    (([0, 1, 2], [0, 0], [7, 2**63 - 1]), "9223372036854775807.*too large"),
    (([0, 1, 2], [0, 0], [7, 2**61]), "2305843009213693952.*too large"),
    (([0, 1, 2], [0, 0], [7, -(2**63)]), "-9223372036854775808.*too large"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_OPTIONS)
def test_units_with_bad_options_are_rejected(
    arrays: tuple[list[int], list[int], list[int]], message: str
) -> None:
    offsets, place, cost = map(ints, arrays)
    assert_rejected_without_effect(lambda solver: solver.add(offsets, place, cost), message)
    ids = ints(range(max(len(offsets) - 1, 0)))
    assert_rejected_without_effect(
        lambda solver: solver.replace(ids, offsets, place, cost), message
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.remove(ints([0, 3])), "unit 3 .*not there"),
        (lambda s: s.remove(ints([0, 99])), "unit 99 .*not there"),
        (lambda s: s.remove(ints([0, -1])), "unit -1 .*not there"),
        (lambda s: s.remove(ints([1, 0, 1])), "unit 1 .*twice"),
        (lambda s: s.replace(ints([3]), *map(ints, ONE)), "unit 3 .*not there"),
        (lambda s: s.replace(ints([0, 1]), *map(ints, ONE)), "different lengths|offsets"),
        (lambda s: s.replace(ints([2, 2]), *options_as_arrays(UNITS[:2])), "unit 2 .*twice"),
    ],
)
def test_changes_of_unknown_units_are_rejected(call: Call, message: str) -> None:
    assert_rejected_without_effect(call, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.reprice(0, ints([0, 1]), ints([5])), "different lengths: 2 and 1"),
        (lambda s: s.reprice(0, ints([0, 3]), ints([5, 5])), "unit 3 .*not there"),
        (lambda s: s.reprice(0, ints([1, 0, 1]), ints([5, 5, 5])), "unit 1 .*twice"),
        (lambda s: s.reprice(2, ints([1, 2]), ints([5, 5])), "unit 2 .*no option at place 2"),
        (lambda s: s.reprice(4, ints([0]), ints([5])), "place 4"),
        (lambda s: s.reprice(-1, ints([0]), ints([5])), "place -1"),
        (lambda s: s.reprice(0, ints([0, 1]), ints([5, 2**61])), "2305843009213693952.*too large"),
        (lambda s: s.reprice(0, ints([0, 1]), ints([5, -(2**63)])), "too large"),
        (lambda s: s.reprice_all(ints([0, 2]), ints([5])), "different lengths"),
        (lambda s: s.reprice_all(ints([0, 4]), ints([5, 5])), "place 4"),
        (lambda s: s.reprice_all(ints([2, -1]), ints([5, 5])), "place -1"),
        (lambda s: s.reprice_all(ints([2, 1]), ints([5, 5])), "place 1 .*children"),
        (lambda s: s.reprice_all(ints([0, 2]), ints([5, 2**61])), "too large"),
    ],
)
def test_bad_costs_are_rejected(call: Call, message: str) -> None:
    assert_rejected_without_effect(call, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.place_of(ints([0, 3])), "unit 3 .*not there"),
        (lambda s: s.leaf_of(ints([0, 99])), "unit 99 .*not there"),
        (lambda s: s.cost_of(ints([0, -1])), "unit -1 .*not there"),
    ],
)
def test_queries_of_unknown_units_are_rejected(call: Call, message: str) -> None:
    assert_rejected_without_effect(call, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.set_capacity(ints([2, 3]), ints([5])), "different lengths"),
        (lambda s: s.set_capacity(ints([2, 3]), ints([5, -1])), "place 3 .*negative capacity -1"),
        (lambda s: s.set_capacity(ints([2, 4]), ints([5, 5])), "place 4"),
        (lambda s: s.set_capacity(ints([2, -1]), ints([5, 5])), "place -1"),
        (lambda s: s.set_capacity(ints([2, 1]), ints([5, 5])), "place 1 .*children"),
        (lambda s: s.add_places(ints([-1, 1]), ints([1])), "different lengths"),
        (lambda s: s.add_places(ints([-1, 1]), ints([1, -2])), "place 5 .*negative capacity -2"),
        (lambda s: s.add_places(ints([-1, 6]), ints([1, 2])), "place 5 .*parent 6"),
        (lambda s: s.add_places(ints([-1, -2]), ints([1, 2])), "place 5 .*parent -2"),
        (lambda s: s.add_places(ints([-1, 5]), ints([1, 0])), "place 5 .*itself"),
        (lambda s: s.add_places(ints([5, 4]), ints([0, 0])), "place [45] .*itself"),
        (lambda s: s.add_places(ints([-1, 4]), ints([1, 1])), "place 4 .*children.* 1"),
        (lambda s: s.add_places(ints([1, 2]), ints([1, 1])), r"place 2 .*children.* [12]"),
    ],
)
def test_changes_of_places_that_make_no_forest_are_rejected(call: Call, message: str) -> None:
    assert_rejected_without_effect(call, message)


def assert_rejected_without_effect(call: Call, message: str) -> None:
    """Assert that the plan is unchanged and that changes before and after take effect."""
    mirror, solver = started()
    ids = mirror.ids()

    def shown() -> list[list[int]]:
        return [
            read.tolist()
            for read in (
                solver.place_of(ids),
                solver.leaf_of(ids),
                solver.cost_of(ids),
                solver.prices(),
            )
        ]

    before = shown()
    with pytest.raises(BadNetwork, match=message):
        call(solver)
    assert shown() == before
    check(mirror, solver)
    assert shown() == before

    make(SetCapacity([1, 0], [0, 2]), mirror, solver)
    make(Replace([0], [[(3, 4), (0, 5)]]), mirror, solver)
    with pytest.raises(BadNetwork, match=message):
        call(solver)
    make(Add([[(1, 0), (0, 3)]]), mirror, solver)
    check(mirror, solver)


def test_an_empty_problem_is_solved() -> None:
    solver = LaminarSolver(ints([]), ints([]))
    mirror = Mirror([], [])
    check(mirror, solver)
    assert solver.add(ints([0]), ints([]), ints([])).tolist() == []
    solver.remove(ints([]))
    solver.replace(ints([]), ints([0]), ints([]), ints([]))
    solver.set_capacity(ints([]), ints([]))
    solver.reprice_all(ints([]), ints([]))
    assert solver.moved().tolist() == []
    assert solver.add_places(ints([]), ints([])).tolist() == []
    check(mirror, solver)
    with pytest.raises(BadNetwork, match="place 0"):
        solver.add(*map(ints, ONE))
    assert solver.add_places(ints([-1]), ints([1])).tolist() == [0]
    mirror.parent, mirror.capacity = [-1], [1]
    make(Add([[(0, 7)]]), mirror, solver)
    check(mirror, solver)


def test_capacities_whose_sum_exceeds_64_bits_are_accepted() -> None:
    """The sum of capacities exceeds 64 bits."""
    endless = 2**62
    mirror = Mirror([-1, 0, 0, 0], [0, endless, endless, 1])
    solver = LaminarSolver(ints(mirror.parent), ints(mirror.capacity))
    make(Add([[(0, 1)], [(1, 0), (3, 0)], [(3, -1)], [(3, -2), (2, 4)]]), mirror, solver)
    check(mirror, solver)
