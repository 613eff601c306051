"""The reasons why tasks wait after a greedy round, one per group of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.model import Demand
from headgate.planning.place.limits import queue_limit, share_reason
from headgate.planning.place.why import no_free_gpu, no_gpu_of_type
from headgate.policies.offers.candidates import ANY, Candidate
from headgate.policies.offers.delay import SkipCounters
from headgate.policies.offers.greedy_round import GreedyRound
from headgate.protocol import Reason, Refusal
from headgate.protocol.reasons import Declines
from headgate.state import Snapshot


def refusals(
    snapshot: Snapshot, greedy: GreedyRound, counters: SkipCounters | None
) -> Iterator[Refusal]:
    """Yield one refusal per reason, with all jobs that wait for it."""
    after = _AfterGreedy(snapshot, greedy, counters)
    groups: dict[Reason, list[int]] = {}
    for job in after.left.tolist():
        groups.setdefault(after.reason(job), []).append(int(greedy.standing.jobs[job]))
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(jobs))


class _AfterGreedy:
    """The state after the round's placements; jobs are indices into `Standing.jobs`."""

    def __init__(
        self, snapshot: Snapshot, greedy: GreedyRound, counters: SkipCounters | None
    ) -> None:
        standing = greedy.standing
        self._snapshot, self._greedy, self._counters = snapshot, greedy, counters
        waiting = np.bincount(standing.task_job, minlength=len(standing.jobs))
        placed = (standing.waiting - greedy.waiting).sum(axis=1)
        self.left = np.flatnonzero(waiting - placed)
        self._free = greedy.free_gpus.count.sum(axis=0)
        self._fitting, self._under_ceiling = greedy.fitting(), greedy.under_ceiling()
        over = greedy.held - greedy.target
        rows = np.flatnonzero((greedy.held > 0) & (over >= 0))
        # The two jobs furthest above, or at, their share.
        self._ahead: list[int] = rows[np.lexsort((-greedy.held[rows], -over[rows]))][:2].tolist()

    def reason(self, job: int) -> Reason:
        """Return the reason why a job with tasks left waits."""
        greedy = self._greedy
        if not greedy.waiting[job].any():  # no GPU suits its tasks left
            return self._no_fit(job, len(greedy.standing.accepts))
        if not self._under_ceiling[job]:
            return queue_limit(self._snapshot, greedy.quotas, int(greedy.standing.queue[job]))
        if self._fitting[job] and self._counters is not None:
            offered = greedy.candidates(job).best(ANY)
            if offered is not None:
                return self._declines(job, offered, self._counters)
        first = int(np.flatnonzero(greedy.waiting[job])[0])
        if self._free.any() or (
            first >= len(greedy.standing.kinds.memories) and not self._fitting[job]
        ):
            return self._no_fit(job, first)
        kept = greedy.line.why(job)
        if kept is not None:
            return kept
        held, share = int(greedy.held[job]), int(greedy.target[job])
        ahead = next((j for j in self._ahead if j != job), None)
        if ahead is not None:
            row, over = (
                int(greedy.standing.jobs[ahead]),
                int(greedy.held[ahead] - greedy.target[ahead]),
            )
            if held >= share or over > 0:
                return share_reason(self._snapshot, held=held, share=share, ahead=row, over=over)
        return no_free_gpu(0, int(greedy.standing.gpus.sum()))

    def _demand(self, job: int, task_type: int) -> Demand:
        """Return the demand of a job's waiting task of a type, for the least GPU memory."""
        standing, here = self._greedy.standing, self._greedy.tasks_of(job)
        of_type = here.start + np.flatnonzero(standing.task_type[here] == task_type)
        return self._snapshot.demand(
            int(standing.task[of_type[standing.memory_bytes_of(of_type).argmin()]])
        )

    def _declines(self, job: int, offered: Candidate, counters: SkipCounters) -> Reason:
        gap = int(self._greedy.target[job] - self._greedy.held[job])
        count, limit = counters.next_threshold(job, gap)
        return Declines(
            move_s=offered.price / 1e6,
            best_s=self._greedy.candidates(job).least_price(offered) / 1e6,
            skips=count,
            patience=limit,
        )

    def _no_fit(self, job: int, task_type: int) -> Reason:
        demand = self._demand(job, task_type)
        return no_gpu_of_type(self._greedy.standing, task_type, demand, self._free)
