"""The reasons why tasks wait after a greedy round, one per group of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.units import format_size
from headgate.planning.standing import Standing
from headgate.planning.wide import unsupported_feature
from headgate.policies.greedy.candidates import ANY, Candidate
from headgate.policies.greedy.delay import SkipCounters
from headgate.policies.greedy.greedy_round import GreedyRound
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


def unsupported(policy: str, snapshot: Snapshot, now: Standing) -> Iterator[Refusal]:
    """Yield the refusals of jobs that only another policy, in force earlier, could place."""
    for job in now.jobs[now.wide_jobs].tolist():
        what = unsupported_feature(snapshot.job(job)) or ""
        yield Refusal(reason=PolicyRefuses(policy=policy, what=what), jobs=(job,))


def refusals(
    snapshot: Snapshot, greedy: GreedyRound, counters: SkipCounters | None
) -> Iterator[Refusal]:
    """Yield one refusal per reason, with all jobs that wait for it."""
    after = _After(snapshot, greedy, counters)
    groups: dict[Reason, list[int]] = {}
    for job in after.left.tolist():
        groups.setdefault(after.reason(job), []).append(int(greedy.now.jobs[job]))
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(jobs))


class _After:
    """The state after the round's placements; jobs are indices into `Standing.jobs`."""

    def __init__(
        self, snapshot: Snapshot, greedy: GreedyRound, counters: SkipCounters | None
    ) -> None:
        now = greedy.now
        self._snapshot, self._greedy, self._counters = snapshot, greedy, counters
        waiting = np.bincount(now.task_job, minlength=len(now.jobs))
        self.left = np.flatnonzero(waiting - (greedy.held - now.held))
        self._free = greedy.free_gpus.count.sum(axis=0)
        self._fitting, self._under_ceiling = greedy.fitting(), greedy.under_ceiling()
        over = greedy.held - greedy.target
        rows = np.flatnonzero((greedy.held > 0) & (over >= 0))
        # The two jobs furthest above, or at, their share.
        self._ahead: list[int] = rows[np.lexsort((-greedy.held[rows], -over[rows]))][:2].tolist()

    def reason(self, job: int) -> Reason:
        """Return the reason why a job with tasks left waits."""
        greedy = self._greedy
        if not greedy.waiting[job].any():  # its tasks left need more memory than any GPU has
            return self._nothing_fits(job)
        if not self._under_ceiling[job]:
            return self._queue_limit(int(greedy.now.queue[job]))
        if self._fitting[job] and self._counters is not None:
            offered = greedy.candidates(job).best(ANY)
            if offered is not None:
                return self._declines(job, offered, self._counters)
        if self._free.any():
            return self._memory(job)
        held, share = int(greedy.held[job]), int(greedy.target[job])
        ahead = next((j for j in self._ahead if j != job), None)
        if ahead is not None:
            name = self._snapshot.job(int(greedy.now.jobs[ahead])).id
            over = int(greedy.held[ahead] - greedy.target[ahead])
            if held >= share:
                return ShareLimit(running_gpus=held, share_gpus=share, ahead=name)
            if over > 0:
                return BelowShare(
                    running_gpus=held, share_gpus=share, ahead=name, ahead_over_gpus=over
                )
        return NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=int(greedy.now.gpus.sum()))

    def _nothing_fits(self, job: int) -> Reason:
        now = self._greedy.now
        beyond = (now.task_job == job) & (now.task_class == len(now.class_bytes))
        need_bytes = int(now.memory_bytes_of(beyond).min())
        return NothingFits(need=f"a GPU of {format_size(need_bytes)}" if need_bytes else "a GPU")

    def _queue_limit(self, queue: int) -> Reason:
        spec, greedy = self._snapshot.queue(queue), self._greedy
        won = int((greedy.held - greedy.now.held)[greedy.now.queue == queue].sum())
        used = int(self._snapshot.gpus_of_queues()[queue]) + won
        return QueueLimit(queue=spec.name, used_gpus=used, max_gpus=spec.max_gpus or 0)

    def _declines(self, job: int, offered: Candidate, counters: SkipCounters) -> Reason:
        gap = int(self._greedy.target[job] - self._greedy.held[job])
        count, limit = counters.next_threshold(job, gap)
        return Declines(
            move_s=offered.price / 1e6,
            best_s=self._greedy.candidates(job).least_price(offered) / 1e6,
            skips=count,
            patience=limit,
        )

    def _memory(self, job: int) -> Reason:
        greedy = self._greedy
        now, memory_class = greedy.now, int(np.flatnonzero(greedy.waiting[job])[0])
        of_class = (now.task_job == job) & (now.task_class == memory_class)
        largest = now.class_bytes[np.flatnonzero(self._free)[-1]]
        return GpuMemory(
            needed_bytes=int(now.memory_bytes_of(of_class).min()), largest_free_bytes=int(largest)
        )
