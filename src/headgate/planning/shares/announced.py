"""Announced starts: which reservations stand while their jobs wait, and against whom.

And who gets the next reservations: units that have lost patience (`rounds.patience`).
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.planning.shares.standing import Standing
from headgate.planning.times.reservations import RESERVED_AT, SUPERSEDED
from headgate.protocol import Memo
from headgate.protocol.reserved_at import Cause

IMPATIENT_SINCE = "impatient_since"
"""Column of the memo by job: since when its unit has lost patience, -1 if it has not.

A policy that reserves serves it next after announced starts; without one of its own it hardens.
"""


class Announced:
    """The announced starts of waiting jobs that have not run yet, and jobs that have lost patience.

    One stands while the owner of its job, a user of a queue, holds no more than its share, and none
    of the owner's jobs of higher priority waits. Otherwise it is superseded, and the job waits for
    its turn like others.
    """

    def __init__(self, standing: Standing, share: Ints) -> None:
        """Take the shares of jobs, in GPUs; O(jobs x log)."""
        self._standing, columns = standing, standing.snapshot.jobs
        self._at, self._impatient_since = np.full((2, len(standing.jobs)), np.nan)
        waits = standing.needed > 0
        first = waits & np.isnan(columns.started_at.take(standing.jobs))
        for name, values, jobs in (
            (RESERVED_AT, self._at, first),
            (IMPATIENT_SINCE, self._impatient_since, waits),
        ):
            column = standing.snapshot.memos.get(name)
            if column is not None:
                values[jobs] = column.take(standing.jobs[jobs])
        self._impatient_since[self._impatient_since < 0] = np.nan
        self._cause = np.zeros(len(self._at), np.int64)
        known = standing.snapshot.memos.get(SUPERSEDED)
        self._known = np.zeros(len(self._at))
        if known is not None:
            self._known = np.nan_to_num(known.take(standing.jobs))
        if not np.isnan(self._at).all() or not np.isnan(self._impatient_since).all():
            self._cause = _causes(standing, share)

    def first(self, order: Ints) -> tuple[Ints, int]:
        """Return an order of jobs in which those with an announced start that stands come first.

        In the order of these starts; then those that have lost patience, the first of them first.
        And how many both are.
        """
        comes: Bools = ~np.isnan(self._at) | ~np.isnan(self._impatient_since)
        comes &= self._cause == 0
        if not comes.any():
            return order, 0
        mine = order[comes[order]]  # NaN, of those without an announced start, sorts last
        mine = mine[np.lexsort((self._impatient_since[mine], self._at[mine]))]
        return np.concatenate([mine, order[~comes[order]]]), len(mine)

    def memo(self) -> Memo:
        """Return why announced starts are superseded, of jobs for which that has changed."""
        hardened = self._known == Cause.HARDENED  # that its start was delayed for one stays so
        cause = np.where(hardened & (self._cause == 0), Cause.HARDENED, self._cause)
        changed = (~np.isnan(self._at) & (self._known != cause)).nonzero()[0]
        if not len(changed):
            return {}
        jobs, causes = self._standing.jobs[changed], cause[changed].astype(float)
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
