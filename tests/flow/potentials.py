"""Dual prices of an optimal flow: potentials, from its residual network."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.flow.network import COST_LIMIT, BadNetwork, Network

UNREACHABLE = COST_LIMIT
"""Potentials of about this size: the vertex has no path to the root."""


def potentials(network: Network, flow: Ints, root: int) -> Ints:
    """Return the least cost of one more unit from each vertex to `root`, `[vertices]`.

    They are shortest path lengths in the residual network of an optimal flow: along arcs with
    residual capacity at their cost, and back along arcs with flow at the negative cost. Where there
    is no path the potential is `UNREACHABLE`, less the negative costs on arcs before.

    So `cost + p[head] - p[tail]` (the reduced cost) is at least 0 on every arc with capacity left,
    at most 0 on every arc with flow, and 0 on an arc with both. With the sink as root, the
    potential of a vertex whose path to the sink is saturated is the price of its capacity: what
    all the others would lose if it had a unit less. Potentials of an optimal flow differ with the
    root, and all are true: each is the change of the optimum in another direction.

    Bellman-Ford, O(vertices x arcs) at worst, but O(arcs) for each arc of the longest shortest
    path. Raises BadNetwork when the flow is not optimal: a residual cycle of negative cost exists.
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
    raise BadNetwork("the flow is not optimal: a cycle of negative cost is left")
