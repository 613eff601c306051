"""Networks as tests write them."""

from __future__ import annotations

import numpy as np

from headgate.flow import Network


def network(arcs: list[tuple[int, int, int, int]], supply: list[int]) -> Network:
    """Return a network of arcs, each (tail, head, capacity, cost)."""
    tail, head, capacity, cost = np.array(arcs, np.int64).reshape(-1, 4).T
    return Network(
        tail=tail, head=head, capacity=capacity, cost=cost, supply=np.array(supply, np.int64)
    )
