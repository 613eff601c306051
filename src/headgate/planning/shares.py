"""Fair shares of GPUs: queues by weight, users of a queue alike, a user's jobs by priority.

Everything here follows from one rule, the *deal*: GPUs are dealt one at a time, each to the queue
that holds least for its weight; in it, to the user who holds least; of that user, to the jobs of
highest priority; of those, to the job that holds least; ties go to whoever came first. Passed over
is who has no task left to serve, whose queue is at its ceiling, and who could only use GPUs of a
size that is exhausted. The deal is weighted max-min fair on every level, leaves no GPU idle that
some task could use, and is computed in bulk, not one at a time.

With jobs of one queue, one user and one priority this is the share of the flow paper, section 5:
`min(floor(GPUs / jobs), tasks)`, the rest one by one in order of arrival.

GPUs differ in memory, in *classes* 0, 1, ... of growing memory. A task of class k fits GPUs of
class k and above. Of a job's tasks, those of the smallest class are counted first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.planning._native import Deal

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_CEILING = 1 << 40
"""A `max_gpus` that never binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """What each job may win of the free GPUs in one round; int64, one value per job.

    `share` is what brings the job up to its fair share; `extra` comes on top of it where GPUs would
    be left over. `most` is both together, never above the job's waiting tasks nor, with what
    is held, above a queue's ceiling.
    """

    share: Ints
    extra: Ints

    @property
    def most(self) -> Ints:
        """The GPUs that each job may win."""
        return self.share + self.extra


class Hierarchy:
    """Jobs in order of arrival, each with its queue, user and priority; deals GPUs to them."""

    def __init__(
        self, *, queue: Ints, user: Ints, priority: Ints, weight: Floats, max_gpus: Ints
    ) -> None:
        """Sort jobs: `queue, user, priority` have one value for each; O(jobs x log).

        `queue` is a row of `weight` and `max_gpus`.
        """
        self.jobs = len(queue)
        self._queue, self._max_gpus = queue, max_gpus
        self._deal = Deal(queue, user, priority, weight, max_gpus)

    def deal(self, *, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` alike each job wins, on top of what it holds, up to `room`."""
        return self._deal.alike(held, room, gpus)

    def deal_classes(self, *, held: Ints, tasks: Ints, gpus: Ints, won: Ints | None = None) -> Ints:
        """Return how many GPUs each job wins, on top of what it holds.

        `tasks` (`[jobs, classes]`) are those to serve, `gpus` (`[classes]`) those to deal. `won`
        are GPUs of these already won by each job; the result includes them.
        O(jobs x log(GPUs held)) where all GPUs are alike, else O(classes x log(GPUs)) times that.
        """
        won = np.zeros(self.jobs, np.int64) if won is None else won
        return self._deal.by_class(held, tasks, gpus, won)

    def count_dealt(self, *, held: Ints, tasks: Ints, gpus: Ints) -> int:
        """Return how many GPUs `deal_classes` would deal to all jobs together."""
        if len(gpus) > 1:
            return int(self.deal_classes(held=held, tasks=tasks, gpus=gpus).sum())
        queue, queues = self._queue, len(self._max_gpus)
        left = np.maximum(self._max_gpus - np.bincount(queue, held, queues), 0)
        room = np.minimum(np.bincount(queue, tasks.sum(axis=1), queues), left)
        return min(int(gpus.sum()), int(room.sum()))

    def under_ceilings(self, *, held: Ints, wanted: Ints, otherwise: Ints) -> Ints:
        """Return `wanted`, but `otherwise` for jobs of queues that it would lift over a ceiling."""
        queue = self._queue
        total = np.bincount(queue, held + wanted, len(self._max_gpus))
        return np.where((total > self._max_gpus)[queue], otherwise, wanted)


def fair_shares(hierarchy: Hierarchy, *, unfinished: Ints, gpus: Ints) -> Ints:
    """Return every job's fair share of all GPUs: the target of the flow paper, section 5.

    `unfinished` are its unfinished tasks by class (`[jobs, classes]`), `gpus` all GPUs by class.
    """
    nothing = np.zeros(hierarchy.jobs, np.int64)
    return hierarchy.deal_classes(held=nothing, tasks=unfinished, gpus=gpus)


def entitle(
    hierarchy: Hierarchy, *, target: Ints, held: Ints, waiting: Ints, free: Ints
) -> Entitlement:
    """Return what each job may win of the free GPUs (`free`, by class) in this round.

    First `clip(target - held, 0, waiting)`, the flow paper's `a_j`, less where a queue's ceiling
    needs it. Its sum may exceed the free GPUs. Where GPUs would be left over after all of that
    which can be placed, they are dealt on to whoever has tasks (`waiting`, `[jobs, classes]`) that
    fit them.
    """
    room = np.clip(target - held, 0, waiting.sum(axis=1))
    share = hierarchy.deal(held=held, room=room, gpus=int(room.sum()))
    if len(free) == 1 and share.sum() >= free[0]:  # all that is free is taken, whoever gets it
        return Entitlement(share=share, extra=np.zeros_like(share))
    counted = np.minimum(np.cumsum(waiting, axis=1), share[:, None])
    placeable = hierarchy.deal_classes(
        held=held, tasks=np.diff(counted, axis=1, prepend=0), gpus=free
    )
    extra = np.zeros_like(share)
    if placeable.sum() < free.sum():
        extra = hierarchy.deal_classes(held=held, tasks=waiting, gpus=free, won=placeable)
        extra -= placeable
        # Shares that cannot be placed still count, unless a ceiling leaves no room for both.
        share = (
            hierarchy.under_ceilings(held=held, wanted=share + extra, otherwise=placeable + extra)
            - extra
        )
    return Entitlement(share=share, extra=extra)
