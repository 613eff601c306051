"""Expected times of a round with multi-GPU tasks, computed once, when a stage first needs them."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.place.multi_gpu import leading_tasks
from headgate.planning.shares.standing import Standing
from headgate.planning.times.estimates import Estimates
from headgate.planning.times.reservations import UNKNOWN_AT

BACKFILL_P = 0.8
"""The least probability that a backfilled run ends before the reservation that it must not delay.

So each one delays it with a probability of 0.2 at most, as far as the estimates are right.
"""


class Times:
    """Ends of the runs on GPUs, and how long runs of waiting tasks take."""

    def __init__(self, standing: Standing) -> None:
        """Estimate the runs of a standing's snapshot, and the first waiting task of each job."""
        self._standing, self.estimates = standing, Estimates(standing.snapshot)

    @cached_property
    def _tasks(self) -> Ints:
        """The tasks that hold whole GPUs, ascending."""
        holder = self._standing.snapshot.gpus.task.array()
        return np.unique(holder[holder >= 0]).astype(np.int64)

    @cached_property
    def _ends(self) -> Floats:
        """When their runs are expected to end."""
        self.estimates.prepare(self._tasks, self._some)
        return self._estimated(self._tasks)

    @cached_property
    def _lead(self) -> Ints:
        return _leading(self._standing)

    @cached_property
    def _jobs(self) -> Ints:
        return np.flatnonzero(self._lead >= 0)

    @cached_property
    def _some(self) -> Ints:
        return self._lead[self._jobs]

    @cached_property
    def run_s(self) -> Floats:
        """Seconds that the first waiting task of each job is expected to take; inf if unknown."""
        return self._of_jobs(self.run_s_of(self._some))

    @cached_property
    def surely_s(self) -> Floats:
        """Those that it takes at most with probability `BACKFILL_P`; inf if unknown, `[jobs]`."""
        return self._of_jobs(self.surely_s_of(self._some))

    @cached_property
    def learnt(self) -> Bools:
        """Whether a job's times are estimated by its chain of classes, `[jobs]`."""
        return _is_learnt(self._standing, self._lead)

    def _of_jobs(self, run_s: Floats) -> Floats:
        by_job = np.full(len(self._lead), math.inf)
        by_job[self._jobs] = run_s
        return by_job

    def end_at(self, tasks: Ints) -> Floats:
        """Return when runs of tasks are expected to end; `UNKNOWN_AT` if that is unknown."""
        index = np.searchsorted(self._tasks, tasks)
        known = self._tasks.take(index, mode="clip") == tasks if len(self._tasks) else index < 0
        if not known.all():
            return self._estimated(tasks)
        return self._ends[index]

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


def _leading(standing: Standing) -> Ints:
    """Return the first waiting multi-GPU task of each job, else its first for the flow, else -1."""
    lead = np.full(len(standing.jobs), -1)
    first = np.flatnonzero(np.diff(standing.task_job, prepend=-1))
    lead[standing.task_job[first]] = standing.task[first]
    lead[standing.multi_gpu_jobs] = leading_tasks(standing)
    return lead


def _is_learnt(standing: Standing, lead: Ints) -> Bools:
    """Return which jobs have multi-GPU tasks, declare their times, or are of an unknown class."""
    snapshot = standing.snapshot
    unknown = np.isnan(snapshot.runtime_classes.held_s.array())
    kind = snapshot.tasks.runtime_class.take(np.maximum(lead, 0)) if len(lead) else lead
    declared = ~np.isnan(snapshot.jobs.estimated_s.take(standing.jobs))
    learnt: Bools = standing.has_multi_gpu | declared | ((lead >= 0) & unknown[kind])
    return learnt


def _known(run_s: Floats) -> Floats:
    return np.where(np.isnan(run_s), math.inf, run_s)
