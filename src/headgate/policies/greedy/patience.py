"""Delay scheduling: how long a job below its share waits for a GPU nearer to its data.

A job's skip counter starts at its GPUs missing to its share and grows by one each time the job
declines; it starts anew when a task of the job is placed. Zero stands for a counter not started.
"""

from __future__ import annotations

import numpy as np

from headgate.planning.standing import Standing
from headgate.policies.greedy.bids import ANY, CHEAPEST, SECOND
from headgate.protocol import Memo
from headgate.state import Snapshot

SKIPS = "skips"
"""How often in a row a job has declined; see `Patience`."""


class Patience:
    """The counters of one round, jobs as indices into `Standing.jobs`."""

    def __init__(
        self, snapshot: Snapshot, now: Standing, *, threshold1: float, threshold2: float
    ) -> None:
        self._rows: list[int] = now.jobs.tolist()
        known = snapshot.memo(SKIPS)[now.jobs]
        self._before = np.where(np.isnan(known), 0, known).astype(np.int64).tolist()
        self._count = list(self._before)
        self._thresholds = threshold1, threshold2

    def count(self, job: int, gap: int) -> int:
        """Return the counter of a job that misses `gap` GPUs to its share."""
        return self._count[job] or gap

    def content(self, job: int, gap: int) -> int:
        """Return what a job is content with."""
        count = self.count(job, gap)
        if count > self._thresholds[1]:
            return ANY
        return SECOND if count > self._thresholds[0] else CHEAPEST

    def outlook(self, job: int, gap: int) -> tuple[int, float]:
        """Return the counter of a job and the threshold that it has yet to pass."""
        count = self.count(job, gap)
        return count, self._thresholds[count > self._thresholds[0]]

    def skip(self, job: int, gap: int) -> None:
        """Note that a job has declined."""
        self._count[job] = self.count(job, gap) + 1

    def placed(self, job: int) -> None:
        """Let the counter of a job start anew."""
        self._count[job] = 0

    def memo(self) -> Memo:
        """Return the counters that have changed."""
        counts = zip(self._rows, self._before, self._count, strict=True)
        return {SKIPS: {row: count for row, before, count in counts if count != before}}
