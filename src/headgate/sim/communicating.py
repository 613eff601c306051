"""The simulated runs that communicate: how fast each computes beside the others.

The tasks of a gang communicate with each other, of other jobs the GPUs of each task: a *group*.
A group sends from when the first of its runs has read its input until the last of them ends. All
its runs advance at 1 / slowdown, the seconds of a step in the group's best possible set alone
divided by those of a step now. When groups come or go, the runs of those whose step has changed
have their remaining computing rescaled; all others keep the end computed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.model import Job, RunId
from headgate.planning.links.contention import Contention
from headgate.planning.links.job_traffic import JobTraffic, communicates
from headgate.protocol import LaunchTask
from headgate.sim.link_use import JobTimes, LinkUse
from headgate.state import Snapshot, saved_s


@dataclass(slots=True)
class _Group:
    """Tasks that communicate with each other: their places by ordinal, and their runs."""

    job: Job
    places: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    open: set[RunId] = field(default_factory=set)  # not ended
    computing: dict[RunId, _Progress] = field(default_factory=dict)  # in order of their starts
    best_step_s: float = 0.0
    step_s: float = 0.0
    slowdown: float = 1.0
    since: float = 0.0  # has advanced to this time


@dataclass(slots=True)
class _Progress:
    """Computing of a run, in seconds at slowdown 1 and speed 1: what was left at a time."""

    left_s: float
    since: float
    speed: float
    done_s: float = 0.0

    def advance(self, now: float, slowdown: float) -> None:
        step_s = (now - self.since) / slowdown * self.speed
        self.left_s = max(0.0, self.left_s - step_s)
        self.done_s += step_s
        self.since = now


class Communicating:
    """The runs that communicate, and how far they have computed.

    Times are seconds of virtual time and never decrease. Changes of one instant are collected;
    `revised` applies them.
    """

    def __init__(self) -> None:
        self.use = LinkUse()
        self.times = JobTimes()
        self._traffic: JobTraffic | None = None
        self._view: Snapshot | None = None  # with nodes that may differ from those of `_traffic`
        self._shared: Contention | None = None
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[RunId, str] = {}
        self._saved_s: dict[tuple[str, int], float] = {}
        self._fresh: list[RunId] = []  # began to compute at this instant

    def __contains__(self, run: RunId) -> bool:
        return run in self._group_of

    # --- runs ----------------------------------------------------------------------------------

    def see(self, snapshot: Snapshot) -> None:
        """Take the nodes and the topology of later launches from a snapshot."""
        self._view = snapshot

    def launched(self, launches: Sequence[LaunchTask], job: Job, now: float) -> None:
        """Take note of runs of one job that were launched together."""
        apart = len({launch.node for launch in launches}) > 1
        if not (apart or communicates(job)):
            return
        traffic = self._current(now)
        if apart:
            places = [(launch.node, launch.gpus) for launch in launches]
            self.times.diameters[job.id] = traffic.diameter(places)
        if not communicates(job):
            return
        for launch in launches:
            name = job.id if job.gang else f"{job.id}/{launch.run.ordinal}"
            group = self._groups.get(name)
            if group is None:
                group = self._groups[name] = _Group(job)
            group.places[launch.run.ordinal] = (launch.node, launch.gpus)
            group.open.add(launch.run)
            self._group_of[launch.run] = name

    def left_s(self, launch: LaunchTask, compute_s: float) -> float:
        """Return what a run has to compute, in seconds at slowdown 1 and speed 1.

        The engine assumes that what it saved took as long as at slowdown 1; it may be less.
        """
        saved = self._saved_s.get(launch.run[:2], 0.0)
        return max(0.0, compute_s - min(saved, launch.progress_s))

    def computes(self, run: RunId, left_s: float, now: float, speed: float = 1.0) -> None:
        """Let a run compute `left_s` seconds at speed 1 from now on, at the speed of its node."""
        name = self._group_of[run]
        group = self._groups[name]
        if not group.computing:
            self._send(name, group, now)
        group.computing[run] = _Progress(left_s, now, speed)
        self._fresh.append(run)

    def ended(self, run: RunId, now: float, *, finished: bool) -> None:
        """Take note of the end of a run, and of the progress that its checkpoints hold."""
        name = self._group_of.pop(run)
        group = self._groups[name]
        group.open.discard(run)
        progress = group.computing.get(run)
        if progress is not None:
            self._account(name, group, now)
            del group.computing[run]
            if not group.computing:
                self._quiet(name, group, now)
        key = run[:2]
        if finished:
            self._saved_s.pop(key, None)
        elif progress is not None and (every_s := group.job.tasks[run.ordinal].checkpoint_s):
            before = self._saved_s.get(key, 0.0)
            self._saved_s[key] = before + float(saved_s(progress.done_s, every_s))
        if not group.open:
            del self._groups[name]

    def revised(self, now: float) -> list[tuple[RunId, float]]:
        """Return the runs whose end has changed, or is new, each with its end."""
        if self._shared is None or not (self._fresh or self._shared.is_changed):
            return []
        runs: dict[RunId, None] = {}
        for name in self._shared.changed():
            group = self._groups[name]
            step_s = self._shared.step_s(name)
            self._account(name, group, now)
            best_s = group.best_step_s or step_s  # none if its best possible set sends nothing
            group.slowdown, group.step_s = max(1.0, step_s / best_s) if best_s else 1.0, step_s
            runs |= dict.fromkeys(group.computing)
        runs |= dict.fromkeys(self._fresh)
        self._fresh.clear()
        ends = []
        for run in runs:
            own = self._groups.get(self._group_of.get(run, ""))
            if own is not None and run in own.computing:
                left_s = own.computing[run].left_s / own.computing[run].speed
                ends.append((run, now + left_s * own.slowdown))
        return ends

    def archive(self, jobs: Iterable[str]) -> None:
        """Keep of jobs that have ended only what figures need."""
        for job in jobs:
            self.times.archive(job)
        gone = frozenset(jobs)
        for key in [key for key in self._saved_s if key[0] in gone]:
            del self._saved_s[key]

    def figures(self, now: float, span_s: float) -> dict[str, Any]:
        """Return the figures of jobs and links up to now, these as a part of some time."""
        for name, group in self._groups.items():
            if group.computing:
                self._account(name, group, now)
        self.use.close(now)
        return {
            **self.times.figures(),
            "shared_links": self.use.shared_links,
            "links": self.use.figures(span_s),
        }

    # --- groups --------------------------------------------------------------------------------

    def _send(self, name: str, group: _Group, now: float) -> None:
        """Let a group send from now on."""
        assert self._traffic is not None, "it was launched"
        assert self._shared is not None, "likewise"
        assert group.job.communication is not None, "likewise"
        traffic = self._traffic.traffic(group.job.communication, group.places.values())
        alone_s = traffic.step_alone_s(self._traffic.topology.capacity)
        best_s = self._traffic.best_step_s(group.job, len(group.places))
        group.best_step_s = min(alone_s, best_s)
        group.since = now
        self._shared.add(name, traffic)
        self.use.add(group.job.id, traffic, now)

    def _quiet(self, name: str, group: _Group, now: float) -> None:
        """Let a group send no more."""
        assert self._shared is not None, "it sends"
        self.use.remove(group.job.id, self._shared.traffic(name), now)
        self._shared.remove(name)

    def _account(self, name: str, group: _Group, now: float) -> None:
        """Let the runs of a group advance to this time, at the slowdown that holds since."""
        assert self._shared is not None, "it sends"
        elapsed_s = now - group.since
        if elapsed_s <= 0:
            return
        group.since = now
        for progress in group.computing.values():
            progress.advance(now, group.slowdown)
        self.times.add(group.job.id, elapsed_s, elapsed_s / group.slowdown)
        if group.step_s:  # else it sends nothing
            self.use.sent(self._shared.traffic(name), elapsed_s / group.step_s)

    def _current(self, now: float) -> JobTraffic:
        """Return the traffic in the present topology; if it is new, send everything over it."""
        known, view = self._traffic, self._view
        if view is None:
            assert known is not None, "a launch follows a decision"
            return known
        self._view, traffic = None, JobTraffic(view)
        if known is not None and known.fabric is traffic.fabric:
            return known
        sending = [(name, group) for name, group in self._groups.items() if group.computing]
        for name, group in sending:
            self._account(name, group, now)
            self._quiet(name, group, now)
        self.use.close(now)
        self.use.begin(traffic.topology)
        self._traffic, self._shared = traffic, Contention(traffic.topology.capacity)
        for name, group in sending:
            self._send(name, group, now)
        return traffic
