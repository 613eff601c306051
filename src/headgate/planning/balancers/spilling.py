"""Local first, then spill over: which nodes are candidates for a task."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Ints


def spill(total: Ints, available: Ints, demand: Ints, local: int | None = None) -> Ints:
    """Return the nodes among which a balancer chooses for a task of a demand.

    `total` and `available` are amounts `[nodes, kinds]`, `demand` is by kind. The local node alone
    if it is available; else the nodes that are; else those that could hold the task while idle,
    where it queues. None of them: the task is infeasible. O(nodes x kinds).
    """
    now: Bools = np.all(available >= demand, axis=1)
    if local is not None and now[local]:
        return np.array([local])
    return np.flatnonzero(now if now.any() else np.all(total >= demand, axis=1))
