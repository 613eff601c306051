"""The units of waiting jobs as arrays, so that the many that cannot start cost no loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.times.estimates import Estimates
from headgate.planning.units.unit import Unit
from headgate.state import Snapshot
from headgate.state.elastic import unit_sizes


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingUnits:
    """Units in an order, one entry each."""

    snapshot: Snapshot
    estimates: Estimates
    job: Ints  # rows
    lead: Ints  # rows of their first tasks
    milli: Ints  # thousandths of GPUs

    @classmethod
    def of(
        cls, snapshot: Snapshot, estimates: Estimates, jobs: Ints, most_milli: int
    ) -> WaitingUnits:
        """Return the units of jobs (rows, in order) that need at most `most_milli` of GPUs.

        Without the hardened one, for which places are kept. O(jobs), and O(tasks) of jobs of
        several tasks with units as small as that.
        """
        rows = snapshot.jobs
        jobs = _without_hardened(snapshot, jobs)
        milli = rows.unit_gpus_milli.take(jobs).astype(np.int64)
        jobs, milli = jobs[milli <= most_milli], milli[milli <= most_milli]
        lead = rows.first_task.take(jobs).astype(np.int64)
        count, gang = unit_sizes(snapshot, jobs), rows.gang.take(jobs) > 0
        if (count > 1).any():
            together = rows.waiting.take(jobs) + rows.waiting_cpu.take(jobs) == count
            ready = np.flatnonzero(~gang | together)
            jobs, lead, milli, gang = jobs[ready], lead[ready], milli[ready], gang[ready]
            jobs, lead, milli = _one_by_one(snapshot, jobs, lead, milli, gang | (count[ready] == 1))
            few = np.flatnonzero(milli <= most_milli)
            jobs, lead, milli = jobs[few], lead[few], milli[few]
        return cls(snapshot=snapshot, estimates=estimates, job=jobs, lead=lead, milli=milli)

    def __len__(self) -> int:
        return len(self.lead)

    @cached_property
    def queue(self) -> Ints:
        """The rows of their queues."""
        return self.snapshot.jobs.queue.take(self.job).astype(np.int64)

    @cached_property
    def tasks(self) -> Ints:
        """The number of tasks of each."""
        gang = self.snapshot.jobs.gang.take(self.job) > 0
        count: Ints = np.where(gang, unit_sizes(self.snapshot, self.job), 1)
        return count.astype(np.int64)

    @cached_property
    def run_s(self) -> Floats:
        """How long each is expected to run, inf if that is unknown."""
        if (self.tasks == 1).all():
            run_s = self.estimates.run_s(self.lead)
        else:
            run_s = np.maximum.reduceat(self.estimates.run_s(self._all_tasks), self._first)
        return np.where(np.isnan(run_s), math.inf, run_s)

    @cached_property
    def shape(self) -> Ints:
        """A number of the places where each fits, equal only for units that fit the same places."""
        demand = self.snapshot.tasks.demand.take(self._all_tasks).astype(np.int64)
        least = np.minimum.reduceat(demand, self._first)
        equal = least == np.maximum.reduceat(demand, self._first)
        distinct = np.array([self._distinct(job) for job in self.job.tolist()])
        shape = (least << 32) + (self.tasks << 1) + distinct
        return np.where(equal, shape, -1 - np.arange(len(self)))

    def _distinct(self, job: int) -> bool:
        return self.snapshot.job(job).distinct_nodes

    @cached_property
    def _first(self) -> Ints:
        return np.cumsum(self.tasks) - self.tasks

    @cached_property
    def _all_tasks(self) -> Ints:
        return np.repeat(self.lead - self._first, self.tasks) + np.arange(self.tasks.sum())

    def unit(self, index: int) -> Unit:
        """Return one of them."""
        first, job = int(self.lead[index]), int(self.job[index])
        tasks = range(first, first + int(self.tasks[index]))
        demands = self.snapshot.tasks.demand.span(tasks.start, tasks.stop).tolist()
        distinct = self.snapshot.job(job).distinct_nodes and len(tasks) > 1
        return Unit(job=job, tasks=tuple(tasks), demands=tuple(demands), distinct_nodes=distinct)


def _without_hardened(snapshot: Snapshot, jobs: Ints) -> Ints:
    """Return jobs (rows) without the one whose only unit is hardened."""
    if snapshot.hardened is None:
        return jobs
    job = snapshot.names.job_rows[snapshot.hardened.job]
    alone = snapshot.jobs.gang[job] or snapshot.jobs.task_count[job] == 1
    return jobs[jobs != job] if alone else jobs


def _one_by_one(
    snapshot: Snapshot, jobs: Ints, lead: Ints, milli: Ints, whole: Ints
) -> tuple[Ints, Ints, Ints]:
    """Replace jobs that are not one unit by their waiting tasks; return jobs, tasks, GPUs."""
    if whole.all():
        return jobs, lead, milli
    needs = np.array([demand.gpus_milli for demand in snapshot.names.demands], np.int64)
    pieces: list[tuple[Ints, Ints, Ints]] = []
    done = 0
    for index in np.flatnonzero(~whole).tolist():
        tasks = snapshot.waiting_of(int(jobs[index])).astype(np.int64)
        need = needs[snapshot.tasks.demand.take(tasks)]
        on_gpus = np.flatnonzero(snapshot.tasks.gpus.take(tasks))
        pieces.append((jobs[done:index], lead[done:index], milli[done:index]))
        pieces.append((np.full(len(on_gpus), jobs[index]), tasks[on_gpus], need[on_gpus]))
        done = index + 1
    pieces.append((jobs[done:], lead[done:], milli[done:]))
    job, task, need = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return job, task, need
