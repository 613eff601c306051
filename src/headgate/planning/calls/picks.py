"""Balancers between leases: which lease gets the next items."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from headgate.planning.balancers import Balancer, LeastCost, Memo, Scores
from headgate.planning.calls.dispatch import Lease, Pick, soonest


def picks_by(balancer: Balancer, *, seed: int = 0) -> Pick:
    """Return the choice between leases that a balancer makes, for one `Dispatcher`.

    The resources of a lease are its slots, its load the items that it has been sent, which may
    exceed them. `least-cost` is `soonest`. O(leases) for a choice.
    """
    if isinstance(balancer, LeastCost):
        return soonest
    rng = Random(seed)
    memo: Memo = {}

    def pick(leases: Sequence[Lease]) -> int:
        numbers = np.array([lease.number for lease in leases])
        slots = np.zeros(numbers.max() + 1)
        load = np.zeros(len(slots))
        most = max(len(lease.slots) for lease in leases)
        slots[numbers] = [len(lease.slots) / most for lease in leases]
        load[numbers] = [lease.sent / most for lease in leases]
        scores = Scores(total=slots, available=np.maximum(slots - load, 0.0), load=load)
        node = balancer.pick(numbers, scores, rng, memo)
        return int(np.flatnonzero(numbers == node)[0])

    return pick
