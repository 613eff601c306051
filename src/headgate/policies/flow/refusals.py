"""Why tasks still wait after a flow round, one reason per group of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from headgate.base.units import format_size
from headgate.decision.standing import Standing, unplaceable
from headgate.flow import Ints
from headgate.policies.flow.aggregated import Placed
from headgate.protocol import Reason, Refusal
from headgate.protocol.reasons import (
    BelowShare,
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    PolicyRefuses,
    QueueLimit,
    ShareLimit,
    WaitsForLocality,
)
from headgate.state import Snapshot

_NOBODY = -1

Cheapest = Callable[[Ints, Ints], Ints]
"""From tasks (indices into `Standing.task`) and free GPUs to the least price per job."""


def strangers(policy: str, snapshot: Snapshot, now: Standing) -> Iterator[Refusal]:
    """Yield why jobs wait that came in under another policy and that this one cannot place."""
    for job in now.strangers.tolist():
        if snapshot.jobs.waiting[job]:
            what = unplaceable(snapshot.job(job)) or ""
            yield Refusal(reason=PolicyRefuses(policy=policy, what=what), jobs=(job,))


def refusals(
    snapshot: Snapshot,
    now: Standing,
    *,
    target: Ints,
    group: Ints,
    most: Ints,
    placed: Placed,
    wait_price: Ints,
    cheapest: Cheapest,
) -> Iterator[Refusal]:
    """Yield why what is left waits, jobs with the same reason together.

    `target` are fair shares; of the jobs of a `group` together at most `most` tasks are placed;
    `placed` are those that run now, as indices into `now.task`; `wait_price` is what waiting costs
    each job; `cheapest` tells what some tasks would cost on GPUs that are still free.
    """
    after = _After(snapshot, now, target, group, most, placed, wait_price, cheapest)
    groups: dict[Reason, list[int]] = {}
    for job in np.flatnonzero(after.left).tolist():
        groups.setdefault(after.reason(job), []).append(int(now.jobs[job]))
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(jobs))


class _After:
    """Where things stand once the placements are made; jobs are indices into `now.jobs`."""

    def __init__(
        self,
        snapshot: Snapshot,
        now: Standing,
        target: Ints,
        group: Ints,
        most: Ints,
        placed: Placed,
        wait_price: Ints,
        cheapest: Cheapest,
    ) -> None:
        self._snapshot, self._now, self._target = snapshot, now, target
        jobs, kinds = len(now.jobs), len(now.class_bytes)
        waits = np.ones(len(now.task), bool)
        waits[placed.task] = False
        job = now.task_job[waits]
        self.left = np.bincount(job, minlength=jobs)
        won = np.bincount(now.task_job[~waits], minlength=jobs)
        self._holds = now.held + won
        queues = len(now.ceiling)
        self._queue_holds = np.bincount(now.queue, self._holds, queues).astype(np.int64)
        self._queue_won = np.bincount(now.queue, won, queues).astype(np.int64)

        nothing = np.iinfo(np.int64).max
        self._need_bytes = np.full(jobs, nothing)
        np.minimum.at(self._need_bytes, job, now.bytes_of(waits))
        self._kind = np.searchsorted(now.class_bytes, self._need_bytes)
        free = now.free.copy()
        np.subtract.at(free, (placed.node, placed.kind), 1)
        self._free = free.sum(axis=0)
        self._fitting = np.append(np.cumsum(self._free[::-1])[::-1], 0)
        self._largest = int(now.class_bytes[self._free > 0].max(initial=0))
        self._kinds = kinds

        self._wait = wait_price
        placed_by_group = np.bincount(group[now.task_job[placed.task]], minlength=len(most))
        self._held_back = (placed_by_group < most)[group]
        self._move = np.full(jobs, nothing)
        if self._fitting[0] and self._held_back.any():
            self._move = cheapest(np.flatnonzero(waits & self._held_back[now.task_job]), free)
        self._ahead = self._furthest_ahead()

    def _furthest_ahead(self) -> list[int]:
        """Return the two jobs that hold most above, or at, their share, furthest first."""
        over = self._holds - self._target
        rows = np.flatnonzero((self._holds > 0) & (over >= 0))
        furthest: list[int] = rows[np.lexsort((-self._holds[rows], -over[rows]))][:2].tolist()
        return furthest

    def reason(self, job: int) -> Reason:
        """Return what binds a job that has tasks left waiting."""
        now, kind = self._now, int(self._kind[job])
        if kind == self._kinds:
            need = format_size(int(self._need_bytes[job]))
            return NothingFits(need=f"a GPU of {need}" if self._need_bytes[job] else "a GPU")
        queue = int(now.queue[job])
        if self._queue_holds[queue] >= now.ceiling[queue]:
            return self._queue_limit(queue)
        if self._held_back[job] and self._fitting[kind]:
            move, wait = int(self._move[job]), int(self._wait[job])
            return WaitsForLocality(move_s=move / 1e6, wait_s=wait / 1e6)
        if self._fitting[0] and not self._fitting[kind]:
            return GpuMemory(
                needed_bytes=int(self._need_bytes[job]), largest_free_bytes=self._largest
            )
        ahead = next((j for j in self._ahead if j != job), _NOBODY)
        if self._holds[job] >= self._target[job] and ahead != _NOBODY:
            return ShareLimit(
                running_gpus=int(self._holds[job]),
                share_gpus=int(self._target[job]),
                ahead=self._snapshot.job(int(now.jobs[ahead])).id,
            )
        over = 0 if ahead == _NOBODY else int(self._holds[ahead] - self._target[ahead])
        if not self._free.sum() and over > 0:
            return BelowShare(
                running_gpus=int(self._holds[job]),
                share_gpus=int(self._target[job]),
                ahead=self._snapshot.job(int(now.jobs[ahead])).id,
                ahead_over_gpus=over,
            )
        return NoFreeGpu(
            free_gpus=int(self._free.sum()), needed_gpus=1, total_gpus=int(now.gpus.sum())
        )

    def _queue_limit(self, queue: int) -> Reason:
        spec = self._snapshot.queue(queue)
        used = self._snapshot.queues.held_gpus[queue] + int(self._queue_won[queue])
        return QueueLimit(queue=spec.name, used_gpus=used, max_gpus=spec.max_gpus or 0)
