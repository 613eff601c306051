"""Every solver returns a min-cost max-flow, exactly and deterministically."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.networks import network
from tests.flow.unit_paths import unit_paths

from headgate.base.arrays import Ints
from headgate.flow import COST_LIMIT, BadNetwork, NativeSolver, Network, verify


@st.composite
def small_dags(draw: st.DrawFn) -> Network:
    """Return an acyclic network small enough that all flows can be enumerated."""
    vertices = draw(st.integers(2, 5))
    ends = st.lists(st.integers(0, vertices - 1), min_size=2, max_size=2, unique=True).map(sorted)
    arc = st.tuples(ends, st.integers(0, 2), st.integers(-3, 9))
    arcs = draw(st.lists(arc, max_size=6))
    supply = draw(st.lists(st.integers(0, 3), min_size=vertices - 1, max_size=vertices - 1))
    return network([(*e, u, c) for e, u, c in arcs], [*supply, -sum(supply)])


def best_of_all(net: Network) -> tuple[int, int]:
    """Return (units sent, -cost) of the best flow, by enumeration."""
    best = (0, 0)
    for flow in itertools.product(*(range(u + 1) for u in net.capacity.tolist())):
        out = np.zeros(net.vertices, np.int64)
        np.add.at(out, net.tail, flow)
        np.subtract.at(out, net.head, flow)
        if (out[:-1] >= 0).all() and (out[:-1] <= net.supply[:-1]).all():
            best = max(best, (-int(out[-1]), -int(np.dot(flow, net.cost))))
    return best


@given(small_dags())
def test_the_flow_is_the_best_of_all_flows(net: Network) -> None:
    solution = NativeSolver().solve(net)
    assert (solution.sent, -solution.cost) == best_of_all(net)
    assert (solution.flow >= 0).all()
    assert (solution.flow <= net.capacity).all()
    assert int(np.dot(solution.flow, net.cost)) == solution.cost


@given(small_dags())
def test_the_same_network_gives_the_same_flow(net: Network) -> None:
    first, second = NativeSolver().solve(net), NativeSolver().solve(net)
    assert first.flow.tolist() == second.flow.tolist()


@given(small_dags())
def test_unit_paths_decompose_the_flow_exactly(net: Network) -> None:
    flow = NativeSolver().solve(net).flow
    out = np.zeros(net.vertices, np.int64)
    np.add.at(out, net.tail, flow)
    np.subtract.at(out, net.head, flow)
    starts = np.repeat(np.arange(net.vertices), np.maximum(out, 0))
    paths = unit_paths(net, flow, starts)
    assert np.bincount(paths[paths >= 0], minlength=net.arcs).tolist() == flow.tolist()
    for start, path in zip(starts.tolist(), paths.tolist(), strict=True):
        steps = [a for a in path if a >= 0]
        assert path[: len(steps)] == steps
        assert [int(net.tail[a]) for a in steps] == [start, *net.head[steps[:-1]].tolist()]
        assert net.head[steps[-1]] == net.vertices - 1


def test_units_beyond_the_capacity_are_not_sent() -> None:
    solution = NativeSolver().solve(network([(0, 1, 2, 7)], [5, -5]))
    assert (solution.sent, solution.cost, solution.flow.tolist()) == (2, 14, [2])
    nothing = NativeSolver().solve(network([], [5, -5]))
    assert (nothing.sent, nothing.cost) == (0, 0)


def test_unbalanced_supplies_send_the_cheapest_units() -> None:
    """Of five units supplied and two demanded, the cheapest two are sent."""
    arcs = [(0, 2, 9, 3), (1, 2, 9, 1), (2, 3, 9, 0)]
    solution = NativeSolver().solve(network(arcs, [4, 1, 0, -2]))
    assert (solution.sent, solution.cost, solution.flow.tolist()) == (2, 4, [1, 1, 2])
    solution = NativeSolver().solve(network(arcs, [1, 0, 0, -7]))
    assert (solution.sent, solution.cost) == (1, 3)


@given(small_dags())
def test_the_units_sent_are_certified_the_cheapest(net: Network) -> None:
    solution = NativeSolver().solve(net)
    sent = np.zeros(net.vertices, np.int64)
    np.add.at(sent, net.tail, solution.flow)
    np.subtract.at(sent, net.head, solution.flow)
    certificate = verify(
        net.tail, net.head, net.capacity, net.cost, sent, solution.flow, solution.potential
    )
    assert certificate.clean, str(certificate)


def test_the_largest_costs_are_solved_exactly() -> None:
    cost = (COST_LIMIT - 1) // 6
    solution = NativeSolver().solve(network([(0, 1, 1, cost), (1, 2, 1, 1)], [1, 0, -1]))
    assert solution.cost == cost + 1


@pytest.mark.parametrize(
    ("arcs", "supply", "message"),
    [
        ([(0, 1, -1, 0)], [1, -1], "arc 0 has the negative capacity -1"),
        ([(0, 2, 1, 0)], [1, -1], "arc 0 has the head 2, but there are 2 vertices"),
        ([(-1, 1, 1, 0)], [1, -1], "arc 0 has the tail -1"),
        ([(0, 1, 1, 0), (0, 1, 1, COST_LIMIT)], [1, -1], "arc 1 costs"),
        ([(0, 1, 1, -(2**63))], [1, -1], "too large to solve exactly"),
    ],
)
def test_arrays_that_are_no_network_are_rejected(
    arcs: list[tuple[int, int, int, int]], supply: list[int], message: str
) -> None:
    with pytest.raises(BadNetwork, match=message):
        network(arcs, supply)


def test_arrays_of_different_lengths_are_rejected() -> None:
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(BadNetwork, match=r"different lengths.*'capacity': 2"):
        Network(tail=one, head=one, capacity=two, cost=one, supply=one)


def test_unit_paths_reject_a_flow_with_too_few_units() -> None:
    net = network([(0, 1, 9, 0)], [1, -1])
    with pytest.raises(BadNetwork, match="more units start"):
        unit_paths(net, np.array([1]), np.array([0, 0]))
    circle = network([(0, 1, 1, 0), (1, 0, 1, 0)], [0, 0])
    with pytest.raises(BadNetwork, match="more units start"):
        unit_paths(circle, np.array([1, 1]), np.array([0]))


def test_unit_paths_of_no_unit_are_empty() -> None:
    net = network([(0, 1, 9, 0)], [0, 0])
    none: Ints = np.zeros(0, np.int64)
    assert unit_paths(net, np.array([0]), none).shape == (0, 0)
