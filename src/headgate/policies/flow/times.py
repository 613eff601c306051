"""Expected times of a round with wide tasks, computed once for all its stages."""

from __future__ import annotations

import math

import numpy as np

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
        self.lead = leading_tasks(now)
        self.run_s = self.run_s_of(self.lead)
        """Of `lead`, the first waiting wide tasks of `Standing.wide_jobs`; inf if unknown."""

    def end_at(self, tasks: Ints) -> Floats:
        """Return when runs of tasks are expected to end; `UNKNOWN_AT` if that is unknown."""
        at = np.searchsorted(self._tasks, tasks)
        known = self._tasks.take(at, mode="clip") == tasks if len(self._tasks) else at < 0
        if not known.all():
            return self._estimated(tasks)
        return self._ends[at]

    def _estimated(self, tasks: Ints) -> Floats:
        return np.minimum(self.estimates.end_at(tasks), UNKNOWN_AT)

    def run_s_of(self, tasks: Ints) -> Floats:
        """Return the seconds that runs of tasks are expected to take; inf if unknown."""
        return _known(self.estimates.run_s(tasks))

    def surely_s(self, tasks: Ints) -> Floats:
        """Return the seconds that runs take at most with probability `BACKFILL_P`, or inf."""
        return _known(self.estimates.run_s(tasks, BACKFILL_P))


def _known(run_s: Floats) -> Floats:
    return np.where(np.isnan(run_s), math.inf, run_s)
