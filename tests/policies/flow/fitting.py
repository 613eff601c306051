"""Which numbers of tasks fit GPUs of several kinds together: an independent check."""

from __future__ import annotations

import numpy as np
from tests.flow.ortools_oracle import OrToolsSolver

from headgate.base.arrays import Bools, Ints
from headgate.flow import Network


def fits(tasks: Ints, accepts: Bools, gpus: Ints, jobs: Ints) -> bool:
    """Return whether so many tasks of each of the `jobs` fit the GPUs together, by maximum flow.

    `tasks`, `[jobs, types]`, are all that they have, `accepts`, `[types, kinds]`, which GPUs suit.
    """
    (count, types), kinds = tasks.shape, len(gpus)
    cell = count + np.arange(count * types).reshape(count, types)
    gpu = count + count * types
    arcs = [(j, cell[j, t], tasks[j, t]) for j in range(count) for t in range(types)]
    arcs += [
        (cell[j, t], gpu + k, tasks[j, t])
        for j in range(count)
        for t in range(types)
        for k in np.flatnonzero(accepts[t]).tolist()
    ]
    arcs += [(gpu + k, gpu + kinds, gpus[k]) for k in range(kinds)]
    tail, head, capacity = np.array(arcs, np.int64).T
    supply = np.zeros(gpu + kinds + 1, np.int64)
    supply[:count], supply[-1] = jobs, -jobs.sum()
    network = Network(
        tail=tail, head=head, capacity=capacity, cost=np.zeros_like(tail), supply=supply
    )
    return OrToolsSolver().solve(network).sent == jobs.sum()
