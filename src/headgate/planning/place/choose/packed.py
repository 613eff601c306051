"""What fits one node gets the node that others miss least.

A task on parts of GPUs, a task, and a gang that fits one node choose among the nodes that have room
by their price: the seconds that one task reads there, and the wait that others are expected to have
for what it takes of the node (`headgate.planning.packing.cluster`). Where a run time is unknown,
that wait only decides between nodes of equal reading. No task waits for a better node.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.packing.cluster import ClusterPacking, Ends, Freed
from headgate.planning.place.choose.compact import Compact, Pick, TaskGpus, most_room_first
from headgate.planning.place.timetable import Timetable
from headgate.planning.units.reading import read_s_by_node

_TIMES = 3  # in the course of a run, at which nodes are compared
_NODES = 64  # compared, at most: those of least reading, then with least room


class Packed:
    """See above; a choice costs O(nodes with room x their GPUs x demands in flight)."""

    takes_first_fit = True

    def __init__(
        self, table: Timetable, pick: Pick = most_room_first, gpus: TaskGpus | None = None
    ) -> None:
        """Choose several nodes by `pick`, and GPUs of a node by `gpus`."""
        self._table, self._scratch = table, table.scratch
        self._compact = Compact(table, pick, gpus)
        self.gpus_at = self._compact.gpus_at

    @cached_property
    def _packing(self) -> ClusterPacking:
        return ClusterPacking(self._scratch)

    def place(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand, none on nodes `used`; return whether all are placed."""
        table = self._table
        spec = self._table.demands[demand]
        if spec.in_part:
            with self._scratch.trial() as trial:
                if self._place_parts(demand, tasks, run_s, used, distinct=distinct):
                    trial.keep()
                    return True
            return self._compact.place(demand, tasks, run_s, used, distinct=distinct)
        room = self._table.room_now(demand, len(tasks), run_s, used, distinct=distinct)
        nodes = np.flatnonzero(room >= len(tasks))
        if len(nodes) > 1 and (not distinct or len(tasks) == 1):
            is_open = np.zeros(len(table.reserved_from), bool)
            is_open[table.row] = table.usable_now(demand, table.row, run_s)
            best = self._best(demand, tasks, nodes, is_open, run_s)
            if best is not None:
                return self._compact.place_on([best[0]] * len(tasks), demand, tasks, run_s)
        return self._compact.place_on(self._compact.pick(room, len(tasks)), demand, tasks, run_s)

    def claim_order(self, rows: Ints, at: Floats) -> Ints:
        """Return the order in which GPUs are claimed: of equal times, where fewest are free."""
        node = self._scratch.snapshot.gpus.node.take(rows).astype(np.int64)
        free = np.bincount(node[at <= self._table.now], minlength=int(node.max(initial=0)) + 1)
        return np.lexsort((free[node], at))

    def _place_parts(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks on parts of GPUs, one after the other; return whether all are placed."""
        used = set(used)
        for task in tasks:
            room = self._table.room_now(demand, 1, run_s, used, distinct=distinct)
            is_open = self._table.parts_now(demand, run_s) > 0
            best = self._best(demand, [task], np.flatnonzero(room), is_open, run_s)
            if best is None:
                return False
            node, gpu = best
            gpus = next(self._compact.gpus(demand, node, run_s, 1)) if gpu < 0 else (gpu,)
            if not self._scratch.place(task, node, gpus):
                return False
            if distinct:
                used.add(node)
        return True

    def _best(
        self, demand: int, tasks: list[int], nodes: Ints, is_open: Bools, run_s: float
    ) -> tuple[int, int] | None:
        """Return the node of least price for tasks, and the GPU of a part; None if none fits."""
        read_s, freed = self._read_s(tasks, nodes), list[Freed]()
        if self._packing.matters:
            freed = self._freed_in(run_s)
            if len(nodes) > _NODES:
                tight = np.lexsort((self._packing.free_milli(nodes, is_open), read_s))[:_NODES]
                nodes, read_s = nodes[tight], read_s[tight]
        loss, gpu = self._packing.losses(demand, nodes, is_open, len(tasks), freed)
        some = np.flatnonzero(np.isfinite(loss))
        if not len(some):
            return None
        price = read_s[some]
        if math.isfinite(run_s):
            own = self._table.demands[demand].gpus_milli * len(tasks)
            price = price + self._packing.price_s(loss[some], own, run_s)
        best = some[np.lexsort((loss[some], price))[0]]
        return int(nodes[best]), int(gpu[best])

    def _freed_in(self, run_s: float) -> list[Freed]:
        """Return what is freed in the course of a run of `run_s` seconds, nothing if unknown."""
        if not math.isfinite(run_s):
            return []
        at = [self._table.now + run_s * part / _TIMES for part in range(1, _TIMES)]
        return [self._ends.freed(by) for by in at] if self._ends.first <= at[-1] else []

    @cached_property
    def _ends(self) -> Ends:
        return Ends(self._scratch.snapshot, self._table.end_at)

    def _read_s(self, tasks: list[int], nodes: Ints) -> Floats:
        """Return the seconds that one task reads on nodes; 0 for several, or without inputs."""
        snapshot = self._scratch.snapshot
        if len(tasks) > 1 or not snapshot.reads(tasks[0]):
            return np.zeros(len(nodes))
        rack = snapshot.nodes.rack.array().astype(np.int64)
        read_s = read_s_by_node(snapshot, tasks[0], rack, snapshot.shards.size_bytes.array())
        return read_s[nodes]
