"""Potentials certify an optimal flow, and are the marginal values of capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.networks import network
from tests.flow.ortools_oracle import OrToolsSolver
from tests.flow.potentials import UNREACHABLE, potentials

from headgate.base.arrays import Ints
from headgate.flow import BadNetwork, Network

FAR = UNREACHABLE // 2


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Return a network with parallel, opposite and cyclic arcs (no negative cycle)."""
    vertices = draw(st.integers(2, 7))
    ends = st.lists(st.integers(0, vertices - 1), min_size=2, max_size=2, unique=True)
    arc = st.tuples(ends, st.integers(0, 3), st.integers(0, 9))
    arcs = draw(st.lists(arc, max_size=18))
    height = draw(st.lists(st.integers(-5, 5), min_size=vertices, max_size=vertices))
    supply = draw(st.lists(st.integers(0, 3), min_size=vertices - 1, max_size=vertices - 1))
    return network(
        [(a, b, u, c + height[a] - height[b]) for (a, b), u, c in arcs], [*supply, -sum(supply)]
    )


def reduced(net: Network, price: Ints) -> Ints:
    return net.cost + price[net.head] - price[net.tail]


@given(networks())
def test_reduced_costs_of_an_optimal_flow_satisfy_complementary_slackness(net: Network) -> None:
    flow = OrToolsSolver().solve(net).flow
    for root in range(net.vertices):
        cost = reduced(net, potentials(net, flow, root))
        assert (cost[flow < net.capacity] >= 0).all()
        assert (cost[flow > 0] <= 0).all()
        assert (cost[(flow > 0) & (flow < net.capacity)] == 0).all()


@given(networks())
def test_potential_is_zero_at_the_root_and_unreachable_without_a_path(
    net: Network,
) -> None:
    solution = OrToolsSolver().solve(net)
    sink = net.vertices - 1
    price = potentials(net, solution.flow, sink)
    assert price[sink] == 0
    sent = np.zeros(net.vertices, np.int64)
    np.add.at(sent, net.tail, solution.flow)
    np.subtract.at(sent, net.head, solution.flow)
    assert (price[:sink][sent[:sink] < net.supply[:sink]] > FAR).all()


@given(networks(), st.data())
def test_one_unit_of_capacity_less_changes_the_optimum_by_its_potential(
    net: Network, data: st.DataObject
) -> None:
    """One unit less on a saturated path to the sink changes the optimum by the potential."""
    solution = OrToolsSolver().solve(net)
    sink = net.vertices - 1
    full = (net.head == sink) & (solution.flow == net.capacity) & (net.capacity > 0)
    if not full.any():
        return
    arc = data.draw(st.sampled_from(np.flatnonzero(full).tolist()))
    less = net.capacity.copy()
    less[arc] -= 1
    without = OrToolsSolver().solve(replace(net, capacity=less))
    price = int(potentials(net, solution.flow, sink)[net.tail[arc]])
    if price > FAR:
        assert without.sent == solution.sent - 1
    else:
        assert without.sent == solution.sent
        assert without.cost - solution.cost == price - int(net.cost[arc])


def test_potentials_of_a_small_example() -> None:
    """Two tasks want the one cheap slot (cost 1); their other slots cost 10 and 30."""
    arcs = [
        (0, 2, 1, 1), (0, 3, 2, 10), (1, 2, 1, 1), (1, 3, 1, 30), (2, 4, 1, 0), (3, 4, 2, 0),
    ]  # fmt: skip
    net = network(arcs, [1, 1, 0, 0, -2])
    flow = OrToolsSolver().solve(net).flow
    assert flow.tolist() == [0, 1, 1, 0, 1, 1]
    # The task with the cheap slot would lose 29 without it; the other one pays 10.
    assert potentials(net, flow, 4).tolist() == [10, 30, 29, 0, 0]


def test_a_flow_that_is_not_optimal_has_no_potentials() -> None:
    net = network([(0, 1, 1, 5), (0, 1, 1, 2)], [1, -1])
    with pytest.raises(BadNetwork, match="not optimal"):
        potentials(net, np.array([1, 0]), 1)


def test_potentials_of_a_network_without_arcs() -> None:
    net = network([], [1, -1])
    assert potentials(net, np.zeros(0, np.int64), 1).tolist() == [UNREACHABLE, 0]
