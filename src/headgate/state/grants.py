"""Many grants checked in columns: which of them fit separately, and whether they fit together.

The results are those of a `Ledger` that takes them one by one, for grants of whole GPUs or none, in
O(grants + GPUs + nodes) per kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model import UNLIMITED
from headgate.state.snapshot import Snapshot
from headgate.state.tables import GPU_FREE

_SUM_MOST = 1.5 * UNLIMITED  # more than any node has; exact sums up to it do not overflow


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
    def need_ledger(self) -> bool:
        """Whether only a ledger can judge some: parts of GPUs, certain models of them or nodes."""
        demands = [self._snapshot.names.demands[row] for row in self._demands.tolist()]
        return any(demand.in_part or demand.restricted for demand in demands)

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
        free = self._snapshot.nodes.free
        for kind, here, amounts in self._amounts(chosen):
            node = self._node[here]
            if np.bincount(node, weights=amounts).max(initial=0) > _SUM_MOST:
                return False
            taken = np.zeros(len(free), np.int64)
            np.add.at(taken, node, amounts)
            if (taken > free.kind(kind)).any():
                return False
        return True

    def _amounts(self, chosen: Bools) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield of each kind of resource: its number, the grants concerned, their amounts."""
        needs, count = self._snapshot.names.needs, len(self._demands)
        by_kind: dict[int, Ints] = {}
        for number, row in enumerate(self._demands.tolist()):
            for kind, amount in needs[row]:
                by_kind.setdefault(kind, np.zeros(count, np.int64))[number] = amount
        for kind, by_demand in by_kind.items():
            amounts = by_demand[self._demand]
            here = np.flatnonzero(chosen & (amounts > 0))
            yield kind, here, amounts[here]
