"""Fair shares of GPUs: queues by weight, users of a queue equally, a user's jobs by priority.

All functions follow one rule, the *allocation*: GPUs are allocated one at a time, each to the queue
with the fewest GPUs for its weight; in it, to the user with the fewest; of that user, to the jobs
of highest priority; of those, to the job with the fewest; ties go to the earliest. Skipped are jobs
without a task left, queues at their ceiling, and tasks that fit only GPUs of an exhausted size. The
allocation is weighted max-min fair on every level, leaves no GPU idle that some task fits, and is
computed in bulk, not one GPU at a time.

With jobs of one queue, one user and one priority this is the share of the flow paper, section 5:
`min(floor(GPUs / jobs), tasks)`, the rest one by one in order of arrival.

GPUs differ in *kinds*, tasks in *types*: which kinds they accept. By default these are classes
0, 1, ... of ascending memory, and a task of class k accepts GPUs of class k and above. That so many
tasks of each job fit, of whichever types, is decided by a flow to the kinds: no GPU is counted that
a job cannot use, and none twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning._native import MaxMin
from headgate.state import Snapshot

NO_CEILING = 1 << 40
"""A `max_gpus` above any number of GPUs: no limit."""


def ceilings(snapshot: Snapshot) -> Ints:
    """Return the `max_gpus` of each queue, NO_CEILING where it has none; `[queues]`."""
    limits = [queue.max_gpus for queue in snapshot.queues.spec.array()]
    return np.array([NO_CEILING if limit is None else limit for limit in limits], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """The free GPUs that each job may get in one round; int64, `[jobs]`.

    `share` raises the job to its fair share; `extra` comes on top of it if GPUs would be left over.
    `most`, their sum, never exceeds the job's waiting tasks nor, with the GPUs held, a queue's
    ceiling.
    """

    share: Ints
    extra: Ints

    @property
    def most(self) -> Ints:
        """The most GPUs that each job may get."""
        return self.share + self.extra


class Hierarchy:
    """Jobs in order of arrival, each with its queue, user and priority; allocates GPUs to them."""

    def __init__(
        self, *, queue: Ints, user: Ints, priority: Ints, weight: Floats, max_gpus: Ints
    ) -> None:
        """Sort jobs by `queue`, `user` and `priority`, `[jobs]`; O(jobs x log).

        `weight` and `max_gpus` are by queue, `[queues]`. Raises ValueError if lengths do not match
        or a queue does not exist; the methods raise it if lengths do not match.
        """
        self.jobs = len(queue)
        self._queue, self._max_gpus = queue, max_gpus
        self._max_min = MaxMin(queue, user, priority, weight, max_gpus)
        self._fair: tuple[Ints, Ints, Ints] | None = None  # arguments and result of the last call

    def allocate(self, *, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` equal GPUs each job gets beyond `held`, up to `room`.

        O(jobs x log(GPUs held)).
        """
        return self._max_min.allocate(held, room, gpus)

    def allocate_by_type(
        self,
        *,
        held: Ints,
        tasks: Ints,
        gpus: Ints,
        accepts: Bools | None = None,
        won: Ints | None = None,
        most: Ints | None = None,
    ) -> Ints:
        """Return how many GPUs each job gets, beyond `held`, `[jobs]`.

        `tasks`, `[jobs, types]`, are those to serve, at most `most`, `[jobs]`, of each job. `gpus`,
        `[kinds]`, are those to allocate, and `accepts`, `[types, kinds]`, says which a task may
        get. `won`, `[jobs]`, is allocated already, of these GPUs; the result includes it. O(jobs x
        log(GPUs held)) with one kind of GPUs, else O(types x log(GPUs)) times that.
        """
        won = np.zeros(self.jobs, np.int64) if won is None else won
        most = np.full(self.jobs, NO_CEILING) if most is None else most
        accepts = larger_classes(len(gpus)) if accepts is None else accepts
        return self._max_min.allocate_by_type(held, tasks, gpus, won, most, accepts)

    def fair_shares(self, unfinished: Ints, gpus: Ints, accepts: Bools | None = None) -> Ints:
        """Return the fair shares, read-only; see `fair_shares`. Computed once for equal arrays."""
        if self._fair is None or self._fair[0] is not unfinished or self._fair[1] is not gpus:
            nothing = np.zeros(self.jobs, np.int64)
            shares = self.allocate_by_type(
                held=nothing, tasks=unfinished, gpus=gpus, accepts=accepts
            )
            shares.setflags(write=False)
            self._fair = unfinished, gpus, shares
        return self._fair[2]

    def count_allocated(
        self, *, held: Ints, tasks: Ints, gpus: Ints, accepts: Bools, most: Ints
    ) -> int:
        """Return how many GPUs `allocate_by_type` would allocate to all jobs together.

        Every task accepts the GPUs if they are of one kind.
        """
        if len(gpus) > 1:
            allocated = self.allocate_by_type(
                held=held, tasks=tasks, gpus=gpus, accepts=accepts, most=most
            )
            return int(allocated.sum())
        queue, queues = self._queue, len(self._max_gpus)
        left = np.maximum(self._max_gpus - np.bincount(queue, held, queues), 0)
        wanted = np.minimum(tasks.sum(axis=1), most)
        room = np.minimum(np.bincount(queue, wanted, queues), left)
        return min(int(gpus.sum()), int(room.sum()))

    def within_ceilings(self, *, held: Ints, wanted: Ints, otherwise: Ints) -> Ints:
        """Return `wanted`, but `otherwise` for jobs of queues that would exceed a ceiling."""
        queue = self._queue
        total = np.bincount(queue, held + wanted, len(self._max_gpus))
        return np.where((total > self._max_gpus)[queue], otherwise, wanted)


def larger_classes(classes: int) -> Bools:
    """Return which classes of GPU memory tasks of each class accept: it, and all above it."""
    return np.triu(np.ones((classes, classes), bool))


def fair_shares(
    hierarchy: Hierarchy, *, unfinished: Ints, gpus: Ints, accepts: Bools | None = None
) -> Ints:
    """Return every job's fair share of all GPUs, `[jobs]`: the target of the flow paper, section 5.

    `unfinished` are its unfinished tasks, `[jobs, types]`, `gpus` all GPUs, `[kinds]`.
    """
    return hierarchy.fair_shares(unfinished, gpus, accepts)


def entitle(
    hierarchy: Hierarchy,
    *,
    target: Ints,
    held: Ints,
    waiting: Ints,
    free: Ints,
    accepts: Bools | None = None,
) -> Entitlement:
    """Return how many of the free GPUs (`free`, `[kinds]`) each job may get in this round.

    First `clip(target - held, 0, waiting)`, the flow paper's `a_j`, less where a queue would exceed
    its ceiling. The sum may exceed the free GPUs. GPUs that would be left over once all placeable
    ones of these are used are allocated to jobs with tasks (`waiting`, `[jobs, types]`) that fit
    them.
    """
    room = np.clip(target - held, 0, waiting.sum(axis=1))
    share = hierarchy.allocate(held=held, room=room, gpus=int(room.sum()))
    if len(free) == 1 and share.sum() >= free[0]:  # all free GPUs are used in any case
        return Entitlement(share=share, extra=np.zeros_like(share))
    placeable = hierarchy.allocate_by_type(
        held=held, tasks=waiting, gpus=free, accepts=accepts, most=share
    )
    extra = np.zeros_like(share)
    if placeable.sum() < free.sum():
        extra = hierarchy.allocate_by_type(
            held=held, tasks=waiting, gpus=free, accepts=accepts, won=placeable
        )
        extra -= placeable
        # Shares that cannot be placed still count, unless a ceiling leaves no room for both.
        share = (
            hierarchy.within_ceilings(held=held, wanted=share + extra, otherwise=placeable + extra)
            - extra
        )
    return Entitlement(share=share, extra=extra)
