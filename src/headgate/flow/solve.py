"""Min-cost flow in any network, by the compiled solver: cost scaling, exact and deterministic."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Ints
from headgate.flow import _native
from headgate.flow.network import BadNetwork, InfeasibleFlow, Network, Solution

_MOST_ARCS = 1 << 29
_MOST_VERTICES = 1 << 28


class NativeSolver:
    """The compiled solver, for flows that need not send all units: min-cost max-flow."""

    def solve(self, network: Network) -> Solution:
        """Return a min-cost max-flow; cost and complexity as those of `solve`.

        When some units cannot be sent, it takes about three times as long.
        """
        if network.arcs > _MOST_ARCS or network.vertices > _MOST_VERTICES:
            raise BadNetwork(
                f"{network.arcs} arcs, {network.vertices} vertices: at most {_MOST_ARCS} arcs and "
                f"{_MOST_VERTICES} vertices can be solved"
            )
        flow, potential, cost, unsent = _native.min_cost_flow(
            network.tail, network.head, network.capacity, network.cost, network.supply
        )
        sent = _total(np.maximum(network.supply, 0)) - unsent
        return Solution(flow=flow, potential=potential, cost=cost, sent=sent)


def solve(
    tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, cost: ArrayLike, supply: ArrayLike
) -> Solution:
    """Return the cheapest flow that sends all supplies, with potentials that certify it.

    Arc a leads from vertex `tail[a]` to `head[a]` and carries at most `capacity[a]` units, each at
    `cost[a]`; `supply[v]` units enter at vertex v, or leave where it is negative. All are int64
    arrays (or what becomes one without loss), the first four of shape `[arcs]`, `supply` of shape
    `[vertices]`. The caller chooses the units of flow and of cost. Costs may be negative, also
    around a cycle; arcs may be parallel, be loops, and have capacity 0.

    `Solution.flow` has shape `[arcs]`, `Solution.potential` has shape `[vertices]`; with the
    reduced cost `cost + potential[head] - potential[tail]`, which is at least 0 on arcs with
    residual capacity and at most 0 on arcs with flow, they prove each other optimal.
    `Solution.cost` is exact. The same arrays give the same solution in any process.

    Raises BadNetwork for arrays that are no network; for supplies that are unbalanced; for costs,
    supplies or capacities so large that sums could overflow (costs: times (vertices + 3), 2^61;
    the sum of the capacities at a vertex, each reduced to the largest useful flow: 2^61).
    Raises InfeasibleFlow with the number of units that cannot be sent.

    Cost scaling (Goldberg and Tarjan 1990): O(vertices^2 x arcs x log(vertices x largest cost)) at
    worst, in practice near-linear in the arcs. Releases the GIL.
    """
    network = Network(
        tail=_ints("tail", tail),
        head=_ints("head", head),
        capacity=_ints("capacity", capacity),
        cost=_ints("cost", cost),
        supply=_ints("supply", supply),
    )
    entering = _total(np.maximum(network.supply, 0))
    balance = _total(network.supply)
    if balance:
        raise BadNetwork(
            f"supply is unbalanced: {entering} units enter, {entering - balance} leave"
        )
    solution = NativeSolver().solve(network)
    if solution.sent < entering:
        raise InfeasibleFlow(entering - solution.sent, entering)
    return solution


def _ints(name: str, values: ArrayLike) -> Ints:
    """Return values as an int64 array, if that changes none."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise BadNetwork(f"{name} has {array.ndim} dimensions: it must be an array of one")
    if array.size and not np.can_cast(array.dtype, np.int64):
        raise BadNetwork(f"{name} holds {array.dtype} values: they must be int64")
    return np.ascontiguousarray(array, np.int64)


def _total(values: Ints) -> int:
    """Return the exact sum."""
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    exact = values if largest * len(values) < 1 << 63 else values.astype(object)
    return int(exact.sum())
