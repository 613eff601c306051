"""Many grants checked in columns: which of them fit separately, and whether they fit together.

The results are those of a `Ledger` that takes them one by one, in O(grants + GPUs + nodes), for
grants of whole GPUs or none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.state.snapshot import Snapshot
from headgate.state.tables import GPU_FREE

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ManyGrants:
    """Requested grants on a snapshot, one value each; rows of demands and nodes exist.

    The GPUs of grant i, as indices on its node, are `gpu[gpu_offset[i] : gpu_offset[i + 1]]`.
    """

    __slots__ = ("_count", "_demand", "_demands", "_gpu", "_grant", "_node", "_snapshot")

    def __init__(
        self, snapshot: Snapshot, demand: Ints, node: Ints, gpu_offset: Ints, gpu: Ints
    ) -> None:
        self._snapshot, self._node = snapshot, node
        self._demands, self._demand = np.unique(demand, return_inverse=True)
        self._count = np.diff(gpu_offset)
        self._grant = np.repeat(np.arange(len(demand)), self._count)  # of each GPU
        nodes = snapshot.nodes
        there = (gpu >= 0) & (gpu < nodes.gpu_count.take(node)[self._grant])
        row = nodes.first_gpu.take(node)[self._grant] + gpu
        self._gpu: Ints = np.where(there, row, -1)

    @property
    def in_part(self) -> bool:
        """Whether any grant is of a part of a GPU, which only a ledger can judge."""
        return any(self._snapshot.names.demands[d].in_part for d in self._demands.tolist())

    @property
    def gpus_milli(self) -> Ints:
        """The thousandths of GPUs that each grant holds, `[grants]`."""
        return self._by_demand("gpus_milli")

    def _by_demand(self, name: str) -> Ints:
        demands = self._snapshot.names.demands
        amounts = [getattr(demands[row], name) for row in self._demands.tolist()]
        values: Ints = np.array(amounts, np.int64)[self._demand]
        return values

    def fit_alone(self) -> Bools:
        """Return which grants fit, each as if it were the only one, `[grants]`.

        One that names a GPU twice may pass here; it does not `fit_together`.
        """
        there = np.flatnonzero(self._gpu >= 0)
        gpus, row, grant = self._snapshot.gpus, self._gpu[there], self._grant[there]
        free = gpus.task.take(row) == GPU_FREE
        large = gpus.memory_bytes.take(row) >= self._by_demand("gpu_memory_bytes")[grant]
        suitable = np.bincount(grant[free & large], minlength=len(self._count))
        needed = self._by_demand("gpus")
        fits: Bools = (self._count == needed) & (suitable == needed)
        for kind, here, amounts in self._amounts(np.ones(len(fits), bool)):
            fits[here] &= self._snapshot.nodes.free.kind(kind)[self._node[here]] >= amounts
        return fits

    def fit_together(self, chosen: Bools) -> bool:
        """Return whether some of those that fit alone all fit at the same time."""
        gpus = self._gpu[chosen[self._grant]]
        if len(gpus) and np.bincount(gpus).max() > 1:
            return False
        taken: dict[int, Ints] = {}
        free = self._snapshot.nodes.free
        for kind, here, amounts in self._amounts(chosen):
            total = taken.setdefault(kind, np.zeros(len(free), np.int64))
            np.add.at(total, self._node[here], amounts)
        return all((total <= free.kind(kind)).all() for kind, total in taken.items())

    def _amounts(self, chosen: Bools) -> list[tuple[int, Ints, int]]:
        """Return of each demand and kind of resource: the grants concerned, and the amount."""
        needs = self._snapshot.names.needs
        return [
            (kind, np.flatnonzero(chosen & (self._demand == number)), amount)
            for number, row in enumerate(self._demands.tolist())
            for kind, amount in needs[row]
        ]
