"""Placers on the nodes and GPUs of a snapshot: which tasks of a unit start where.

Sites are nodes; where the topology has levels between nodes and GPUs, they are GPUs for what fits
one node. A node or GPU is not idle for a placer while a run holds it, or, if the placer keeps them,
while it is in the closed set of a running job. What is on one site sends no messages, so it may
start in any such set.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.model import Demand
from headgate.model.topology import FatTree, Tree
from headgate.planning.place.choose.rules import Placer
from headgate.planning.topology.fabric import Fabric
from headgate.planning.topology.layout import Layout, Request, filled
from headgate.planning.topology.make import layout_of
from headgate.state import Snapshot
from headgate.state.ledger import Ledger, room_in, runs_in
from headgate.state.tables import GPU_GONE

Spot = tuple[int, tuple[int, ...]]
"""A node (row) and GPUs (rows) for a task."""

_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usable:
    """What may be used at some time by tasks of a demand; arrays by row of nodes and GPUs.

    `room` is how many tasks may start on a node, `usable` which GPUs may be used, `held` which ones
    runs hold, and `kept` which ones are in closed sets of runs; `busy` are nodes that runs without
    GPUs use, where that matters. Of the GPUs of a node, those of least memory are taken first, then
    those that are least in `rank`.
    """

    room: Ints
    usable: Bools
    held: Bools
    kept: Bools
    rank: Floats
    busy: Bools | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layouts:
    """The sites of a fabric: nodes (rows), and GPUs (rows) if there are levels between these."""

    node: Ints
    of_nodes: Layout
    gpu: Ints
    of_gpus: Layout | None
    index: Ints  # of the site of each GPU, -1 without


_recent: deque[tuple[Fabric, Layouts]] = deque(maxlen=_KEPT)


def layouts_of(snapshot: Snapshot) -> Layouts:
    """Return the layouts of a snapshot's nodes; O(nodes) for a fabric used before."""
    fabric = Fabric.of(snapshot)
    for known, layouts in tuple(_recent):  # other threads may add some meanwhile
        if known is fabric:
            return layouts
    topology = fabric.shape
    node = np.flatnonzero(fabric.vertex >= 0)
    gpu = np.flatnonzero(fabric.gpu_leaf >= 0)
    vertex = fabric.vertex[node]
    if isinstance(topology, FatTree):
        vertex = topology.tree.leaf_vertex[vertex]
    index = np.full(len(fabric.gpu_leaf), -1)
    index[gpu] = np.arange(len(gpu))
    of_gpus = None
    if isinstance(topology, Tree):
        leaf = topology.leaf_vertex[fabric.gpu_leaf[gpu]]
        above = fabric.vertex[snapshot.gpus.node.take(gpu).astype(np.int64)]
        if (topology.parent[leaf] != above).any():
            of_gpus = layout_of(topology, leaf)
    layouts = Layouts(
        node=node, of_nodes=layout_of(topology, vertex), gpu=gpu, of_gpus=of_gpus, index=index
    )
    _recent.appendleft((fabric, layouts))
    return layouts


class ClusterPlacer:
    """Chooses spots for units of one round by a placer."""

    def __init__(self, snapshot: Snapshot, placer: Placer) -> None:
        """Use the topology of a snapshot."""
        self.placer, self._snapshot = placer, snapshot
        self._layouts = layouts_of(snapshot)
        self._gpu_node = snapshot.gpus.node.array().astype(np.int64)
        self._memory = snapshot.gpus.memory_bytes.array().astype(np.int64)
        self._first = snapshot.nodes.first_gpu.array().astype(np.int64)
        self._site_of_node = np.full(len(snapshot.nodes.spec), -1)
        self._site_of_node[self._layouts.node] = np.arange(len(self._layouts.node))
        self._capacity: dict[tuple[int, bool], Ints] = {}
        self._ledger = Ledger.tentative(snapshot)

    # --- closed sets of runs -------------------------------------------------------------------

    def kept_until(self, holder: Ints, free_at: Floats) -> Floats:
        """Return until when each GPU (row) is in the closed set of a running job, -inf if in none.

        `holder` is the job (row) that holds a GPU, -1 for none, `free_at` until when. The closed
        set of a job of several sites is the smallest subtree or box with all of them, if it is one
        of the least diameter for so many and no other such job uses it. O(held GPUs x log), and for
        each such job O(its set).
        """
        until = np.full(len(holder), -math.inf)
        if not self.placer.keeps_closed:
            return until
        layouts = self._layouts
        if layouts.of_gpus is not None:
            layout, site = layouts.of_gpus, layouts.index
        else:
            layout, site = layouts.of_nodes, self._site_of_node[self._gpu_node]
        held, placed = np.flatnonzero((holder >= 0) & (site >= 0)), np.flatnonzero(site >= 0)
        by_site = _closed_until(layout, holder[held], site[held], free_at[held])
        until[placed] = by_site[site[placed]]
        return until

    def kept_nodes(self, job: Ints, node: Ints) -> Bools:
        """Return which nodes (rows) are in closed sets of jobs, given the nodes that each uses."""
        kept = np.zeros(len(self._site_of_node), bool)
        if self.placer.keeps_closed:
            site = self._site_of_node[node]
            some, layouts = np.flatnonzero(site >= 0), self._layouts
            until = _closed_until(layouts.of_nodes, job[some], site[some], np.zeros(len(some)))
            kept[layouts.node] = np.isfinite(until)
        return kept

    def nodes_for(
        self, demand: int, count: int, order: Sequence[int], *, distinct: bool
    ) -> list[int] | None:
        """Return the first of some nodes (rows), in order, in which tasks that may wait start.

        Once those are idle, that is, and not in the closed set of another job. None if there is no
        such set. O(log nodes) searches.
        """
        capacity, nodes = self._capacity_of(demand, distinct=distinct), self._layouts.node
        whole = [node for node in order if capacity[node] >= count]
        if whole and not distinct and self.placer.stays_on_node:
            return whole[:1]
        site = self._site_of_node[np.array(order, np.int64)]
        site = site[site >= 0]

        def found(first: int) -> Ints | None:
            idle = np.zeros(len(nodes), bool)
            idle[site[:first]] = True
            room = np.where(idle, capacity[nodes], 0)
            request = Request(count=count, room=room, idle=idle, capacity=capacity[nodes])
            return self.placer.closed_set(self._layouts.of_nodes, request)

        least = bisect_left(range(len(site)), True, key=lambda first: found(first) is not None)
        closed = found(least)
        return None if closed is None else nodes[closed].tolist()

    # --- choice --------------------------------------------------------------------------------

    def spots(
        self, demand: int, count: int, free: Usable, *, distinct: bool, anchors: Ints
    ) -> list[Spot] | None:
        """Return a node and whole GPUs for each task of a demand; None if they are to wait.

        With `anchors`, nodes of other tasks that start with these, near them.
        """
        spec = self._snapshot.names.demands[demand]
        if len(anchors):
            nodes = self._near(free.room, count, anchors)
            return None if nodes is None else self._with_gpus(nodes, spec, free)
        capacity = self._capacity_of(demand, distinct=distinct)
        busy = free.held | free.kept
        if spec.gpus and not distinct and self.placer.stays_on_node and (capacity >= count).any():
            on_node = self._on_one_node(demand, count, free, busy, capacity)
            if on_node is not None:
                return on_node
        layouts, nodes = self._layouts, self._layouts.node
        is_busy = np.zeros(len(free.room), bool) if free.busy is None else free.busy.copy()
        is_busy[self._gpu_node[busy]] = True
        request = Request(
            count=count, room=free.room[nodes], idle=~is_busy[nodes], capacity=capacity[nodes]
        )
        places = self.placer.choose(layouts.of_nodes, request)
        if places is not None:
            return self._with_gpus(nodes[places.sites], spec, free)
        waits = self.placer.may_wait and layouts.of_nodes.may_be_closed(request)
        if waits or free.room[nodes].sum() == free.room.sum():
            return None
        rest = np.setdiff1d(np.flatnonzero(free.room), nodes)  # nodes without a place
        chosen = filled(np.concatenate([nodes, rest]), free.room, count)
        return None if chosen is None else self._with_gpus(chosen, spec, free)

    def _near(self, room: Ints, count: int, anchors: Ints) -> Ints | None:
        """Return a node for each task, those nearest to the nodes `anchors` first."""
        layouts, site, some = self._layouts, self._site_of_node, np.flatnonzero(room)
        away = np.full(len(some), math.inf)
        placed, to = site[some] >= 0, np.unique(site[anchors[site[anchors] >= 0]])
        if len(to):
            hops = layouts.of_nodes.hops(site[some][placed][:, None], to[None, :])
            away[placed] = hops.min(axis=1)
        away[np.isin(some, anchors)] = 0
        return filled(some[np.argsort(away, kind="stable")], room, count)

    def _capacity_of(self, demand: int, *, distinct: bool) -> Ints:
        """Return how many tasks of a demand each node that is up holds while idle, `[nodes]`."""
        if (demand, distinct) not in self._capacity:
            snapshot = self._snapshot
            spec = snapshot.names.demands[demand]
            is_option = self._ledger.accepted_nodes(demand) & (snapshot.nodes.alive.array() > 0)
            capacity = np.where(is_option, 1 << 30, 0)
            if spec.gpus:
                fits = (snapshot.gpus.task.array() != GPU_GONE) & self._ledger.suits(demand)
                gpus = np.bincount(self._gpu_node[fits], minlength=len(capacity))
                capacity = np.minimum(capacity, runs_in(gpus, spec.gpus))
            capacity = room_in(snapshot.names.needs[demand], snapshot.nodes.total.kind, capacity)
            if distinct:
                capacity = np.minimum(capacity, 1)
            self._capacity[demand, distinct] = capacity.astype(np.int64)
        return self._capacity[demand, distinct]

    def _on_one_node(
        self, demand: int, count: int, free: Usable, busy: Bools, capacity: Ints
    ) -> list[Spot] | None:
        """Return spots on one node, None if there is none, or the tasks are to wait."""
        layouts, fits, spec = (
            self._layouts,
            free.room >= count,
            self._snapshot.names.demands[demand],
        )
        if layouts.of_gpus is None:
            fits &= capacity >= count
            if not fits.any():
                return None
            is_busy = np.zeros(len(fits), bool)
            is_busy[self._gpu_node[busy & ~free.held]] = True  # in another job's closed set
            node = np.lexsort((free.room, is_busy, ~fits))[0]
            return self._with_gpus(np.full(count, node), spec, free)
        gpus, node = layouts.gpu, self._gpu_node[layouts.gpu]
        up = (self._snapshot.gpus.task.array() != GPU_GONE)[gpus]
        up &= self._ledger.suits(demand)[gpus] & (capacity[node] >= count)
        request = Request(
            count=count * spec.gpus,
            room=(free.usable[gpus] & fits[node]).astype(np.int64),
            idle=~busy[gpus],
            capacity=up.astype(np.int64),
        )
        places = self.placer.choose(layouts.of_gpus, request)
        if places is None and request.count == 1:
            places = self.placer.choose(layouts.of_gpus, replace(request, idle=~free.held[gpus]))
        if places is None or len(np.unique(node[places.sites])) > 1:
            return None
        rows = gpus[places.sites].reshape(count, spec.gpus).tolist()
        first = int(node[places.sites[0]])
        return [(first, tuple(each)) for each in rows]

    def _with_gpus(self, nodes: Ints, spec: Demand, free: Usable) -> list[Spot]:
        """Return spots on nodes, one entry per task: on each node GPUs that are close together."""
        if not spec.gpus:
            return [(node, ()) for node in nodes.tolist()]
        chosen = {
            node: self.gpus_on(node, count * spec.gpus, free)
            for node, count in zip(*np.unique(nodes, return_counts=True), strict=True)
        }
        nth = nth_of_equals(nodes)
        return [
            (node, tuple(chosen[node][n * spec.gpus : (n + 1) * spec.gpus]))
            for node, n in zip(nodes.tolist(), nth.tolist(), strict=True)
        ]

    def gpus_on(self, node: int, count: int, free: Usable) -> list[int]:
        """Return so many of the usable GPUs of a node (rows), close together."""
        first, number = self._first[node], self._snapshot.nodes.gpu_count[node]
        rows = first + np.flatnonzero(free.usable[first : first + number])
        if len(rows) > count:
            rows = rows[np.lexsort((free.rank[rows], self._memory[rows]))]
        layouts = self._layouts
        if len(rows) > count and layouts.of_gpus is not None:
            room = np.zeros(len(layouts.gpu), np.int64)
            room[layouts.index[rows]] = 1
            idle = np.ones(len(room), bool)
            request = Request(count=count, room=room, idle=idle, capacity=room)
            sites = layouts.of_gpus.best_fit(request)
            assert sites is not None, "a node is chosen that has the GPUs"
            rows = layouts.gpu[sites]
        chosen: list[int] = rows[:count].tolist()
        return chosen


def _closed_until(layout: Layout, job: Ints, site: Ints, until: Floats) -> Floats:
    """Return until when each site is in the closed set of a job, -inf if in none.

    `job` uses `site` `until`, one entry each, in any order.
    """
    by_site, user = np.full(layout.sites, -math.inf), np.full(layout.sites, -1)
    order = np.argsort(job, kind="stable")
    starts = np.flatnonzero(np.diff(job[order], prepend=-1))
    groups = [order[first:end] for first, end in pairwise([*starts, len(order)])]
    wide = [each for each in groups if site[each].min() != site[each].max()]
    for each in wide:
        user[site[each]] = job[each]
    for each in wide:
        closed = layout.closed_around(np.unique(site[each]))
        if closed is not None and np.isin(user[closed], (-1, job[each[0]])).all():
            by_site[closed] = np.maximum(by_site[closed], until[each].max())
    return by_site
