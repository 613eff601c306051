"""How fast a unit that communicates runs on a set of leaves, beside the jobs that run now.

A unit on a set advances at 1 / slowdown: the seconds of a step in its best possible set alone,
divided by those of a step there. Its rate is that of `headgate.planning.links.contention`, to first
order: each neighbour sends for the part of the time, and at the rate, that it would without the
unit. For two jobs that send without pause, that is exact. Neighbours slow it down until they are
expected to end, and it slows them down: what they lose is its *harm*, to first order, too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.model import Job
from headgate.model.topology import FatTree, Tree
from headgate.planning.links.contention import Pairs, flow_rates, levels_of
from headgate.planning.links.job_traffic import JobTraffic, communicates
from headgate.planning.links.traffic import Traffic, traffic_of
from headgate.planning.times.reservations import Spread
from headgate.planning.topology.fabric import Fabric
from headgate.planning.units.unit import Unit
from headgate.state import Scratch, Snapshot

_KEPT = 8
_SAME = 1 + 1e-9
NO_SLOWER = 1 + 1e-9


Placed = tuple[int, int, Sequence[int]]
"""A task (row), its node (row), and the indices of its GPUs there."""


@dataclass(frozen=True, slots=True)
class LinkCost:
    """What a set costs a unit that starts there at a time, and what the unit costs its neighbours.

    `harm` is how many seconds x GPUs they lose for each second and GPU of the unit.
    """

    at: float
    ends_at: float
    slowdown: float
    harm: float

    @property
    def is_least(self) -> bool:
        """Whether no set could cost less from the same time on."""
        return self.slowdown <= NO_SLOWER and self.harm <= NO_SLOWER - 1

    @property
    def rate(self) -> float:
        """The slowdown, and the harm beside it."""
        return self.slowdown + self.harm

    @property
    def paid_at(self) -> float:
        """The end, later by the harm: as if all that neighbours lose were time of the unit."""
        return self.ends_at + self.harm * (self.ends_at - self.at)


@dataclass(frozen=True, slots=True, eq=False)
class _Sender:
    """Tasks that communicate with each other, and when they are expected to end."""

    traffic: Traffic
    end: float
    leaves: Ints


_recent: deque[tuple[Fabric, JobTraffic]] = deque(maxlen=_KEPT)


def _job_traffic(snapshot: Snapshot) -> JobTraffic:
    """Return the traffic of jobs in a snapshot's fabric; O(nodes) for one used before."""
    fabric = Fabric.of(snapshot)
    for known, traffic in tuple(_recent):  # other threads explain, and add to it
        if known is fabric:
            return traffic
    made = JobTraffic(snapshot)
    _recent.appendleft((made.fabric, made))
    return made


class LinkCosts:
    """The costs of sets of one round; nothing is computed before a unit communicates."""

    def __init__(self, scratch: Scratch, end_at: Callable[[Ints], Floats]) -> None:
        """Take the runs of a scratch's snapshot, and when tasks are expected to end."""
        self._scratch, self._snapshot, self._end_at = scratch, scratch.snapshot, end_at
        self._started: list[_Sender] = []
        self._best_s: dict[int, float] = {}
        self._known: _Senders | None = None

    def matter(self, unit: Unit) -> bool:
        """Return whether a unit communicates, and its time in the best possible set is known."""
        job = self._snapshot.job(unit.job)
        if not communicates(job):
            return False
        specs = [self._snapshot.names.demands[demand] for demand in dict.fromkeys(unit.demands)]
        if any(spec.in_part for spec in specs):
            return False
        return 0 < self._best_step_s(job, unit) < math.inf

    def _best_step_s(self, job: Job, unit: Unit) -> float:
        if unit.job not in self._best_s:
            self._best_s[unit.job] = self._traffic.best_step_s(job, len(unit.tasks))
        return self._best_s[unit.job]

    @cached_property
    def _traffic(self) -> JobTraffic:
        return _job_traffic(self._snapshot)

    @property
    def fabric(self) -> Fabric:
        """The topology, and where nodes and GPUs are in it."""
        return self._traffic.fabric

    def leaves(self, gpus: Ints) -> Ints:
        """Return the leaf of each GPU (row)."""
        leaves: Ints = self._traffic.fabric.gpu_leaf[gpus]
        return leaves

    def leaves_of(self, starts: Iterable[Placed]) -> Ints:
        """Return the leaves of tasks that start."""
        fabric, first = self._traffic.fabric, self._snapshot.nodes.first_gpu
        leaves = list[int]()
        for _, node, gpus in starts:
            gpu_leaves = [int(fabric.gpu_leaf[first[node] + gpu]) for gpu in gpus]
            leaves += gpu_leaves or [int(fabric.first_leaf[node])]
        return np.array(leaves, np.int64)

    # --- neighbours ----------------------------------------------------------------------------

    @cached_property
    def _running(self) -> list[_Sender]:
        """The groups of runs that communicate, and those that started before in this round."""
        snapshot, grants = self._snapshot, self._snapshot.grants
        task = grants.task.array().astype(np.int64)
        held = [(int(task[n]), grants.node[n], grants.gpus[n]) for n in self._communicating(task)]
        held += [
            start
            for start in self._scratch.starts
            if communicates(snapshot.job(snapshot.tasks.job[start.task]))
        ]
        groups: dict[tuple[int, int], list[Placed]] = {}
        for task_, node, gpus in held:
            job = snapshot.tasks.job[task_]
            part = -1 if snapshot.jobs.gang[job] else task_
            groups.setdefault((job, part), []).append((task_, node, gpus))
        return [self._sender_of(job, group) for (job, _), group in groups.items()]

    def _communicating(self, task: Ints) -> list[int]:
        """Return the grants (rows) of runs that communicate, given the task of each."""
        held = np.flatnonzero(task >= 0)
        job = self._snapshot.tasks.job.take(task[held]).astype(np.int64)
        some = [row for row in np.unique(job).tolist() if communicates(self._snapshot.job(row))]
        found: list[int] = held[np.isin(job, some)].tolist()
        return found

    def _sender_of(self, job: int, group: Sequence[Placed]) -> _Sender:
        end = float(self._end_at(np.array([task for task, _, _ in group])).max())
        return self._sender(self._snapshot.job(job), self.leaves_of(group), end)

    def _sender(self, job: Job, leaves: Ints, end: float) -> _Sender:
        assert job.communication is not None, "asked of jobs that communicate"
        traffic = traffic_of(self._traffic.topology, leaves, job.communication)
        return _Sender(traffic, end, leaves)

    def add(self, unit: Unit, leaves: Ints, end: float) -> None:
        """Count a unit as running on leaves from now on."""
        self._started.append(self._sender(self._snapshot.job(unit.job), leaves, end))
        self._known = None

    @cached_property
    def _rates(self) -> Floats:
        capacity = self._traffic.topology.capacity
        return flow_rates([each.traffic for each in self._running], capacity)

    @property
    def _senders(self) -> _Senders:
        if self._known is None:
            capacity = self._traffic.topology.capacity
            rates = np.append(
                self._rates, [each.traffic.alone_rate(capacity) for each in self._started]
            )
            self._known = _Senders([*self._running, *self._started], rates, capacity)
        return self._known

    def busy_leaves(self) -> Ints:
        """Return the leaves that runs which communicate use."""
        return self._senders.leaves

    # --- costs ---------------------------------------------------------------------------------

    def cost(self, unit: Unit, leaves: Ints, at: float, work_s: float) -> LinkCost:
        """Return what it costs that a unit starts at a time on leaves.

        `work_s` are the seconds that it takes at slowdown 1; with 0, harm is that of its first
        moment. O(flows x longest route), and O(neighbours' flows on its links) for each of the
        ends of these neighbours until then.
        """
        job, capacity = self._snapshot.job(unit.job), self._traffic.topology.capacity
        assert job.communication is not None, "asked of jobs that communicate"
        own = traffic_of(self._traffic.topology, leaves, job.communication)
        best_s, alone_rate = self._best_step_s(job, unit), own.alone_rate(capacity)
        near = self._senders.near(own, alone_rate, at)

        def slowdown_at(rate: float) -> float:
            return max(1.0, (own.step_s + own.flow_bytes / rate) / best_s)

        time, left_s, rate = at, work_s, near.rate(at)
        slowdown = first = slowdown_at(rate)
        for end in near.ends.tolist():
            if time + left_s * slowdown <= end:
                break
            left_s -= (end - time) / slowdown
            time, slowdown = end, slowdown_at(near.rate(end))
        end = time + left_s * slowdown
        span_s = max(end - at, work_s) if work_s > 0 else 1.0  # a time may be too far for seconds
        lost = self._senders.lost(own, rate, at, at + span_s) / max(1, len(leaves))
        return LinkCost(at, end, span_s / work_s if work_s > 0 else first, lost / span_s)

    # --- what sets span ------------------------------------------------------------------------

    def spread(self, here: Ints, there: Ints, slowdown: float) -> Spread:
        """Describe the set of a unit's leaves now, and the better one, later."""
        shape = self._traffic.topology
        tree = shape.tree if isinstance(shape, FatTree) else shape
        if not isinstance(tree, Tree):  # also where some leaves have no place in one
            hops, better = shape.diameter(here), shape.diameter(there)
            return Spread(spans=hops, level="hop", slowdown=slowdown, better_spans=better)
        children = tree.children(tree.lowest_common(here))
        if not len(children):
            children = tree.leaf_vertex[here]
        level = int(tree.level[children[0]])
        return Spread(
            spans=_spans(tree, here, level),
            level=tree.level_names[level],
            slowdown=slowdown,
            better_spans=_spans(tree, there, level),
        )


def _spans(tree: Tree, leaves: Ints, level: int) -> int:
    """Return how many vertices of a level are above some leaves."""
    above = np.flatnonzero(tree.level == level)
    inside = np.searchsorted(tree.first_leaf[above], np.unique(leaves), side="right")
    return len(np.unique(inside))


class _Senders:
    """The flows of all jobs that send, by link."""

    def __init__(self, senders: Sequence[_Sender], rate: Floats, capacity: Floats) -> None:
        """`rate` is that of the flows of each sender, while it sends."""
        self._capacity, self._rate = capacity, rate
        traffic = [each.traffic for each in senders]
        none, no_links = np.zeros(0), np.zeros(0, np.int64)
        self.leaves = np.unique(np.concatenate([no_links, *(each.leaves for each in senders)]))
        self._end = np.array([each.end for each in senders], float)
        self._ranks = np.array([len(each.leaves) for each in senders], float)
        self._bytes = np.array([each.flow_bytes for each in traffic], float)
        self._step_s = np.array([each.step_s for each in traffic], float)
        self._busy = _busy(self._bytes, self._step_s, rate)
        link = np.concatenate([no_links, *(each.links for each in traffic)])
        flows = np.concatenate([none, *(each.flows for each in traffic)])
        order = np.argsort(link, kind="stable")
        sender = np.repeat(np.arange(len(senders)), [len(each.links) for each in traffic])
        self._link, self._flows, self._sender = link[order], flows[order], sender[order]

    def _on(self, links: Ints, at: float) -> tuple[Ints, Ints]:
        """Return the flows (rows) of those that send after a time on links, and on which."""
        first = np.searchsorted(self._link, links)
        count = np.searchsorted(self._link, links, side="right") - first
        place = np.repeat(np.arange(len(links)), count)
        row = np.repeat(first, count) + nth_of_equals(place)
        kept = self._end[self._sender[row]] > at
        return row[kept], place[kept]

    def near(self, own: Traffic, alone_rate: float, at: float) -> _Near:
        """Return those that send after a time, on links of some traffic that these may fill."""
        row, place = self._on(own.links, at)
        weight = self._busy[self._sender[row]] * self._flows[row]
        capacity = self._capacity[own.links]
        others = np.bincount(place, weight, len(own.links))
        binds = capacity < alone_rate * _SAME * (own.flows + others)
        kept = binds[place]
        sender = self._sender[row[kept]]
        return _Near(
            own_flows=own.flows[binds],
            capacity=capacity[binds],
            alone_rate=alone_rate,
            place=(np.cumsum(binds) - 1)[place[kept]],
            weight=weight[kept],
            sender_rate=self._rate[sender],
            end=self._end[sender],
        )

    def lost(self, own: Traffic, rate: float, at: float, until: float) -> float:
        """Return the seconds x ranks that senders lose from a time until another to some traffic.

        `rate` is that of its flows. Each sender's rate is the one that it finds while all others
        send as they did before. O(n log n) for n flows on its links.
        """
        row, place = self._on(own.links, at)
        if not len(row):
            return 0.0
        capacity, sender = self._capacity[own.links], self._sender[row]
        peak = np.bincount(place, self._flows[row] * self._rate[sender], len(capacity))
        full = (peak + own.flows * rate > capacity * _SAME) & (peak > 0)
        kept, links = full[place], np.flatnonzero(full)
        if not len(links):
            return 0.0
        job = np.concatenate([sender[kept], np.full(len(links), len(self._rate))])
        link = np.concatenate([place[kept], links])
        order = np.argsort(link, kind="stable")
        flows = np.concatenate([self._flows[row[kept]], own.flows[links]])
        pairs = Pairs(job[order], link[order], flows[order], capacity[link[order]])
        busy = _busy(np.array([own.flow_bytes]), np.array([own.step_s]), np.array([rate]))
        met = np.unique(sender[kept])
        before_s, after_s = (
            self._steps_s(pairs, np.append(self._busy, part), rate)[met] for part in (0.0, busy)
        )
        together_s = np.minimum(self._end[met], until) - at
        return float(((1 - before_s / after_s) * self._ranks[met] * together_s).sum())

    def _steps_s(self, pairs: Pairs, busy: Floats, rate: float) -> Floats:
        """Return the seconds of a step of each sender beside one more, which is the last."""
        rates = np.append(self._rate, rate)
        new = rates.copy()
        np.minimum.at(new, pairs.job, levels_of(pairs, busy, rates))
        steps_s: Floats = self._step_s + self._bytes / new[:-1]
        return steps_s


def _busy(size: Floats, step_s: Floats, rate: Floats) -> Floats:
    """Return the part of the time in which each job sends."""
    send_s = size / rate
    return np.divide(send_s, step_s + send_s, out=np.zeros_like(send_s), where=send_s > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Near:
    """Traffic on the links that may slow it down, and the flows of others there, until they end."""

    own_flows: Floats
    capacity: Floats
    alone_rate: float
    place: Ints
    weight: Floats
    sender_rate: Floats
    end: Floats

    @property
    def ends(self) -> Floats:
        """The different times at which others end, ascending."""
        return np.unique(self.end)

    def rate(self, at: float) -> float:
        """Return the bytes per second of each flow beside those that send after a time."""
        if not len(self.capacity):
            return self.alone_rate
        here, links = self.end > at, len(self.capacity)
        place, weight, rate = self.place[here], self.weight[here], self.sender_rate[here]
        level = self.capacity / (self.own_flows + np.bincount(place, weight, links))
        for _ in range(len(place)):  # Newton's method, as in `contention`
            held = rate < level[place]
            left = self.capacity - np.bincount(place, weight * rate * held, links)
            new = left / (self.own_flows + np.bincount(place, weight * ~held, links))
            if not (new > level * _SAME).any():
                break
            level = np.maximum(level, new)
        return min(self.alone_rate, float(level.min()))
