"""Announced starts: which reservations stand while their jobs wait, and against whom."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.shares.standing import Standing
from headgate.planning.times.reservations import RESERVED_AT, SUPERSEDED
from headgate.protocol import Memo
from headgate.protocol.reserved_at import Cause


class Announced:
    """The announced starts of waiting jobs that have not run yet.

    One stands while the owner of its job, a user of a queue, holds no more than its share, and none
    of the owner's jobs of higher priority waits. Otherwise it is superseded, and the job waits for
    its turn like others.
    """

    def __init__(self, standing: Standing, share: Ints) -> None:
        """Take the shares of jobs, in GPUs; O(jobs x log)."""
        self._standing, columns = standing, standing.snapshot.jobs
        self._at = np.full(len(standing.jobs), np.nan)
        column = standing.snapshot.memos.get(RESERVED_AT)
        if column is not None:
            waits = np.isnan(columns.started_at.take(standing.jobs)) & (standing.needed > 0)
            self._at[waits] = column.take(standing.jobs[waits])
        self._cause = np.zeros(len(self._at), np.int64)
        if not np.isnan(self._at).all():
            self._cause = np.where(np.isnan(self._at), 0, _causes(standing, share))

    def first(self, order: Ints) -> Ints:
        """Return an order of jobs in which those with an announced start that stands come first.

        In the order of these starts.
        """
        stands: Bools = ~np.isnan(self._at) & (self._cause == 0)
        if not stands.any():
            return order
        mine = order[stands[order]]
        mine = mine[np.argsort(self._at[mine], kind="stable")]
        return np.concatenate([mine, order[~stands[order]]])

    def memo(self) -> Memo:
        """Return why announced starts are superseded, of jobs for which that has changed."""
        column = self._standing.snapshot.memos.get(SUPERSEDED)
        known: Floats = np.full(len(self._at), np.nan)
        if column is not None:
            known = column.take(self._standing.jobs)
        changed = (~np.isnan(self._at) & (np.nan_to_num(known) != self._cause)).nonzero()[0]
        if not len(changed):
            return {}
        jobs, causes = self._standing.jobs[changed], self._cause[changed].astype(float)
        return {SUPERSEDED: dict(zip(jobs.tolist(), causes.tolist(), strict=True))}


def _causes(standing: Standing, share: Ints) -> Ints:
    """Return for each job why an announced start of it would be superseded, 0 if it is not."""
    columns = standing.snapshot.jobs
    user = columns.user.take(standing.jobs).astype(np.int64)
    pairs = standing.queue.astype(np.int64) * (int(user.max(initial=0)) + 1) + user
    owner = np.unique(pairs, return_inverse=True)[1]
    above = np.bincount(owner, standing.held) > np.bincount(owner, share)
    priority = columns.priority.take(standing.jobs).astype(np.int64)
    highest = np.full(len(above), priority.min(initial=0))
    waits = standing.needed > 0
    np.maximum.at(highest, owner[waits], priority[waits])
    outranked = np.where(priority < highest[owner], int(Cause.PRIORITY), 0)
    return np.where(above[owner], int(Cause.ABOVE_SHARE), outranked)
