"""Why tasks still wait after a greedy round, one reason per group of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.units import format_size
from headgate.planning.standing import Standing, unsupported_feature
from headgate.policies.greedy.bids import ANY, Bid
from headgate.policies.greedy.deal import Deal
from headgate.policies.greedy.patience import Patience
from headgate.protocol import Reason, Refusal
from headgate.protocol.reasons import (
    BelowShare,
    Declines,
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    PolicyRefuses,
    QueueLimit,
    ShareLimit,
)
from headgate.state import Snapshot


def strangers(policy: str, snapshot: Snapshot, now: Standing) -> Iterator[Refusal]:
    """Yield why jobs wait that came in under another policy and that this one cannot place."""
    for job in now.unsupported.tolist():
        if snapshot.jobs.waiting[job]:
            what = unsupported_feature(snapshot.job(job)) or ""
            yield Refusal(reason=PolicyRefuses(policy=policy, what=what), jobs=(job,))


def refusals(snapshot: Snapshot, deal: Deal, patience: Patience | None) -> Iterator[Refusal]:
    """Yield why what is left waits, jobs with the same reason together."""
    after = _After(snapshot, deal, patience)
    groups: dict[Reason, list[int]] = {}
    for job in after.left.tolist():
        groups.setdefault(after.reason(job), []).append(int(deal.now.jobs[job]))
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(jobs))


class _After:
    """Where things stand once the placements are made; jobs are indices into `Standing.jobs`."""

    def __init__(self, snapshot: Snapshot, deal: Deal, patience: Patience | None) -> None:
        now = deal.now
        self._snapshot, self._deal, self._patience = snapshot, deal, patience
        waiting = np.bincount(now.task_job, minlength=len(now.jobs))
        self.left = np.flatnonzero(waiting - (deal.held - now.held))
        self._free = deal.market.free.sum(axis=0)
        self._fitting, self._under_ceiling = deal.fitting(), deal.under_ceiling()
        over = deal.held - deal.target
        rows = np.flatnonzero((deal.held > 0) & (over >= 0))
        # The jobs that hold most above, or at, their share, furthest first.
        self._ahead: list[int] = rows[np.lexsort((-deal.held[rows], -over[rows]))][:2].tolist()

    def reason(self, job: int) -> Reason:
        """Return what binds a job that has tasks left waiting."""
        deal = self._deal
        if not deal.waiting[job].any():  # only tasks that are too large for every GPU
            return self._nothing_fits(job)
        if not self._under_ceiling[job]:
            return self._queue_limit(int(deal.now.queue[job]))
        if self._fitting[job] and self._patience is not None:
            offered = deal.bids(job).best(ANY)
            if offered is not None:
                return self._declines(job, offered, self._patience)
        if self._free.any():
            return self._memory(job)
        held, share = int(deal.held[job]), int(deal.target[job])
        ahead = next((j for j in self._ahead if j != job), None)
        if ahead is not None:
            name = self._snapshot.job(int(deal.now.jobs[ahead])).id
            over = int(deal.held[ahead] - deal.target[ahead])
            if held >= share:
                return ShareLimit(running_gpus=held, share_gpus=share, ahead=name)
            if over > 0:
                return BelowShare(
                    running_gpus=held, share_gpus=share, ahead=name, ahead_over_gpus=over
                )
        return NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=int(deal.now.gpus.sum()))

    def _nothing_fits(self, job: int) -> Reason:
        now = self._deal.now
        beyond = (now.task_job == job) & (now.task_class == len(now.class_bytes))
        need_bytes = int(now.memory_bytes_of(beyond).min())
        return NothingFits(need=f"a GPU of {format_size(need_bytes)}" if need_bytes else "a GPU")

    def _queue_limit(self, queue: int) -> Reason:
        spec, deal = self._snapshot.queue(queue), self._deal
        won = int((deal.held - deal.now.held)[deal.now.queue == queue].sum())
        used = int(self._snapshot.gpus_of_queues()[queue]) + won
        return QueueLimit(queue=spec.name, used_gpus=used, max_gpus=spec.max_gpus or 0)

    def _declines(self, job: int, offered: Bid, patience: Patience) -> Reason:
        gap = int(self._deal.target[job] - self._deal.held[job])
        count, limit = patience.outlook(job, gap)
        return Declines(
            move_s=offered.price / 1e6,
            best_s=self._deal.bids(job).least_price(offered) / 1e6,
            skips=count,
            patience=limit,
        )

    def _memory(self, job: int) -> Reason:
        deal = self._deal
        now, size = deal.now, int(np.flatnonzero(deal.waiting[job])[0])
        of_size = (now.task_job == job) & (now.task_class == size)
        largest = now.class_bytes[np.flatnonzero(self._free)[-1]]
        return GpuMemory(
            needed_bytes=int(now.memory_bytes_of(of_size).min()), largest_free_bytes=int(largest)
        )
