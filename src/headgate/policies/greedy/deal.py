"""The greedy round: free GPUs go one at a time to the job that uses fewest.

Jobs below their share come first; only when none of them has a task that fits a free GPU (or all
of them have declined) are the others offered what is left, evenly. Jobs whose queue is at its
ceiling are passed over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.planning.fit import no_room
from headgate.planning.shares import Ints
from headgate.planning.standing import Standing
from headgate.policies.greedy.bids import ANY, Bid, Bids, Market
from headgate.policies.greedy.patience import Patience
from headgate.protocol import Refusal
from headgate.state import Scratch

Bools = NDArray[np.bool_]


class Deal:
    """One round, jobs as indices into `Standing.jobs`; O(placements x (jobs + nodes))."""

    def __init__(
        self,
        scratch: Scratch,
        now: Standing,
        target: Ints,
        market: Market,
        patience: Patience | None = None,
    ) -> None:
        """Start from what is held; without `patience` nobody declines."""
        self.now, self.target = now, target
        self.held = now.held.copy()
        self.waiting = now.waiting.copy()  # [jobs, classes] tasks
        self.queue_held = np.bincount(now.queue, now.held, len(now.ceiling)).astype(np.int64)
        self.market = market
        self.declined: list[int] = []
        self._scratch, self._patience = scratch, patience
        self._bids: dict[int, Bids] = {}
        self.short: list[Refusal] = []  # why tasks that were dealt a GPU wait all the same
        self._bounds = np.searchsorted(now.task_job, np.arange(len(now.jobs) + 1))

    def run(self) -> None:
        """Deal until nobody wants what is free; the placements are in the scratch."""
        while (job := self._next()) is not None:
            self._offer(job)

    def fitting(self) -> Bools:
        """Return which jobs have a waiting task that fits a free GPU."""
        most = np.flatnonzero(self.market.free.any(axis=0))
        if not len(most):
            return np.zeros(len(self.held), bool)
        fits: Bools = self.waiting[:, : most[-1] + 1].sum(axis=1) > 0
        return fits

    def under_ceiling(self) -> Bools:
        """Return which jobs are of a queue that may hold one more GPU."""
        room: Bools = (self.queue_held < self.now.ceiling)[self.now.queue]
        return room

    def _next(self) -> int | None:
        """Return the job to be offered the free GPUs."""
        able = self.fitting() & self.under_ceiling()
        able[self.declined] = False
        below = able & (self.held < self.target)
        among = np.flatnonzero(below if below.any() else able)
        return int(among[self.held[among].argmin()]) if len(among) else None

    def _offer(self, job: int) -> None:
        bids = self.bids(job)
        gap = int(self.target[job] - self.held[job])
        content = ANY
        if self._patience is not None and gap > 0:
            content = self._patience.content(job, gap)
        bid = bids.best(content)
        if bid is not None:
            self._take(job, bids, bid)
            return
        self.declined.append(job)
        if self._patience is not None:
            self._patience.skip(job, gap)

    def _take(self, job: int, bids: Bids, bid: Bid) -> None:
        bids.take(bid)
        if not self._scratch.place(bid.task, bid.node):  # its GPU is free: something else is not
            reason = no_room(self._scratch, bid.task)
            jobs = (int(self.now.jobs[job]),)
            self.short.append(Refusal(reason=reason, jobs=jobs))
        size = int(self.now.task_class[np.searchsorted(self.now.task, bid.task)])
        self.waiting[job, size] -= 1
        self.held[job] += 1
        self.queue_held[self.now.queue[job]] += 1
        if self._patience is not None:
            self._patience.placed(job)

    def bids(self, job: int) -> Bids:
        """Return the bids of a job, made when first asked for."""
        if job not in self._bids:
            kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
            here = slice(*self._bounds[job : job + 2])
            for task, size in zip(
                self.now.task[here].tolist(), self.now.task_class[here].tolist(), strict=True
            ):
                if size < len(self.now.class_bytes):
                    reads = self._scratch.snapshot.reads(task)
                    kinds.setdefault((size, reads), []).append(task)
            self._bids[job] = Bids(self.market, kinds)
        return self._bids[job]
