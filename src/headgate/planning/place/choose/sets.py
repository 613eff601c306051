"""Sets of sites that a placer chooses, in place of the roomiest nodes.

Of a unit of several demands, the tasks with most GPUs are placed so, the others near them; parts
of GPUs as by `Compact`. A reservation begins at the earliest time at which the placer finds a
set among the GPUs that are expected to be free by then. What has been found for some GPUs is found
for more, so that time is found by halving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.compact import Chosen, Compact, Demands, counted, soonest_first
from headgate.planning.place.choose.on_cluster import ClusterPlacer, Usable
from headgate.planning.place.timetable import GpuCosts, Look, Timetable
from headgate.planning.times.reservations import UNKNOWN_AT, TasksOnNode
from headgate.state.tables import GPU_FREE, GPU_GONE


class Sets:
    """See above; a query costs O(GPUs x log), and that of a search for each halving."""

    claim_order = staticmethod(soonest_first)

    def __init__(self, table: Timetable, placer: Placer) -> None:
        """Choose by a placer."""
        self._table, self._scratch, self._compact = table, table.scratch, Compact(table)
        self._placer = ClusterPlacer(table.scratch.snapshot, placer)

    @property
    def takes_first_fit(self) -> bool:
        """Whether a unit of several demands may start by first fit.

        Not if it waits for a better set.
        """
        nothing_runs = not (self._scratch.snapshot.gpus.task.array() >= 0).any()
        return nothing_runs or not self._placer.placer.may_wait

    def place(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand as the placer says, or near those placed before."""
        table, spec = self._table, self._table.demands[demand]
        if spec.in_part:
            return self._compact.place(demand, tasks, run_s, used, distinct=distinct)
        room = table.room_now(demand, len(tasks), run_s, used, distinct=distinct)
        if room.sum() < len(tasks):
            return False
        usable = np.zeros(len(table.reserved_from), bool)
        usable[table.row] = table.usable_now(demand, table.row, run_s)
        held = self._scratch.ledger.gpus.task.array() != GPU_FREE
        held |= ~table.is_unclaimed
        kept = self._kept_until(table.now) > table.now
        now = self._room(room, usable, held, kept, table.reserved_from)
        if not spec.gpus:
            now = replace(now, busy=self._busy_nodes())
        spots = self._placer.spots(
            demand, len(tasks), now, distinct=distinct, anchors=self._anchors(tasks[0])
        )
        first = self._scratch.snapshot.nodes.first_gpu
        return spots is not None and all(
            self._scratch.place(task, node, tuple(gpu - first[node] for gpu in gpus))
            for task, (node, gpus) in zip(tasks, spots, strict=True)
        )

    def _busy_nodes(self) -> Bools:
        """Return which nodes are used by runs of any kind, or are in closed sets of these."""
        snapshot, starts = self._scratch.snapshot, self._scratch.starts
        granted = snapshot.grants.task.array().astype(np.int64)
        rows = np.flatnonzero(granted >= 0)
        task = np.append(granted[rows], [start.task for start in starts]).astype(np.int64)
        node = np.append(snapshot.grants.node.take(rows), [start.node for start in starts])
        node = node.astype(np.int64)
        busy = self._placer.kept_nodes(snapshot.tasks.job.take(task).astype(np.int64), node)
        busy[node] = True
        return busy

    def _anchors(self, task: int) -> Ints:
        """Return the nodes of the tasks of a task's job that are placed already."""
        tasks = self._scratch.snapshot.tasks
        job = tasks.job[task]
        if not self._scratch.snapshot.jobs.gang[job]:
            return np.zeros(0, np.int64)
        nodes = [each.node for each in self._scratch.starts if tasks.job[each.task] == job]
        return np.array(nodes, np.int64)

    def _room(self, room: Ints, usable: Bools, held: Bools, kept: Bools, rank: Floats) -> Usable:
        """Return what may be used, without what is `kept` in closed sets of runs."""
        gone = self._scratch.snapshot.gpus.task.array() == GPU_GONE
        return Usable(room=room, usable=usable, held=held & ~gone, kept=kept, rank=rank)

    def _kept_until(self, at: float, costs: GpuCosts | None = None) -> Floats:
        """Return until when each GPU is in a closed set of a run, as far as that matters now."""
        holder = self._scratch.ledger.gpus.task.array().astype(np.int64)
        job = np.where(
            holder >= 0, self._scratch.snapshot.tasks.job.take(np.maximum(holder, 0)), -1
        )
        if costs is not None:
            return self._placer.kept_until(job, costs.gpu)
        if at <= self._table.now and not self._table.has_ends:
            return self._placer.kept_until(job, np.full(len(job), math.inf))
        return self._placer.kept_until(job, self._table.free_at)

    def gpus_at(
        self,
        demands: Demands,
        at: float,
        run_s: float,
        *,
        distinct: bool,
        costs: GpuCosts | None = None,
    ) -> tuple[Chosen, float]:
        """Return places for tasks by demand, and when all are free, inf if they never are."""
        table, look = self._table, Look(at, run_s, costs)
        chosen, soonest = self._compact.gpus_at(demands, at, run_s, distinct=distinct, costs=costs)
        if math.isinf(soonest):
            return chosen, soonest
        if costs is None:
            available = table.available(table.every, at, run_s)
        else:
            available = costs.gpu[table.row]
        counts = counted(demands)

        def found_at(time: float) -> Chosen | None:
            return self._found(counts, available, time, look, distinct=distinct)

        best = found_at(soonest)
        if best is not None:
            return best, soonest
        times = self._times(counts, available, soonest, look)
        low, high = -1, len(times) - 1
        best = None if high < 0 else found_at(float(times[high]))
        if best is None:
            return chosen, math.inf
        while high - low > 1:
            middle = (low + high) // 2
            places = found_at(float(times[middle]))
            low, high = (middle, high) if places is None else (low, middle)
            best = best if places is None else places
        return best, float(times[high])

    def _times(
        self,
        demands: Sequence[tuple[int, int]],
        available: Floats,
        after: float,
        look: Look,
    ) -> Floats:
        """Return the times after one at which more becomes available, ascending."""
        times = [available]
        for demand, count in demands:
            spec = self._table.demands[demand]
            if spec.in_part:
                parts = self._compact.parts(demand, count, available, look, (), distinct=False)
                times.append(parts.free_at)
            elif spec.gpus:
                times.append(self._table.places(demand, available.copy(), count, look)[1])
            else:
                times.append(self._table.places_beside(demand, count, look)[1])
        every: Floats = np.unique(np.concatenate(times))
        return every[(every > after) & np.isfinite(every)]

    def _found(
        self,
        demands: Sequence[tuple[int, int]],
        available: Floats,
        at: float,
        look: Look,
        *,
        distinct: bool,
    ) -> Chosen | None:
        """Return the places that the placer chooses of those available by a time, or None."""
        available, chosen, anchors = available.copy(), list[int](), list[int]()
        table, places = self._table, list[TasksOnNode]()
        look = replace(look, taken={}, parts={}, whole=[])
        held = np.ones(len(table.reserved_from), bool)
        held[table.row] = available > at
        latest = np.zeros(len(held))
        latest[table.row] = np.where(available < UNKNOWN_AT, -available, -UNKNOWN_AT)
        for demand, count in demands:
            if not table.demands[demand].gpus:
                if look.costs is None and not self._compact.beside(
                    demand, count, look, at, places, distinct=distinct
                ):
                    return None
                continue
            if table.demands[demand].in_part:
                gpus = self._compact.in_part(
                    demand, count, available, look, at, places, distinct=distinct
                )
                if gpus is None:
                    return None
                chosen += table.row[gpus].tolist()
                anchors += table.node[gpus].tolist()
                available[gpus] = math.inf
                continue
            fits = np.where(table.suits(demand)[table.row], available, math.inf)
            if distinct and anchors:
                fits[np.isin(table.node, anchors)] = math.inf
            node, free_at = table.places(demand, fits, 1 if distinct else count, look)
            nodes = len(self._scratch.snapshot.nodes.alive)
            usable = np.zeros(len(held), bool)
            usable[table.row] = fits <= at
            room = np.bincount(node[free_at <= at], minlength=nodes)
            kept = self._kept_until(at, look.costs) > at
            now = self._room(room, usable, held, kept, latest)
            near = np.array(anchors, np.int64)
            spots = self._placer.spots(demand, count, now, distinct=distinct, anchors=near)
            if spots is None:
                return None
            anchors += [node for node, _ in spots]
            places += self._compact.spots(demand, [node for node, _ in spots], look)
            rows = [gpu for _, gpus in spots for gpu in gpus]
            chosen += rows
            look.whole.append(np.flatnonzero(np.isin(table.row, rows)))
            available[look.whole[-1]] = math.inf
        return Chosen(np.array(chosen, np.int64), tuple(places))
