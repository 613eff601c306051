"""The earliest start of a unit on the GPUs that become free first, without reservations."""

from __future__ import annotations

import math

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.place.timetable import Timetable
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit
from headgate.state import Snapshot
from headgate.state.tables import GPU_GONE


class Soonest:
    """Answers for the units of one round, one after the other, as its timetable changes."""

    def __init__(self, snapshot: Snapshot, table: Timetable) -> None:
        """Take the timetable of a round."""
        self._snapshot, self._table = snapshot, table
        self._by_node: dict[tuple[int, int], _ByNode] = {}  # by memory at least, or by demand

    def reservation(self, unit: Unit) -> Reservation | None:
        """Return what a unit gets if it waits for the GPUs that become free first; None if never.

        O(GPUs), and O(log) of the GPUs of nodes on which any became free or not since the last one.
        """
        free_at, chosen = self._table.free_at, list[Ints]()
        at = self._table.now
        for demand, tasks in unit.by_demand(self._snapshot):
            spec = self._snapshot.names.demands[demand]
            if not spec.gpus:
                continue
            here = self._nodes(demand, free_at)
            most = 1 if unit.distinct_nodes else len(tasks)
            found = self._places(demand, here, most, len(tasks))
            if found is None:
                return None
            places, soonest = found
            at = max(at, soonest)
            chosen.append(here.first(places * spec.gpus))
            if len(set(unit.demands)) > 1:
                taken = here.all_of(places) if unit.distinct_nodes else chosen[-1]
                free_at = free_at.copy()
                free_at[taken] = math.inf
        gpus = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
        return Reservation(unit=unit, at=at, gpus=gpus)

    def _nodes(self, demand: int, free_at: Floats) -> _ByNode:
        spec = self._snapshot.names.demands[demand]
        key = spec.gpu_memory_bytes, demand if spec.restricted else -1
        if key not in self._by_node:
            self._by_node[key] = _ByNode(self._snapshot, self._table.suits(demand))
        self._by_node[key].sort(free_at)
        return self._by_node[key]

    def _places(
        self, demand: int, here: _ByNode, most: int, count: int
    ) -> tuple[Ints, float] | None:
        """Return on how many of the places that are free first each node has, and when all are."""
        gpus = self._snapshot.names.demands[demand].gpus
        free_at = here.free_at[:, gpus - 1 :: gpus][:, :most]
        flat = self._table.with_room(demand, *here.places(free_at.shape[1]), free_at.flatten())
        if len(flat) < count:
            return None
        soonest = float(np.partition(flat, count - 1)[count - 1])
        if math.isinf(soonest):
            return None
        chosen = flat < soonest
        last = (flat == soonest).nonzero()[0]
        chosen[last[: count - np.count_nonzero(chosen)]] = True
        places: Ints = chosen.reshape(free_at.shape).sum(axis=1)
        return places, soonest


class _ByNode:
    """The GPUs of each node in the order in which they become free, ties by row.

    `free_at`, `[nodes, GPUs of a node at most]`, are the times, `inf` where there is no GPU that
    suits; `node` are the rows of the nodes that are up and have GPUs.
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
        self.free_at = np.full(shape, math.inf)
        self._places: dict[int, tuple[Ints, Ints]] = {}

    def places(self, most: int) -> tuple[Ints, Ints]:
        """Return the nodes (rows) of places, so many of each, and their ordinals there."""
        if most not in self._places:
            ordinal = np.tile(np.arange(most), len(self.node))
            self._places[most] = np.repeat(self.node, most), ordinal
        return self._places[most]

    def sort(self, free_at: Floats) -> None:
        """Take the times at which GPUs become free, `[GPU rows]`."""
        touched = np.zeros(len(self.node), bool)
        touched[self._index[(free_at != self._seen).nonzero()[0]]] = True
        changed = touched.nonzero()[0]
        self._seen = free_at.copy()
        rows = self._rows[changed]
        when = np.where(self._suits[changed], free_at[rows], math.inf)
        order = when.argsort(axis=1, kind="stable")
        order += np.arange(0, order.size, order.shape[1])[:, None]
        self._sorted[changed] = rows.ravel()[order]
        self.free_at[changed] = when.ravel()[order]

    def first(self, count: Ints) -> Ints:
        """Return the GPUs (rows) that become free first, so many of each node, node by node."""
        some = np.flatnonzero(count)
        rows: Ints = self._sorted[some]
        return rows[np.arange(rows.shape[1]) < count[some, None]]

    def all_of(self, count: Ints) -> Ints:
        """Return all GPUs (rows) of the nodes of which that is not 0."""
        some = np.flatnonzero(count)
        rows: Ints = self._rows[some][self._is_gpu[some]]
        return rows
