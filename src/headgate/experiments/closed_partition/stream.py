"""A stream of rigid jobs on a topology: first come, first served, each on a set of leaves.

Jobs that communicate slow each other down where their messages share links. Time is virtual;
nothing is drawn here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools
from headgate.model import Communication
from headgate.model.topology import Topology
from headgate.planning.links.contention import Contention
from headgate.planning.links.traffic import BestSets, Traffic, traffic_of
from headgate.planning.topology import Places

Place = Callable[[Bools, int], Places | None]
"""Return the leaves for a job of so many, given those in use; None: it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """A job of `leaves` that takes `run_s` in its best possible set, alone.

    `kind` names its kernel or class for tables; only `measured` jobs count there.
    """

    submitted_at: float
    leaves: int
    run_s: float
    communication: Communication
    kind: str = ""
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a job ran: times in seconds, the diameter of its set, and the least possible, in hops."""

    job: StreamJob
    started_at: float
    ended_at: float
    diameter: int
    least_diameter: int

    @property
    def wait_s(self) -> float:
        """The time from its submission to its start."""
        return self.started_at - self.job.submitted_at

    @property
    def run_s(self) -> float:
        """The time from its start to its end."""
        return self.ended_at - self.started_at

    @property
    def slowdown(self) -> float:
        """Its run time relative to that in its best possible set, alone."""
        return self.run_s / self.job.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """The jobs in order of submission, and figures of the machine while jobs arrive.

    `utilisation` counts the leaves that jobs run on; `shared_links` is the time-mean of the links
    that carry messages of several jobs.
    """

    ran: tuple[Ran, ...]
    utilisation: float
    shared_links: float


@dataclass(slots=True)
class _Running:
    job: StreamJob
    places: Places
    started_at: float
    left_s: float  # of run_s
    slowdown: float = 1.0


class _Machine:
    def __init__(self, topology: Topology, place: Place) -> None:
        self.topology = topology
        self.place = place
        self.contention = Contention(topology.capacity)
        self.best = BestSets(topology)
        self.crossing = np.zeros(topology.links, np.int64)  # jobs per link
        self.traffic: dict[int, Traffic] = {}
        self.used = np.zeros(topology.leaves, np.bool_)
        self.running: dict[int, _Running] = {}
        self.queue: deque[tuple[int, StreamJob]] = deque()
        self.now = 0.0
        self.busy_s = 0.0  # leaves x seconds
        self.shared_s = 0.0  # links x seconds

    def advance(self, at: float, *, counts: bool) -> None:
        """Let time pass; no job may end before `at`."""
        span_s = at - self.now
        for run in self.running.values():
            run.left_s -= span_s / run.slowdown
        if counts:
            self.busy_s += span_s * sum(run.job.leaves for run in self.running.values())
            self.shared_s += span_s * np.count_nonzero(self.crossing > 1)
        self.now = at

    def next_end(self) -> tuple[float, int]:
        """Return when the next job ends, and its number; infinite without any."""
        ends = ((self.now + r.left_s * r.slowdown, n) for n, r in self.running.items())
        return min(ends, default=(np.inf, -1))

    def start_queued(self) -> bool:
        """Start jobs from the head of the queue; return whether any has started."""
        started = False
        while self.queue:
            number, job = self.queue[0]
            places = self.place(self.used, job.leaves)
            if places is None:
                break
            self.queue.popleft()
            self.used[places.taken] = True
            self.running[number] = _Running(job, places, self.now, job.run_s)
            traffic = traffic_of(self.topology, places.sites, job.communication)
            if len(traffic.links):
                self.traffic[number] = traffic
                self.crossing[traffic.links] += 1
                self.contention.add(str(number), traffic)
            started = True
        return started

    def end(self, number: int) -> _Running:
        """Free the leaves of a job."""
        run = self.running.pop(number)
        self.used[run.places.taken] = False
        if number in self.traffic:
            self.crossing[self.traffic.pop(number).links] -= 1
            self.contention.remove(str(number))
        return run

    def revise(self) -> None:
        """Set all slowdowns after jobs have started or ended."""
        for name in self.contention.changed():
            run = self.running[int(name)]
            best_s = self.best.step_s(run.job.communication, run.job.leaves)
            run.slowdown = self.contention.step_s(name) / best_s


def run_stream(
    topology: Topology, jobs: Sequence[StreamJob], place: Place, *, since: float = 0.0
) -> StreamOutcome:
    """Run all jobs to their end and return how each ran; `jobs` are in order of submission.

    Figures of the machine count from `since`, the time of a submission, to the last submission.
    """
    machine = _Machine(topology, place)
    ran: dict[int, Ran] = {}
    arrivals = deque(enumerate(jobs))
    last_arrival = jobs[-1].submitted_at
    while arrivals or machine.running:
        ends_at, number = machine.next_end()
        arrives_at = arrivals[0][1].submitted_at if arrivals else np.inf
        counts = since <= machine.now < last_arrival
        if arrives_at < ends_at:
            machine.advance(arrives_at, counts=counts)
            machine.queue.append(arrivals.popleft())
            changed = machine.start_queued()
        else:
            machine.advance(ends_at, counts=counts)
            ran[number] = _ran(topology, machine.end(number), ends_at)
            machine.start_queued()
            changed = True
        if changed:
            machine.revise()
    span_s = last_arrival - since
    return StreamOutcome(
        ran=tuple(ran[n] for n in range(len(jobs))),
        utilisation=machine.busy_s / (span_s * topology.leaves),
        shared_links=float(machine.shared_s / span_s),
    )


def _ran(topology: Topology, run: _Running, ended_at: float) -> Ran:
    return Ran(
        job=run.job,
        started_at=run.started_at,
        ended_at=ended_at,
        diameter=topology.diameter(run.places.sites),
        least_diameter=topology.least_diameter(run.job.leaves),
    )


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    some = list(values)
    return sum(some) / len(some)
