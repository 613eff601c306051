"""Kinds and classes of GPUs, and types of tasks: which kinds and classes tasks accept.

GPUs are of one kind if all tasks that are counted accept both or neither. Without tasks for certain
models of GPUs, labels or nodes, the kinds are the *memory classes*: the distinct GPU memories of
nodes that are up, ascending. The first types are the tasks that any GPU of enough memory suits, by
memory class; one further type follows for each other set of kinds that some tasks accept.

GPUs are of one *class* if they have equal memory and all tasks that name no nodes accept both or
neither: memory classes, divided by model where tasks name models, and by the labels of nodes where
tasks select labels. Each kind is part of one class.
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

_Need = tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuClasses:
    """The GPUs of nodes that are up by class, and the types by the classes that they accept.

    Classes ascend by memory; of those of equal memory, the ones that fewer demands for certain
    models or labels seek come first.
    """

    memory_bytes: Ints  # [classes]
    of_gpu: Ints  # [GPU rows] UNKNOWN where a GPU is no capacity
    accepts: Bools  # [types, classes] also of types of certain nodes: those that any node may have


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuKinds:
    """The GPUs of nodes that are up by kind, and the demands by type; int64 arrays.

    The type of a demand that no GPU suits, or that needs none, is the number of types; UNKNOWN is
    that of one that was not counted.
    """

    memories: Ints  # [memory classes] distinct ones
    classes: GpuClasses
    kind: Ints  # [GPU rows] UNKNOWN where a GPU is no capacity
    gpus: Ints  # [kinds]
    accepts: Bools  # [types, kinds]
    of_demand: Ints  # [demands] types
    types: dict[_Need, int]  # of demands for certain models, labels or nodes

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
        found = int(np.searchsorted(self.memories, demand.gpu_memory_bytes))
        return found if found < len(self.memories) else len(self.accepts)


def _need(demand: Demand) -> _Need:
    models, nodes = demand.gpu_models, (demand.nodes, demand.exclude)
    return demand.gpu_memory_bytes, models, *nodes, demand.selector


def gpu_kinds(snapshot: Snapshot, is_up: Bools, tasks: Iterable[int]) -> GpuKinds:
    """Return the kinds of the GPUs that are up, as tasks of the demands `tasks` (rows) accept them.

    O(GPUs x demands for certain models, labels or nodes among these).
    """
    demands, up, ledger = snapshot.names.demands, np.flatnonzero(is_up), Ledger.tentative(snapshot)
    ledger.forget_outside()  # kinds do not depend on use
    memories, memory = np.unique(snapshot.gpus.memory_bytes.take(up), return_inverse=True)
    rows = {_need(demands[n]): n for n in tasks if demands[n].gpus and demands[n].restricted}
    suits = [ledger.suits(row)[up].astype(np.int64) for row in rows.values()]
    of_classes = [
        column
        for row, column in zip(rows.values(), suits, strict=True)
        if not demands[row].for_nodes
    ]
    sought = sum(of_classes, start=np.zeros(len(up), np.int64))
    classes, gpu_class = _distinct([memory, sought, *of_classes])
    table, kind = _distinct([gpu_class, *suits])
    larger = larger_classes(len(memories))[:, classes[0][table[0]]]
    sets = {row.tobytes(): n for n, row in enumerate(larger)}
    types = dict[_Need, int]()
    for need, column in zip(rows, table[1:].astype(bool), strict=True):
        types[need] = sets.setdefault(column.tobytes(), len(sets)) if column.any() else UNKNOWN
    none = len(sets)
    accepted = [np.frombuffer(each, bool) for each in sets]
    accepts = np.array(accepted, bool).reshape(none, table.shape[1])
    kinds = GpuKinds(
        memories=memories,
        classes=GpuClasses(
            memory_bytes=memories[classes[0]],
            of_gpu=_of_rows(is_up, gpu_class),
            accepts=accepts @ (table[0][:, None] == np.arange(classes.shape[1])),
        ),
        kind=_of_rows(is_up, kind),
        gpus=np.bincount(kind, minlength=table.shape[1]),
        accepts=accepts,
        of_demand=np.zeros(0, np.int64),
        types={need: none if each == UNKNOWN else each for need, each in types.items()},
    )
    return kinds.after(demands)


def _distinct(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the distinct rows of columns, sorted, `[columns, distinct]`, and that of each row."""
    table, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return table, which.ravel()


def _of_rows(is_up: Bools, values: Ints) -> Ints:
    """Return values of the GPUs that are up by row, UNKNOWN for the others."""
    of_row = np.full(len(is_up), UNKNOWN)
    of_row[is_up] = values
    return of_row
