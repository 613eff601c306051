"""Delay scheduling: for how many rounds a job below its share declines GPUs far from its data.

A job's skip counter starts at the number of GPUs that the job lacks to its share and grows by one
in each round in which the job declines. When a task of the job is placed, the counter is reset to
0, and starts again when the job next declines.
"""

from __future__ import annotations

import numpy as np

from headgate.planning.shares.standing import Standing
from headgate.policies.offers.candidates import ANY, CHEAPEST, SECOND
from headgate.protocol import Memo
from headgate.state import Snapshot

SKIPS = "skips"
"""Column of the memo: a job's skip counter; see `SkipCounters`."""


class SkipCounters:
    """The skip counters in one round; jobs are indices into `Standing.jobs`."""

    def __init__(
        self, snapshot: Snapshot, standing: Standing, *, threshold1: float, threshold2: float
    ) -> None:
        self._rows: list[int] = standing.jobs.tolist()
        known = snapshot.memo(SKIPS)[standing.jobs]
        self._before = np.where(np.isnan(known), 0, known).astype(np.int64).tolist()
        self._count = list(self._before)
        self._thresholds = threshold1, threshold2

    def count(self, job: int, gap: int) -> int:
        """Return the counter of a job that lacks `gap` GPUs to its share."""
        return self._count[job] or gap

    def accepted(self, job: int, gap: int) -> int:
        """Return what a job accepts: CHEAPEST, SECOND or ANY."""
        count = self.count(job, gap)
        if count > self._thresholds[1]:
            return ANY
        return SECOND if count > self._thresholds[0] else CHEAPEST

    def next_threshold(self, job: int, gap: int) -> tuple[int, float]:
        """Return the counter of a job and the threshold beyond which it accepts more."""
        count = self.count(job, gap)
        return count, self._thresholds[count > self._thresholds[0]]

    def skip(self, job: int, gap: int) -> None:
        """Count a declined round of a job."""
        self._count[job] = self.count(job, gap) + 1

    def reset(self, job: int) -> None:
        """Reset the counter of a job, one of whose tasks is placed."""
        self._count[job] = 0

    def memo(self) -> Memo:
        """Return the counters that have changed, by row of the job."""
        counts = zip(self._rows, self._before, self._count, strict=True)
        return {SKIPS: {row: count for row, before, count in counts if count != before}}
