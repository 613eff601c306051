"""What an optimal flow says of prices: the dual of a min-cost flow, from its residual network."""

from __future__ import annotations

import numpy as np

from headgate.flow.network import COST_LIMIT, BadNetwork, Ints, Network

UNREACHABLE = COST_LIMIT
"""Potentials of this size, or near it: no unit can go from there to the root."""


def potentials(network: Network, flow: Ints, root: int) -> Ints:
    """Return what one more unit from each vertex to `root` costs at least, `[vertices]`.

    The ways are those of the residual network of an optimal flow: along arcs with capacity left, at
    their cost, and back along arcs with flow, which gives their cost back. Where there is no way
    the potential is `UNREACHABLE`, less what ways back save on the road.

    So `cost + p[head] - p[tail]` (the reduced cost) is at least 0 on every arc with capacity left,
    at most 0 on every arc with flow, and 0 on an arc with both. With the sink as root, the
    potential of a vertex whose way to the sink is full is the price of a unit of that way: what
    all the others would lose if it had a unit less. Potentials of an optimal flow differ with the
    root, and all are true: each is the change of the optimum in another direction.

    Bellman-Ford, O(vertices x arcs) at worst, but O(arcs) for each step of the longest cheapest
    way. Raises BadNetwork when the flow is not optimal: a circle of negative cost is left.
    """
    ahead, back = np.flatnonzero(flow < network.capacity), np.flatnonzero(flow > 0)
    tail = np.concatenate([network.tail[ahead], network.head[back]])
    head = np.concatenate([network.head[ahead], network.tail[back]])
    cost = np.concatenate([network.cost[ahead], -network.cost[back]])
    order = np.argsort(tail, kind="stable")
    tail, head, cost = tail[order], head[order], cost[order]
    starts = np.flatnonzero(np.diff(tail, prepend=-1))
    vertex = tail[starts]

    price = np.full(network.vertices, UNREACHABLE, np.int64)
    price[root] = 0
    if not len(tail):
        return price
    for _ in range(network.vertices + 1):
        best = np.minimum.reduceat(cost + price[head], starts)
        better = best < price[vertex]
        if not better.any():
            return price
        price[vertex[better]] = best[better]
    raise BadNetwork("the flow is not optimal: a circle of negative cost is left")
