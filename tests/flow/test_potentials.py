"""Potentials prove that a flow is optimal, and price each unit of capacity truly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.ortools_oracle import OrToolsSolver
from tests.flow.potentials import UNREACHABLE, potentials

from headgate.flow import BadNetwork, Ints, Network

FAR = UNREACHABLE // 2


def network(arcs: list[tuple[int, int, int, int]], supply: list[int]) -> Network:
    tail, head, capacity, cost = np.array(arcs, np.int64).reshape(-1, 4).T
    return Network(
        tail=tail, head=head, capacity=capacity, cost=cost, supply=np.array(supply, np.int64)
    )


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Arcs both ways, in parallel and in circles (of no negative cost), flow to the last vertex."""
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
def test_no_change_of_an_optimal_flow_saves_anything(net: Network) -> None:
    flow = OrToolsSolver().solve(net).flow
    for root in range(net.vertices):
        cost = reduced(net, potentials(net, flow, root))
        assert (cost[flow < net.capacity] >= 0).all()
        assert (cost[flow > 0] <= 0).all()
        assert (cost[(flow > 0) & (flow < net.capacity)] == 0).all()


@given(networks())
def test_the_potential_of_the_root_is_nothing_and_of_who_cannot_send_more_out_of_reach(
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
def test_a_unit_of_capacity_is_worth_its_price(net: Network, data: st.DataObject) -> None:
    """A full way to the sink with a unit less: the optimum changes by its potential."""
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


def test_prices_by_hand() -> None:
    """Two tasks want the one good slot (cost 1); the bad ones cost 10 and 30."""
    arcs = [
        (0, 2, 1, 1), (0, 3, 2, 10), (1, 2, 1, 1), (1, 3, 1, 30), (2, 4, 1, 0), (3, 4, 2, 0),
    ]  # fmt: skip
    net = network(arcs, [1, 1, 0, 0, -2])
    flow = OrToolsSolver().solve(net).flow
    assert flow.tolist() == [0, 1, 1, 0, 1, 1]
    # Who gets the good slot would lose 29 without it; who does not get it pays 10.
    assert potentials(net, flow, 4).tolist() == [10, 30, 29, 0, 0]


def test_a_flow_that_is_not_optimal_has_none() -> None:
    net = network([(0, 1, 1, 5), (0, 1, 1, 2)], [1, -1])
    with pytest.raises(BadNetwork, match="not optimal"):
        potentials(net, np.array([1, 0]), 1)


def test_a_network_without_arcs() -> None:
    net = network([], [1, -1])
    assert potentials(net, np.zeros(0, np.int64), 1).tolist() == [UNREACHABLE, 0]
