"""Expected times of a round with wide tasks, computed once for all its stages."""

from __future__ import annotations

import math

import numpy as np

from headgate.planning.census import Bools
from headgate.planning.estimates import Estimates
from headgate.planning.shares import Floats, Ints
from headgate.planning.standing import Standing
from headgate.planning.timetable import UNKNOWN_AT
from headgate.planning.wide import leading_tasks

BACKFILL_P = 0.8
"""The least probability that a backfilled run ends before the reservation that it must not delay.

So each one delays it with a probability of 0.2 at most, as far as the estimates are right.
"""


class Times:
    """Ends of the runs on GPUs, and how long runs of waiting tasks take."""

    def __init__(self, now: Standing) -> None:
        """Estimate the runs of a standing's snapshot, and the first wide unit of each job."""
        holder = now.snapshot.gpus.task.array()
        self.estimates = Estimates(now.snapshot)
        self._tasks = np.unique(holder[holder >= 0]).astype(np.int64)
        self._ends = self._estimated(self._tasks)
        self._lead = _leading(now)
        self._jobs = np.flatnonzero(self._lead >= 0)
        self._some = self._lead[self._jobs]
        self.run_s = self._of_jobs(self.run_s_of(self._some))
        """Seconds that the first waiting task of each job is expected to take; inf if unknown."""
        self.surely_s = self._of_jobs(self.surely_s_of(self._some))
        """Those that it takes at most with probability `BACKFILL_P`; inf if unknown, `[jobs]`."""
        self.learnt = _is_learnt(now, self._lead)
        """Whether a job's times are estimated by its chain of classes, `[jobs]`."""

    def _of_jobs(self, run_s: Floats) -> Floats:
        by_job = np.full(len(self._lead), math.inf)
        by_job[self._jobs] = run_s
        return by_job

    def end_at(self, tasks: Ints) -> Floats:
        """Return when runs of tasks are expected to end; `UNKNOWN_AT` if that is unknown."""
        at = np.searchsorted(self._tasks, tasks)
        known = self._tasks.take(at, mode="clip") == tasks if len(self._tasks) else at < 0
        if not known.all():
            return self._estimated(tasks)
        return self._ends[at]

    def surely_ended_at(self, tasks: Ints) -> Floats:
        """Return when runs on GPUs have ended with probability `BACKFILL_P`, or `UNKNOWN_AT`."""
        ends_at = self._estimated(self._tasks, BACKFILL_P)
        return ends_at[np.searchsorted(self._tasks, tasks)]

    def _estimated(self, tasks: Ints, p: float = 0.5) -> Floats:
        return np.minimum(self.estimates.end_at(tasks, p), UNKNOWN_AT)

    def run_s_of(self, tasks: Ints) -> Floats:
        """Return the seconds that runs of tasks are expected to take; inf if unknown."""
        return _known(self.estimates.run_s(tasks))

    def surely_s_of(self, tasks: Ints) -> Floats:
        """Return the seconds that runs take at most with probability `BACKFILL_P`, or inf."""
        return _known(self.estimates.run_s(tasks, BACKFILL_P))


def _leading(now: Standing) -> Ints:
    """Return the first waiting wide task of each job, else its first for the flow, else -1."""
    lead = np.full(len(now.jobs), -1)
    if len(now.task):
        first = np.searchsorted(now.task_job, np.arange(len(now.jobs)))
        has = now.task_job.take(first, mode="clip") == np.arange(len(now.jobs))
        lead[has] = now.task[first[has]]
    lead[now.wide_jobs] = leading_tasks(now)
    return lead


def _is_learnt(now: Standing, lead: Ints) -> Bools:
    """Return which jobs have wide tasks, declare their times, or are of an unknown class."""
    snapshot = now.snapshot
    unknown = np.isnan(snapshot.runtime_classes.held_s.array())
    kind = snapshot.tasks.runtime_class.take(np.maximum(lead, 0)) if len(lead) else lead
    declared = ~np.isnan(snapshot.jobs.estimated_s.take(now.jobs))
    learnt: Bools = now.has_wide | declared | ((lead >= 0) & unknown[kind])
    return learnt


def _known(run_s: Floats) -> Floats:
    return np.where(np.isnan(run_s), math.inf, run_s)
