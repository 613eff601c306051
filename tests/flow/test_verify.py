"""A clean certificate proves the optimum, the gap bounds it, violated conditions are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.laminar_cases import problems
from tests.flow.laminar_oracle import (
    Plan,
    Problem,
    certificate_of,
    ints,
    optimal_plan,
    optimum,
    problem_of,
)
from tests.flow.ortools_oracle import OrToolsSolver
from tests.flow.potentials import potentials

from headgate.base.arrays import Ints
from headgate.flow import BadNetwork, Certificate, Network, verify, verify_laminar

# -------------------------------------------------------------------------------- any network


def network(arcs: list[tuple[int, int, int, int]], supply: list[int]) -> Network:
    tail, head, capacity, cost = ints(arcs).reshape(-1, 4).T
    return Network(tail=tail, head=head, capacity=capacity, cost=cost, supply=ints(supply))


@st.composite
def flows(draw: st.DrawFn) -> tuple[Network, Ints]:
    """Return a network with costs of any sign, and a feasible flow, seldom optimal."""
    vertices = draw(st.integers(1, 6))
    vertex = st.integers(0, vertices - 1)
    arc = st.tuples(vertex, vertex, st.integers(0, 3), st.integers(-4, 9))
    arcs = [a for a in draw(st.lists(arc, max_size=12)) if a[0] != a[1]]
    flow = ints([draw(st.integers(0, capacity)) for _, _, capacity, _ in arcs])
    net = network(arcs, [0] * vertices)
    np.add.at(net.supply, net.tail, flow)
    np.subtract.at(net.supply, net.head, flow)
    return net, flow


def check(net: Network, flow: Ints, potential: Ints) -> Certificate:
    return verify(net.tail, net.head, net.capacity, net.cost, net.supply, flow, potential)


@given(flows())
def test_an_optimal_flow_is_clean_with_its_potentials(case: tuple[Network, Ints]) -> None:
    net, _ = case
    flow = OrToolsSolver().solve(net).flow
    certificate = check(net, flow, potentials(net, flow, 0))
    assert certificate.clean, str(certificate)


@given(flows(), st.data())
def test_the_optimum_is_within_the_gap_for_any_prices(
    case: tuple[Network, Ints], data: st.DataObject
) -> None:
    net, flow = case
    best = OrToolsSolver().solve(net)
    price = potentials(net, best.flow, 0)
    for vertex in data.draw(st.lists(st.integers(0, net.vertices - 1), max_size=2)):
        price[vertex] += data.draw(st.integers(-3, 3))
    certificate = check(net, flow, price)
    cost = int(np.dot(net.cost, flow))
    assert cost - certificate.gap <= best.cost <= cost
    assert certificate.clean == (certificate.gap == 0)
    assert all(fault.kind == "price" for fault in certificate.faults)


def test_every_violated_condition_is_counted_and_named() -> None:
    """Two paths from 0 to 2: direct for 5 (two units), via 1 for 1 + 1 (one unit)."""
    net = network([(0, 2, 2, 5), (0, 1, 1, 1), (1, 2, 1, 1)], [2, 0, -2])

    def certificate_of_flow(flow: list[int], price: list[int]) -> str:
        return str(check(net, ints(flow), ints(price)))

    assert certificate_of_flow([1, 1, 1], [5, 1, 0]) == "optimal: every condition holds, gap 0"
    assert certificate_of_flow([1, 1, 1], [6, 1, 0]) == "price: 1, first at arc 0; gap 1"
    assert certificate_of_flow([2, 0, 0], [5, 1, 0]) == "price: 1, first at arc 1; gap 3"
    assert "conservation: 2, first at vertex 0" in certificate_of_flow([1, 0, 1], [5, 1, 0])
    assert "capacity: 2, first at arc 1" in certificate_of_flow([0, 2, 2], [5, 1, 0])
    assert "capacity: 1, first at arc 0" in certificate_of_flow([-1, 1, 1], [5, 1, 0])


def test_numbers_are_exact_beyond_64_bits() -> None:
    most = 2**62
    cost, ends = ints([most, most - 1]), (ints([0, 0]), ints([1, 1]))
    room, supply = ints([most, most]), ints([most, -most])

    def checked(flow: list[int], price: int) -> Certificate:
        return verify(*ends, room, cost, supply, ints(flow), ints([price, 0]))

    assert checked([0, most], most).gap == most * most - most * most
    assert checked([0, most], most).clean
    assert checked([most, 0], most).gap == most
    assert checked([0, most], -most).gap == most * (2 * most - 1)


def test_a_network_without_arcs() -> None:
    assert check(network([], [0, 0]), ints([]), ints([3, 4])).clean
    assert check(network([], [1, -1]), ints([]), ints([0, 0])).violations == 2


def test_arrays_of_wrong_shapes_are_rejected() -> None:
    net = network([(0, 1, 1, 1)], [1, -1])
    with pytest.raises(BadNetwork, match=r"arcs have different lengths.*'flow': 2"):
        check(net, ints([1, 1]), ints([1, 0]))
    with pytest.raises(BadNetwork, match=r"vertices have different lengths.*'potential': 1"):
        check(net, ints([1]), ints([1]))
    with pytest.raises(BadNetwork, match=r"head\[0\] is 5, not in 0..1"):
        verify(net.tail, ints([5]), net.capacity, net.cost, net.supply, ints([1]), ints([1, 0]))


# -------------------------------------------------------------------------------- laminar


@given(problems())
def test_an_optimal_plan_is_clean_with_its_prices(problem: Problem) -> None:
    certificate = certificate_of(problem, optimal_plan(problem))
    assert certificate.clean, str(certificate)
    assert certificate.unplaced == optimum(problem).unplaced


@st.composite
def plans(draw: st.DrawFn, problem: Problem) -> tuple[Plan, int]:
    """Return a random plan within the capacities, and its cost."""
    parent, left = problem.parent.tolist(), problem.capacity.tolist()
    chosen, leaves, total = [], [], 0
    for first, end in zip(problem.offsets[:-1].tolist(), problem.offsets[1:].tolist(), strict=True):
        choices = [
            (int(problem.cost[option]), int(problem.place[option]), leaf)
            for option in range(first, end)
            for leaf in range(len(parent))
            if left[leaf] and is_below(parent, leaf, int(problem.place[option]))
        ]
        cheapest = {choice[1:]: choice for choice in sorted(choices, reverse=True)}
        choice = draw(st.sampled_from([*sorted(cheapest.values()), None][:4]))
        if choice is None:
            chosen.append(-1)
            leaves.append(-1)
            continue
        total += choice[0]
        chosen.append(choice[1])
        leaves.append(choice[2])
        left[choice[2]] -= 1
    return Plan(chosen_place=ints(chosen), leaf=ints(leaves), prices=ints([0] * len(parent))), total


def is_below(parent: list[int], place: int, above: int) -> bool:
    while place not in {above, -1}:
        place = parent[place]
    return place == above


@given(problems(most_places=8, most_units=6), st.data())
def test_the_optimum_is_within_the_gap_for_any_plan_and_prices(
    problem: Problem, data: st.DataObject
) -> None:
    best = optimum(problem)
    plan, cost = data.draw(plans(problem))
    prices = data.draw(st.sampled_from([plan.prices, optimal_plan(problem).prices])).copy()
    for place in data.draw(st.lists(st.integers(0, len(prices) - 1), max_size=2)):
        prices[place] += data.draw(st.integers(-3, 3))
    certificate = certificate_of(problem, replace(plan, prices=prices))
    kinds = {fault.kind for fault in certificate.faults}
    assert kinds <= {"tree", "spare", "price", "room", "waiting"}
    assert ("room" in kinds) == (certificate.unplaced > best.unplaced)
    if "room" not in kinds:
        assert cost - certificate.gap <= best.cost <= cost
    if not kinds:
        assert certificate.gap == 0


# A pool (0) of two; a tree: root 1 with the leaves 2 (one unit) and 3 (one unit).
PARENT, CAPACITY = [-1, -1, 1, 1], [2, 0, 1, 1]
UNITS = [[(2, 1), (0, 9)], [(2, 2), (1, 4), (0, 9)], [(1, 5), (0, 8)]]
BEST = ([2, 1, 0], [2, 3, 0], [0, 3, 5, 3])


@pytest.mark.parametrize(
    ("chosen", "leaf", "prices", "message"),
    [
        (*BEST, "optimal: every condition holds, gap 0"),
        ([2, 1, 2], [2, 3, 2], BEST[2], "option: 1, first at unit 2"),
        ([2, 1, 0], [2, 0, 0], BEST[2], "leaf: 1, first at unit 1"),
        ([2, 1, 0], [2, 1, 0], BEST[2], "leaf: 1, first at unit 1"),
        ([2, 1, 0], [2, -1, 0], BEST[2], "leaf: 1, first at unit 1"),
        ([2, 1, -1], [2, 3, 0], BEST[2], "leaf: 1, first at unit 2"),
        ([2, 2, 0], [2, 2, 0], BEST[2], "capacity: 1, first at place 2"),
        (*BEST[:2], [0, 3, 5, 4], "tree: 1, first at place 3"),
        (*BEST[:2], [0, 6, 5, 6], "tree: 1, first at place 2"),
        (*BEST[:2], [1, 3, 5, 3], "spare: 1, first at place 0"),
        (*BEST[:2], [-1, 3, 5, 3], "spare: 1, first at place 0"),
        (*BEST[:2], [0, 2, 5, 2], "price: 1, first at unit 2"),
        ([2, 1, -1], [2, 3, -1], BEST[2], "room: 1, first at place 0"),
    ],
)
def test_every_violated_condition_of_a_plan_is_named(
    chosen: list[int], leaf: list[int], prices: list[int], message: str
) -> None:
    problem = problem_of(PARENT, CAPACITY, UNITS)
    plan = Plan(chosen_place=ints(chosen), leaf=ints(leaf), prices=ints(prices))
    certificate = certificate_of(problem, plan)
    assert message in str(certificate)
    assert certificate.unplaced == chosen.count(-1)


def test_the_most_expensive_unit_waits_when_not_all_fit() -> None:
    problem = problem_of([-1], [1], [[(0, 3)], [(0, 7)]])

    def certificate_of_plan(chosen: list[int], price: int) -> str:
        plan = Plan(chosen_place=ints(chosen), leaf=ints(chosen), prices=ints([price]))
        return str(certificate_of(problem, plan))

    assert (
        certificate_of_plan([0, -1], 0)
        == certificate_of_plan([0, -1], 50)
        == "optimal: every condition holds, gap 0"
    )
    assert certificate_of_plan([-1, 0], 0) == "waiting: 1, first at unit 0; gap 4"


def test_prices_and_costs_of_plans_are_exact_beyond_64_bits() -> None:
    most = 2**61
    problem = problem_of([-1, -1], [3, 9], [[(0, -most), (1, most)]] * 4)
    plan = Plan(
        chosen_place=ints([0, 0, 0, 1]), leaf=ints([0, 0, 0, 1]), prices=ints([2 * most, 0])
    )
    assert certificate_of(problem, plan).clean
    none = replace(plan, chosen_place=ints([1] * 4), leaf=ints([1] * 4), prices=ints([0, 0]))
    assert certificate_of(problem, none).gap == 8 * most


def test_an_empty_plan_is_clean() -> None:
    empty = Plan(chosen_place=ints([]), leaf=ints([]), prices=ints([]))
    assert certificate_of(problem_of([], [], []), empty).clean
    assert certificate_of(problem_of([-1], [3], []), replace(empty, prices=ints([0]))).clean
    priced = certificate_of(problem_of([-1], [3], []), replace(empty, prices=ints([2])))
    assert (priced.violations, priced.gap) == (1, 6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"capacity": [1]}, r"places have different lengths.*'capacity': 1"),
        ({"cost": [1]}, r"options have different lengths"),
        ({"leaf": [1]}, r"units have different lengths"),
        ({"offsets": [0, 2, 5]}, "offsets do not cut 7 options into those of 3 units"),
        ({"offsets": [0, 2, 2, 7]}, "unit 1 has no option"),
        ({"parent": [-1, -1, 1, 4]}, r"parent\[3\] is 4, not in -1..3"),
        ({"parent": [-1, 3, 1, 1]}, "is below itself"),
        ({"place": [0, 0, 0, 0, 0, 0, 9]}, r"place\[6\] is 9, not in 0..3"),
        ({"chosen_place": [0, 0, -2]}, r"chosen_place\[2\] is -2, not in -1..3"),
        ({"leaf": [0, 0, 4]}, r"leaf\[2\] is 4, not in -1..3"),
    ],
)
def test_a_plan_of_arrays_of_wrong_shapes_is_rejected(
    changed: dict[str, list[int]], message: str
) -> None:
    problem = problem_of(PARENT, CAPACITY, UNITS)
    chosen, leaf, prices = BEST
    arrays = {
        "parent": problem.parent,
        "capacity": problem.capacity,
        "offsets": problem.offsets,
        "place": problem.place,
        "cost": problem.cost,
        "chosen_place": ints(chosen),
        "leaf": ints(leaf),
        "prices": ints(prices),
    }
    with pytest.raises(BadNetwork, match=message):
        verify_laminar(**{**arrays, **{name: ints(values) for name, values in changed.items()}})
