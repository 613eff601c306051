"""`solve` returns the certified optimum of any network, or raises a clear error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.ortools_oracle import OrToolsSolver

from headgate.base.arrays import Ints
from headgate.flow import COST_LIMIT, BadNetwork, InfeasibleFlow, Network, Solution, solve, verify

Arc = tuple[int, int, int, int]

LARGE = 1 << 40


def solved(arcs: list[Arc], supply: list[int]) -> Solution:
    tail, head, capacity, cost = np.array(arcs, np.int64).reshape(-1, 4).T
    return solve(tail, head, capacity, cost, np.array(supply, np.int64))


def assert_proved(net: Network, solution: Solution) -> None:
    """Assert that every optimality condition holds on every arc."""
    certificate = verify(
        net.tail, net.head, net.capacity, net.cost, net.supply, solution.flow, solution.potential
    )
    assert certificate.clean, str(certificate)


# -------------------------------------------------------------------------------- the optimum


@st.composite
def solvable(draw: st.DrawFn) -> Network:
    """Return arcs with costs of any sign and size, and feasible supplies."""
    vertices = draw(st.integers(1, 9))
    vertex = st.integers(0, vertices - 1)
    most_cost = draw(st.sampled_from([0, 1, 9, LARGE, (COST_LIMIT - 1) // 12]))
    cost = st.integers(draw(st.sampled_from([0, -most_cost])), most_cost)
    capacity = st.integers(0, draw(st.sampled_from([1, 4, LARGE])))
    arcs = draw(st.lists(st.tuples(vertex, vertex, capacity, cost), max_size=30))
    tail, head, room, price = np.array(arcs, np.int64).reshape(-1, 4).T
    supply = np.zeros(vertices, np.int64)
    flow = [draw(st.integers(0, u)) for u in room.tolist()]
    np.add.at(supply, tail, flow)
    np.subtract.at(supply, head, flow)
    return Network(tail=tail, head=head, capacity=room, cost=price, supply=supply)


@given(solvable())
def test_the_optimum_is_certified_and_equals_that_of_or_tools(net: Network) -> None:
    solution = solve(net.tail, net.head, net.capacity, net.cost, net.supply)
    assert_proved(net, solution)
    assert solution.cost == OrToolsSolver().solve(net).cost
    assert solution.sent == int(np.maximum(net.supply, 0).sum())


@given(solvable(), st.data())
def test_infeasible_units_are_counted(net: Network, data: st.DataObject) -> None:
    """The number equals that of a maximum flow by OR-tools."""
    vertex = st.integers(0, net.vertices - 1)
    for units in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)):
        net.supply[data.draw(vertex)] += units
        net.supply[data.draw(vertex)] -= units
    entering = int(np.maximum(net.supply, 0).sum())
    unsent = entering - OrToolsSolver().solve(net).sent
    if not unsent:
        assert_proved(net, solve(net.tail, net.head, net.capacity, net.cost, net.supply))
        return
    reason = f"{unsent} of {entering} units cannot be sent"
    with pytest.raises(InfeasibleFlow, match=reason) as refused:
        solve(net.tail, net.head, net.capacity, net.cost, net.supply)
    assert refused.value.unsent == unsent


def random_network(
    vertices: int, seed: int, cost: Callable[[np.random.Generator], Ints]
) -> Network:
    """Return a network with six arcs from each vertex and feasible supplies."""
    rng = np.random.default_rng(seed)
    tail = np.repeat(np.arange(vertices), 6)
    head = rng.integers(0, vertices, len(tail))
    capacity = rng.integers(0, 9, len(tail))
    flow, supply = rng.integers(0, capacity + 1), np.zeros(vertices, np.int64)
    np.add.at(supply, tail, flow)
    np.subtract.at(supply, head, flow)
    return Network(tail=tail, head=head, capacity=capacity, cost=cost(rng), supply=supply)


@pytest.mark.parametrize("most", [0, 1, 1000, COST_LIMIT // 504])
@pytest.mark.parametrize("least", [0, -1])
def test_networks_of_hundreds_of_vertices_are_solved(most: int, least: int) -> None:
    net = random_network(500, most, lambda rng: rng.integers(least * most, most + 1, 3000))
    solution = solve(net.tail, net.head, net.capacity, net.cost, net.supply)
    assert_proved(net, solution)


def test_the_same_arrays_give_the_same_solution() -> None:
    net = random_network(200, 1, lambda rng: rng.integers(-1, 2, 1200))
    first, second = (
        solve(net.tail, net.head, net.capacity, net.cost, net.supply) for _ in range(2)
    )
    assert first.flow.tolist() == second.flow.tolist()
    assert first.potential.tolist() == second.potential.tolist()


# -------------------------------------------------------------------------------- edges of the map


def test_cycles_of_negative_cost_are_saturated() -> None:
    solution = solved([(0, 1, 3, -5), (1, 0, 2, 1), (1, 1, 4, -2), (0, 0, 9, 0)], [0, 0])
    assert solution.flow[:3].tolist() == [2, 2, 4]
    assert solution.cost == -16


def test_the_cheaper_of_parallel_arcs_fills_first() -> None:
    solution = solved([(0, 1, 9, 3), (0, 1, 2, 1), (0, 1, 0, -9)], [5, -5])
    assert solution.flow.tolist() == [3, 2, 0]
    assert solution.cost == 11


def test_empty_and_tiny_networks_are_solved() -> None:
    nothing = solve([], [], [], [], [])
    assert (nothing.flow.tolist(), nothing.potential.tolist()) == ([], [])
    assert (nothing.cost, nothing.sent) == (0, 0)
    alone = solved([], [0, 0])
    assert (alone.flow.tolist(), len(alone.potential), alone.cost) == ([], 2, 0)


def test_no_unit_is_sent_into_a_dead_end() -> None:
    """A vertex without outgoing arcs looks cheap, and no unit may end there."""
    arcs = [(0, 1, 5, -1000), (0, 2, 5, 7), (2, 1, 5, -2000), (2, 3, 5, 0)]
    solution = solved(arcs, [5, 0, 0, -5])
    assert (solution.flow.tolist(), solution.cost) == ([0, 5, 0, 5], 35)


def test_a_cost_beyond_64_bits_is_exact() -> None:
    cost = (COST_LIMIT - 1) // 5
    solution = solved([(0, 1, LARGE, cost)], [LARGE, -LARGE])
    assert solution.cost == LARGE * cost > 2**63


def test_the_longest_path_at_the_highest_costs_is_exact() -> None:
    """Potentials along it differ as much as possible."""
    vertices = 1000
    cost = (COST_LIMIT - 1) // (vertices + 3)
    arcs = [(v, v + 1, 1, cost) for v in range(vertices - 1)]
    solution = solved(arcs, [1, *[0] * (vertices - 2), -1])
    steps = np.diff(solution.potential[::-1])
    assert solution.cost == cost * (vertices - 1)
    assert (steps == cost).all()


def test_huge_capacities_mean_no_limit() -> None:
    no_limit = 2**63 - 1
    arcs = [(0, 1, no_limit, 2), (0, 1, no_limit, 1), (1, 0, no_limit, 0), (1, 2, no_limit, 0)]
    solution = solved(arcs, [7, 0, -7])
    assert (solution.flow[0], solution.flow[3], solution.cost) == (0, 7, 7)


def test_smaller_integer_dtypes_are_converted() -> None:
    small = np.array([0], np.int32)
    solution = solve(small, [1], np.array([True]), np.array([3], np.uint8), [1, -1])
    assert (solution.flow.tolist(), solution.cost) == ([1], 3)


# -------------------------------------------------------------------------------- refusals


def test_infeasible_error_names_the_units_not_sent() -> None:
    with pytest.raises(InfeasibleFlow, match="3 of 5 units cannot be sent"):
        solved([(0, 1, 2, 7)], [5, -5])
    with pytest.raises(InfeasibleFlow, match="4 of 4 units") as refused:
        solved([], [4, -4])
    assert refused.value.unsent == 4


@pytest.mark.parametrize(
    ("arcs", "supply", "message"),
    [
        ([(0, 1, 9, 0)], [3, -2], "unbalanced: 3 units enter, 2 leave"),
        ([(0, 1, 9, 0)], [2**62, -(2**62)], "supplies are 4611686018427387904 units together"),
        ([(0, 1, 9, 0)], [2**63 - 1, 1], "unbalanced: 9223372036854775808 units enter, 0 leave"),
        ([(0, 1, -4, 0)], [0, 0], "arc 0 has the negative capacity -4"),
        ([(0, 1, 4, 0), (0, 2, 4, 0)], [0, 0], "arc 1 has the head 2, but there are 2 vertices"),
        ([(-1, 1, 4, 0)], [0, 0], "arc 0 has the tail -1"),
        ([(0, 1, 4, 0)], [], "there are 0 vertices"),
        ([(0, 1, 1, 0), (0, 1, 1, COST_LIMIT // 5 + 1)], [0, 0], "arc 1 costs .* too large"),
        ([(0, 1, 1, -(2**63))], [0, 0], "arc 0 costs -9223372036854775808: too large"),
        ([(0, 1, 2**62, -1)], [0, 0], "arcs of negative cost carry 4611686018427387904 units"),
        (
            [(0, 1, 2**60, 0)] * 3,
            [2**60, -(2**60)],
            "the arcs of vertex 0 carry 3458764513820540928 units together: too many",
        ),
    ],
)
def test_invalid_networks_are_rejected(arcs: list[Arc], supply: list[int], message: str) -> None:
    with pytest.raises(BadNetwork, match=message):
        solved(arcs, supply)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cost": [1, 2]}, r"different lengths: .*'cost': 2"),
        ({"cost": [1.0]}, "cost holds float64 values: they must be int64"),
        ({"capacity": np.array([1], np.uint64)}, "capacity holds uint64 values"),
        ({"supply": [[1, -1]]}, "supply has 2 dimensions"),
        ({"tail": ["a"]}, "tail holds .* values"),
        ({"head": [2**70]}, "head holds object values"),
    ],
)
def test_arrays_of_a_wrong_dtype_or_shape_are_rejected(
    changed: dict[str, object], message: str
) -> None:
    arrays: dict[str, object] = {
        "tail": [0], "head": [1], "capacity": [1], "cost": [1], "supply": [1, -1]
    }  # fmt: skip
    with pytest.raises(BadNetwork, match=message):
        solve(**{**arrays, **changed})  # type: ignore[arg-type]
