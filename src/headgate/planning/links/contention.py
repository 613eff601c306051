"""How jobs that share links slow each other down: one fixed point for all of them.

Every job repeats a step: it computes for z seconds, then sends its flows of s bytes each, n of them
over each of its links (`headgate.planning.links.traffic`). All flows of a job have one rate g while
it sends, so that it sends for t = s / g seconds of a step of z + t, which is the part d = t / (z +
t) of the time. Jobs are not in step with each other: when job j sends, each other job k sends with
probability d_k. The links are shared max-min fairly among flows: on link l with capacity C, the
flows of j get the rate f that solves

    n_j f + sum over other jobs k on l of  d_k n_k min(f, g_k)  =  C

so that a job which another link, or its own pattern, holds below f leaves the rest to others; and
g_j is the least f of its links. Where all jobs send all the time (z = 0), this is the max-min fair
allocation. Where they all share one link alike, it is the approximation of Bard and Schweitzer to
a closed queueing network with one customer per class.

The fixed point is found by damped iteration, with a step of Newton's method for each f, from the
rates that the jobs have alone, so that it
depends on the jobs and their places only, not on the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.errors import InvariantBroken
from headgate.planning.links.traffic import Traffic

_SAME = 1e-9  # relative difference of rates at which the iteration ends
_NEAR = 1e-3  # likewise, while links are still missing
_CHANGED = 1e-8  # likewise, from which on a rate is another one
_ROUNDS = 2000
_STEPS = 3  # of Newton in a round
_FULL = 1 + 1e-9


def flow_rates(jobs: Sequence[Traffic], capacity: Floats) -> Floats:
    """Return the rate of each job's flows while it sends, in bytes per second; inf without links.

    To 1e-9 of each, or as near as 2,000 rounds come. Few links hold jobs back: it solves for those
    that are fullest, adds what links these rates would overload, and solves again until there are
    none. O(rounds x pairs of job and such link + additions x pairs of job and contended link), in
    NumPy.
    """
    alone = np.array([job.alone_rate(capacity) for job in jobs])
    pairs = Pairs.of(jobs, alone, capacity)
    if not len(pairs.job):
        return alone
    steps = _Steps(
        np.array([job.flow_bytes for job in jobs]), np.array([job.step_s for job in jobs])
    )
    rate, same = alone, _NEAR
    chosen = np.zeros(len(pairs.job), bool)
    while True:
        more = pairs.overloaded(steps.busy(rate), rate, 1 + same) & ~chosen
        if more.any():
            chosen |= more
        elif same == _NEAR:
            same = _SAME
        else:
            return rate
        rate = _solved(pairs.some(chosen), steps, alone, rate, same)


@dataclass(frozen=True, slots=True)
class _Steps:
    """By job: the bytes of a flow, and the seconds of computing before it."""

    flow_bytes: Floats
    step_s: Floats

    def busy(self, rate: Floats) -> Floats:
        """Return the part of the time that each job sends at these rates."""
        send_s = self.flow_bytes / rate
        part: Floats = np.divide(
            send_s, self.step_s + send_s, out=np.zeros(len(rate)), where=send_s > 0
        )
        return part


def _solved(pairs: Pairs, steps: _Steps, alone: Floats, rate: Floats, same: float) -> Floats:
    """Return the rates at which no link of the pairs is overloaded, from some rates on."""
    level, part = np.zeros(len(pairs.job)), 0.55
    new = rate
    for turn in range(_ROUNDS):
        level = pairs.levels(level, steps.busy(rate)[pairs.job], rate[pairs.job])
        new = alone.copy()
        np.minimum.at(new, pairs.job, level)
        with np.errstate(invalid="ignore"):  # infinite rates, of jobs without links, are equal
            unchanged = (new == rate) | (np.abs(new - rate) <= same * rate)
        if unchanged.all():
            return new
        if turn % 200 == 199:
            part /= 2
        with np.errstate(divide="ignore"):
            rate = 1 / ((1 - part) / rate + part / new)
    return new  # a round of a policy must not fail for the last digits of a model


class Pairs:
    """The pairs of a job and a link on which jobs can slow each other down, by link."""

    def __init__(self, job: Ints, link: Ints, flows: Floats, capacity: Floats) -> None:
        """Take pairs in order of their links."""
        self.job, self.flows, self.capacity = job, flows, capacity
        starts = np.diff(link, prepend=-1) != 0
        self._link = np.cumsum(starts) - 1
        bounds = np.append(np.flatnonzero(starts), len(link))
        self._first, self._end = bounds[self._link], bounds[self._link + 1]

    @classmethod
    def of(cls, jobs: Sequence[Traffic], alone: Floats, capacity: Floats) -> Pairs:
        """Leave out links that could carry all their flows at the rates that these have alone."""
        number = np.repeat(np.arange(len(jobs)), [len(job.links) for job in jobs])
        link = np.concatenate([job.links for job in jobs]) if jobs else np.zeros(0, np.int64)
        flows = np.concatenate([job.flows for job in jobs]) if jobs else np.zeros(0)
        peak = np.bincount(link, flows * alone[number], len(capacity))
        kept = np.flatnonzero((peak > capacity * _FULL)[link])
        kept = kept[np.argsort(link[kept], kind="stable")]
        return cls(number[kept], link[kept], flows[kept], capacity[link[kept]])

    def some(self, chosen: Bools) -> Pairs:
        """Return the pairs of some links, of which all pairs are chosen."""
        return Pairs(
            self.job[chosen], self._link[chosen], self.flows[chosen], self.capacity[chosen]
        )

    def overloaded(self, busy: Floats, rate: Floats, most: float) -> Bools:
        """Choose each job's fullest link, with all pairs, if above a multiple of its capacity.

        By what the job sends on it while the others send now and then, see the module.
        """
        own, weight = rate[self.job], busy[self.job] * self.flows
        rank = np.empty(len(rate), np.int64)
        rank[np.argsort(rate)] = np.arange(len(rate))
        order = np.argsort(self._link * len(rate) + rank[self.job])
        weights = np.concatenate([[0.0], np.cumsum(weight[order])])
        loads = np.concatenate([[0.0], np.cumsum((weight * own)[order])])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))  # of each pair: first those with lower rates
        others = loads[place] - loads[self._first] + own * (weights[self._end] - weights[place + 1])
        use = (self.flows * own + others) / self.capacity
        fullest = np.zeros(len(rate))
        np.maximum.at(fullest, self.job, use)
        full = np.flatnonzero((use > most) & (use == fullest[self.job]))
        _, one = np.unique(self.job[full], return_index=True)
        is_full = np.zeros(len(self._link), bool)
        is_full[self._link[full[one]]] = True
        chosen: Bools = is_full[self._link]
        return chosen

    def levels(self, level: Floats, busy: Floats, rate: Floats) -> Floats:
        """Return the f of each pair, see the module, by some steps of Newton's method from a level.

        For what each job does now. The left side is concave and increases with f: from anywhere, a
        step leads to a value that is not above the solution, and from there upward to it.
        """
        weight = busy * self.flows
        known, rank = np.unique(rate, return_inverse=True)
        base = self._link * (len(known) + 1)
        order = np.argsort(base + rank)  # by link, then by rate
        keys = (base + rank)[order]
        weights = np.concatenate([[0.0], np.cumsum(weight[order])])
        loads = np.concatenate([[0.0], np.cumsum((weight * rate)[order])])
        before, total = loads[self._first], weights[self._end]
        least = self.capacity / (self.flows + total - weights[self._first] - weight)  # from 0
        for _ in range(_STEPS):
            ranks = np.searchsorted(known, level, side="right")  # rates up to the level
            place = np.searchsorted(keys, base + ranks)
            own = rank < ranks
            load = loads[place] - before - own * weight * rate
            above = total - weights[place] - ~own * weight
            level = np.maximum((self.capacity - load) / (self.flows + above), least)
        return level


def levels_of(pairs: Pairs, busy: Floats, rate: Floats) -> Floats:
    """Return the f of each pair, see the module, to 1e-9, for what each job does now."""
    level = np.zeros(len(pairs.job))
    for _ in range(len(level) + 1):
        new = pairs.levels(level, busy[pairs.job], rate[pairs.job])
        if (new <= level * _FULL).all():
            return new
        level = new
    return level


class Contention:
    """Jobs that send over the links of a topology, and how much slower each is than alone.

    `add` and `remove` are collected; `changed` recomputes what they can reach.
    """

    def __init__(self, capacity: Floats) -> None:
        """Take the bytes per second of every link."""
        self.capacity = capacity
        self._jobs: dict[str, Traffic] = {}
        self._send_rate: dict[str, float] = {}
        self._dirty: list[Ints] = []  # links of jobs that came or went
        self._new: set[str] = set()

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def add(self, job: str, traffic: Traffic) -> None:
        """Add a job that sends from now on."""
        if job in self._jobs:
            raise InvariantBroken(f"job {job} sends already")
        self._jobs[job] = traffic
        self._dirty.append(traffic.links)
        self._new.add(job)

    def remove(self, job: str) -> None:
        """Remove a job, which sends no more."""
        self._dirty.append(self._jobs.pop(job).links)
        self._send_rate.pop(job, None)
        self._new.discard(job)

    @property
    def is_changed(self) -> bool:
        """Whether jobs came or went since the last `changed`."""
        return bool(self._dirty)

    def traffic(self, job: str) -> Traffic:
        """Return what a job sends."""
        return self._jobs[job]

    def changed(self) -> list[str]:
        """Recompute the rates that additions and removals can reach; return the jobs that have new.

        In order of addition. O(pairs of job and link) to find them.
        """
        if not self._dirty:
            return []
        touched = self._reached()
        rates = flow_rates([self._jobs[job] for job in touched], self.capacity)
        jobs = []
        for job, rate in zip(touched, rates.tolist(), strict=True):
            if job in self._new or abs(rate - self._send_rate[job]) > _CHANGED * rate:
                self._send_rate[job] = rate
                jobs.append(job)
        self._dirty.clear()
        self._new.clear()
        return jobs

    def _reached(self) -> list[str]:
        """Return the jobs on links whose jobs have changed, directly or through other jobs."""
        names = list(self._jobs)
        jobs = list(self._jobs.values())
        reached = np.zeros(len(self.capacity), bool)
        reached[np.concatenate(self._dirty)] = True
        owner = np.repeat(np.arange(len(jobs)), [len(job.links) for job in jobs])
        link = np.concatenate([job.links for job in jobs]) if jobs else np.zeros(0, np.int64)
        touched = np.array([name in self._new for name in names], bool)
        while True:
            wider = touched.copy()
            wider[owner[reached[link]]] = True
            if (wider == touched).all():
                return [names[row] for row in np.flatnonzero(wider).tolist()]
            touched = wider
            reached[link[touched[owner]]] = True

    def step_s(self, job: str) -> float:
        """Return the seconds of a step of a job, beside the others, as of the last `changed`."""
        traffic = self._jobs[job]
        return traffic.step_s + traffic.flow_bytes / self._send_rate[job]

    def loads(self) -> Floats:
        """Return the mean bytes per second on every link."""
        load = np.zeros(len(self.capacity))
        for job in self._jobs:
            links, bytes_per_s = self.load_of(job)
            load[links] += bytes_per_s
        return load

    def load_of(self, job: str) -> tuple[Ints, Floats]:
        """Return the links that a job sends over, and its mean bytes per second on each."""
        traffic = self._jobs[job]
        step_s = self.step_s(job)
        return (
            traffic.links,
            traffic.flows * traffic.flow_bytes / step_s if step_s else 0 * traffic.flows,
        )

    def jobs(self) -> Iterable[str]:
        """Return the jobs, in order of addition."""
        return self._jobs.keys()
