"""How fast a unit that communicates runs on a set of leaves, beside the jobs that run now.

A unit on a set advances at 1 / slowdown: the seconds of a step in its best possible set alone,
divided by those of a step there (`headgate.planning.contention`). Neighbours slow it down until
they are expected to end. What it does to them is not counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.model import Job
from headgate.model.topology import FatTree, Tree
from headgate.planning.contention import flow_rates
from headgate.planning.fabric import Fabric
from headgate.planning.job_traffic import JobTraffic, communicates
from headgate.planning.shares import Floats, Ints
from headgate.planning.traffic import Traffic, traffic_of
from headgate.planning.units import Unit
from headgate.state import Scratch, Snapshot

_KEPT = 8
_SAME = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The best set that a unit could use now: it spans so many parts of a level of the topology.

    There it would run for `slowdown` times as long as in its best possible set; the set that it
    waits for is in `better_spans` parts.
    """

    spans: int
    level: str
    slowdown: float
    better_spans: int


Placed = tuple[int, int, Sequence[int]]
"""A task (row), its node (row), and the indices of its GPUs there."""


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
    for known, traffic in _recent:
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

    def matter(self, unit: Unit) -> bool:
        """Return whether a unit communicates, and its time in the best possible set is known."""
        job = self._snapshot.job(unit.job)
        if not communicates(job):
            return False
        specs = [self._snapshot.names.demands[demand] for demand in set(unit.demands)]
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
        """Return the leaf of each GPU (row), without those that have no place."""
        leaves = self._traffic.fabric.gpu_leaf[gpus]
        found: Ints = leaves[leaves >= 0]
        return found

    def leaves_of(self, starts: Iterable[Placed]) -> Ints:
        """Return the leaves of tasks that start, those without a place left out."""
        fabric, first = self._traffic.fabric, self._snapshot.nodes.first_gpu
        leaves = list[int]()
        for _, node, gpus in starts:
            gpu_leaves = [int(fabric.gpu_leaf[first[node] + gpu]) for gpu in gpus]
            leaves += gpu_leaves or [int(fabric.first_leaf[node])]
        found = np.array(leaves, np.int64)
        return found[found >= 0]

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

    def busy_leaves(self) -> Ints:
        """Return the leaves that runs which communicate use."""
        senders = [*self._running, *self._started]
        return np.concatenate([np.zeros(0, np.int64), *[each.leaves for each in senders]])

    # --- costs ---------------------------------------------------------------------------------

    def ends_at(self, unit: Unit, leaves: Ints, at: float, work_s: float) -> tuple[float, float]:
        """Return when a unit ends that starts at a time on leaves, and its mean slowdown.

        `work_s` are the seconds that it takes at slowdown 1. O(neighbours) fixed points.
        """
        job = self._snapshot.job(unit.job)
        own = self._sender(job, leaves, math.inf).traffic
        best_s = self._best_step_s(job, unit)
        senders = [each for each in [*self._running, *self._started] if each.end > at]
        near = sorted(_near(own, senders), key=lambda each: each.end)
        alone = max(1.0, own.step_alone_s(self._traffic.topology.capacity) / best_s)
        time, left_s = at, work_s
        slowdown = first = max(alone, self._step_s(own, near) / best_s)
        while slowdown > alone * _SAME and time + left_s * slowdown > near[0].end:
            left_s -= (near[0].end - time) / slowdown
            time = near[0].end
            near = [each for each in near if each.end > time]
            slowdown = max(alone, self._step_s(own, near) / best_s)
        end = time + left_s * slowdown
        return end, (end - at) / work_s if work_s > 0 else first

    def _step_s(self, own: Traffic, near: Sequence[_Sender]) -> float:
        jobs = [own, *(each.traffic for each in near)]
        rate = float(flow_rates(jobs, self._traffic.topology.capacity)[0])
        return own.step_s + own.flow_bytes / rate

    # --- what sets span ------------------------------------------------------------------------

    def spread(self, here: Ints, there: Ints, slowdown: float) -> Spread:
        """Describe the set of a unit's leaves now, and the better one, later."""
        shape = self._traffic.topology
        tree = shape.tree if isinstance(shape, FatTree) else shape
        if not isinstance(tree, Tree):
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


def _near(own: Traffic, senders: Sequence[_Sender]) -> list[_Sender]:
    """Return those that share links with some traffic, directly or through others."""
    reached, left, near = own.links, list(senders), list[_Sender]()
    while True:
        meets = [bool(np.isin(each.traffic.links, reached).any()) for each in left]
        if not any(meets):
            return near
        found = [each for each, met in zip(left, meets, strict=True) if met]
        left = [each for each, met in zip(left, meets, strict=True) if not met]
        near += found
        reached = np.unique(np.concatenate([reached, *(each.traffic.links for each in found)]))
