"""The GPUs with which a unit costs least, node by node, for many units one after the other."""

from __future__ import annotations

import math

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.place.timetable import GpuCosts, Look, Timetable
from headgate.planning.units.unit import Unit
from headgate.state import Snapshot
from headgate.state.tables import GPU_GONE


class CheapestGpus:
    """Answers for the units of one round, as what GPUs cost changes.

    Where `Placing.cheapest` keeps a unit on few nodes, this takes the cheapest GPUs wherever they
    are, and sorts only nodes on which a cost has changed.
    """

    def __init__(self, table: Timetable) -> None:
        """Take the timetable of a round, for what suits and what has room."""
        self._snapshot, self._table = table.scratch.snapshot, table
        self._by_node: dict[tuple[int, int], _ByNode] = {}  # by memory at least, or by demand

    def of_unit(self, unit: Unit, costs: GpuCosts) -> Ints | None:
        """Return the GPUs (rows) with which the dearest one of a unit costs least, or None.

        O(GPUs), and O(log) of the GPUs of nodes on which a cost changed since the last one.
        """
        of_gpu, chosen = costs.gpu, [np.zeros(0, np.int64)]
        for demand, tasks in unit.by_demand(self._snapshot):
            spec = self._snapshot.names.demands[demand]
            if not spec.gpus:
                continue
            here = self._nodes(demand, of_gpu)
            most = 1 if unit.distinct_nodes else len(tasks)
            places = self._places(demand, here, most, len(tasks), costs)
            if places is None:
                return None
            chosen.append(here.first(places * spec.gpus))
            if len(set(unit.demands)) > 1:
                taken = here.all_of(places) if unit.distinct_nodes else chosen[-1]
                of_gpu = of_gpu.copy()
                of_gpu[taken] = math.inf
        return np.concatenate(chosen)

    def _nodes(self, demand: int, of_gpu: Floats) -> _ByNode:
        spec = self._snapshot.names.demands[demand]
        key = spec.gpu_memory_bytes, demand if spec.restricted else -1
        if key not in self._by_node:
            self._by_node[key] = _ByNode(self._snapshot, self._table.suits(demand))
        self._by_node[key].sort(of_gpu)
        return self._by_node[key]

    def _places(
        self, demand: int, here: _ByNode, most: int, count: int, costs: GpuCosts
    ) -> Ints | None:
        """Return how many of the cheapest places each node has; None if there are too few."""
        gpus = self._snapshot.names.demands[demand].gpus
        cost = here.cost[:, gpus - 1 :: gpus][:, :most]
        ordinals = here.places(cost.shape[1])
        flat = self._table.with_room(demand, *ordinals, cost.flatten(), Look(0.0, math.inf, costs))
        if len(flat) < count:
            return None
        dearest = float(np.partition(flat, count - 1)[count - 1])
        if math.isinf(dearest):
            return None
        chosen = flat < dearest
        last = (flat == dearest).nonzero()[0]
        chosen[last[: count - np.count_nonzero(chosen)]] = True
        places: Ints = chosen.reshape(cost.shape).sum(axis=1)
        return places


class _ByNode:
    """The GPUs of each node, the cheapest first, ties by row.

    `cost`, `[nodes, GPUs of a node at most]`, is `inf` where there is no GPU that suits; `node` are
    the rows of the nodes that are up and have GPUs.
    """

    def __init__(self, snapshot: Snapshot, suits: Bools) -> None:
        """Arrange the GPUs that suit, `[GPU rows]`; O(nodes x GPUs of a node at most)."""
        gpus = snapshot.gpus
        rows = np.flatnonzero(gpus.task.array() != GPU_GONE)
        node = gpus.node.take(rows).astype(np.int64)
        self.node, which, count = np.unique(node, return_inverse=True, return_counts=True)
        order = np.argsort(which, kind="stable")
        column = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        shape = len(count), int(count.max(initial=0))
        self._is_gpu, self._rows = np.zeros(shape, bool), np.zeros(shape, np.int64)
        self._is_gpu[which[order], column] = True
        self._rows[which[order], column] = rows[order]
        self._index = np.zeros(len(gpus.node), np.int64)  # of the node of each GPU that is up
        self._index[rows] = which
        self._suits = self._is_gpu & suits[self._rows]
        self._seen = np.full(len(gpus.node), math.nan)
        self._sorted = self._rows.copy()
        self.cost = np.full(shape, math.inf)
        self._places: dict[int, tuple[Ints, Ints]] = {}

    def places(self, most: int) -> tuple[Ints, Ints]:
        """Return the nodes (rows) of places, so many of each, and their ordinals there."""
        if most not in self._places:
            ordinal = np.tile(np.arange(most), len(self.node))
            self._places[most] = np.repeat(self.node, most), ordinal
        return self._places[most]

    def sort(self, of_gpu: Floats) -> None:
        """Take what GPUs cost, `[GPU rows]`."""
        touched = np.zeros(len(self.node), bool)
        touched[self._index[(of_gpu != self._seen).nonzero()[0]]] = True
        changed = touched.nonzero()[0]
        self._seen = of_gpu.copy()
        rows = self._rows[changed]
        cost = np.where(self._suits[changed], of_gpu[rows], math.inf)
        order = cost.argsort(axis=1, kind="stable")
        order += np.arange(0, order.size, order.shape[1])[:, None]
        self._sorted[changed] = rows.ravel()[order]
        self.cost[changed] = cost.ravel()[order]

    def first(self, count: Ints) -> Ints:
        """Return the cheapest GPUs (rows), so many of each node, node by node."""
        some = np.flatnonzero(count)
        rows: Ints = self._sorted[some]
        return rows[np.arange(rows.shape[1]) < count[some, None]]

    def all_of(self, count: Ints) -> Ints:
        """Return all GPUs (rows) of the nodes of which that is not 0."""
        some = np.flatnonzero(count)
        rows: Ints = self._rows[some][self._is_gpu[some]]
        return rows
