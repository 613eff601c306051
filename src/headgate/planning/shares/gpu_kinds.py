"""Kinds of GPUs, and types of tasks: which kinds tasks accept.

GPUs are of one kind if all tasks that are counted accept both or neither. Without tasks for certain
models of GPUs or certain nodes, the kinds are the *memory classes*: the distinct GPU memories of
nodes that are up, ascending. The first types are the tasks that any GPU of enough memory suits, by
memory class; one further type follows for each other set of kinds that some tasks accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model import Demand
from headgate.planning.shares.fair_shares import larger_classes
from headgate.state import Snapshot
from headgate.state.ledger import Ledger

_Need = tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuKinds:
    """The GPUs of nodes that are up by kind, and the demands by type; int64 arrays.

    The type of a demand that no GPU suits, or that needs none, is the number of types; UNKNOWN is
    that of one that was not counted.
    """

    class_bytes: Ints  # [memory classes]
    kind: Ints  # [GPU rows] UNKNOWN where a GPU is no capacity
    gpus: Ints  # [kinds]
    accepts: Bools  # [types, kinds]
    of_demand: Ints  # [demands] types
    types: dict[_Need, int]  # of demands for certain models or nodes

    def after(self, demands: Sequence[Demand]) -> GpuKinds:
        """Return the kinds with all demands, of which these began with those known; O(new ones)."""
        new = demands[len(self.of_demand) :]
        if not new:
            return self
        types = np.array([self._type_of(demand) for demand in new], np.int64)
        return replace(self, of_demand=np.append(self.of_demand, types))

    def know(self, demands: Ints) -> bool:
        """Return whether the types of some demands (rows) are known."""
        return bool((self.of_demand[demands] != UNKNOWN).all())

    def counted(self, gpus: Ints) -> Ints:
        """Return how many of some GPUs that are up (rows) are of each kind, `[kinds]`."""
        return np.bincount(self.kind[gpus], minlength=len(self.gpus))

    def _type_of(self, demand: Demand) -> int:
        if not demand.gpus:
            return len(self.accepts)
        if demand.restricted:
            return self.types.get(_need(demand), UNKNOWN)
        found = int(np.searchsorted(self.class_bytes, demand.gpu_memory_bytes))
        return found if found < len(self.class_bytes) else len(self.accepts)


def _need(demand: Demand) -> _Need:
    return demand.gpu_memory_bytes, demand.gpu_models, demand.nodes, demand.exclude


def gpu_kinds(
    snapshot: Snapshot, is_up: Bools, class_bytes: Ints, tasks: Iterable[int]
) -> GpuKinds:
    """Return the kinds of the GPUs that are up, as tasks of the demands `tasks` (rows) accept them.

    O(GPUs x demands for certain models or nodes among these).
    """
    demands, up = snapshot.names.demands, np.flatnonzero(is_up)
    memory_class = np.searchsorted(class_bytes, snapshot.gpus.memory_bytes.take(up))
    rows = {_need(demands[n]): n for n in tasks if demands[n].gpus and demands[n].restricted}
    ledger = Ledger.tentative(snapshot)
    columns = [memory_class, *(ledger.suits(row)[up].astype(np.int64) for row in rows.values())]
    table, kind = np.unique(np.stack(columns), axis=1, return_inverse=True)
    kind = kind.ravel()
    sets = {row.tobytes(): n for n, row in enumerate(larger_classes(len(class_bytes))[:, table[0]])}
    types = dict[_Need, int]()
    for need, suits in zip(rows, table[1:].astype(bool), strict=True):
        types[need] = sets.setdefault(suits.tobytes(), len(sets)) if suits.any() else UNKNOWN
    of_row = np.full(len(is_up), UNKNOWN)
    of_row[up] = kind
    accepts = [np.frombuffer(each, bool) for each in sets]
    none = len(accepts)
    found = GpuKinds(
        class_bytes=class_bytes,
        kind=of_row,
        gpus=np.bincount(kind, minlength=table.shape[1]),
        accepts=np.array(accepts, bool).reshape(none, table.shape[1]),
        of_demand=np.zeros(0, np.int64),
        types={need: none if each == UNKNOWN else each for need, each in types.items()},
    )
    return found.after(demands)
