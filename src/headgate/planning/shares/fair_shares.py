"""Fair shares of GPUs: queues by guarantee and weight, their users equally, jobs by priority.

All functions follow one rule, the *allocation*: GPUs are allocated one at a time, each from the top
of the tree of queues down to a job. At each level, of the queues that can still take a GPU:

1. Those that hold less than they are `guaranteed` come first; of these, the one that holds least
   of its guarantee, `held / guaranteed`.
2. Else the queue with the fewest GPUs for its weight.

A queue holds what all jobs below it hold and have won. It can take a GPU if some job below has a
task left that fits, and neither it nor any queue between it and the job is at its `most`. In a
queue without children, the GPU goes to the user with the fewest; of that user, to the jobs of
highest priority; of those, to the job with the fewest. Ties go to the earliest: of two queues, to
the one whose first job arrived first. Skipped are jobs without a task left, queues at their limit,
and tasks that fit only GPUs of an exhausted size.

A guarantee holds against siblings. Where no GPU is held yet and all tasks fit all GPUs, a queue
with tasks enough gets it if the guarantees of siblings are together at most that of their parent,
those at the top at most all GPUs, and no limit is below a guarantee.

The `idle` GPUs of a queue, which its guarantee keeps and no job may borrow, are wanted by the queue
itself: it takes one while it holds less than its guarantee and can take none for a job. Such a GPU
counts as held by the queue and all above it, and results for no job. It is of whichever kind the
tasks leave, so idle GPUs count in the total of all kinds and never compete for one of them.

The allocation is weighted max-min fair on every level, leaves no GPU idle that some task fits
within limits and guarantees, and is computed in bulk, not one GPU at a time.

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

from headgate.base.arrays import Bools, Ints
from headgate.planning._native import MaxMin
from headgate.planning.shares.queue_tree import NO_CEILING, QueueTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """The free GPUs that each job may get in one round; int64, `[jobs]`.

    `share` raises the job to its fair share; `extra` comes on top of it if GPUs would be left over.
    `most`, their sum, never exceeds the job's waiting tasks nor, with the GPUs held, the limit of a
    queue at any level. If queues have idle GPUs, it leaves these in all.
    """

    share: Ints
    extra: Ints

    @property
    def most(self) -> Ints:
        """The most GPUs that each job may get."""
        return self.share + self.extra


class Hierarchy:
    """Jobs in order of arrival, each with its queue, user and priority; allocates GPUs to them."""

    def __init__(self, *, queue: Ints, user: Ints, priority: Ints, tree: QueueTree) -> None:
        """Sort jobs by `queue`, `user` and `priority`, `[jobs]`; O((jobs + queues) x log).

        `queue` are rows of `tree`. Raises ValueError if lengths do not match, if a queue or a
        parent does not exist, for a cycle of parents, and for a job in a queue with children; the
        methods raise it if lengths do not match.
        """
        self.jobs = len(queue)
        self._queue, self._tree = queue, tree
        self.has_idle = bool((tree.idle > 0).any())
        self._max_min = MaxMin(
            queue,
            user,
            priority,
            parent=tree.parent,
            weight=tree.weight,
            guaranteed=tree.guaranteed,
            most=tree.most,
            idle=tree.idle,
        )
        self._fair: tuple[Ints, Ints, Ints] | None = None  # arguments and result of the last call

    def allocate(self, *, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` equal GPUs each job gets beyond `held`, up to `room`.

        The idle GPUs of queues are among `gpus`. O(jobs x log(GPUs held)) for each level.
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
        get. `won`, `[jobs]`, is allocated already, of these GPUs; the result includes it. The idle
        GPUs of queues are among `gpus`, of any kind. O(`allocate`) with one kind of GPUs, else
        O(types x log(GPUs)) times that.
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
        if len(gpus) > 1 or self.has_idle:
            allocated = self.allocate_by_type(
                held=held, tasks=tasks, gpus=gpus, accepts=accepts, most=most
            )
            return int(allocated.sum())
        wanted: Ints = np.minimum(tasks.sum(axis=1), most)
        return min(int(gpus.sum()), self._max_min.usable(held, wanted))

    def under_limits(self, *, held: Ints, wanted: Ints) -> Ints:
        """Return how many of the `wanted` GPUs each job gets if only limits of queues are short."""
        idle = np.maximum(self._tree.idle, 0).sum()
        return self.allocate(held=held, room=wanted, gpus=int(wanted.sum() + idle))

    def within_ceilings(self, *, held: Ints, wanted: Ints, otherwise: Ints) -> Ints:
        """Return `wanted`, but `otherwise` for jobs below a queue that would exceed its limit."""
        queue, tree = self._queue, self._tree
        own = np.bincount(queue, held + wanted, len(tree.most)).astype(np.int64)
        crowded = tree.or_above(tree.total(own) > tree.most)
        return np.where(crowded[queue], otherwise, wanted)


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
    its limit. The sum may exceed the free GPUs, but not if queues have idle ones, which are among
    `free`: those would be used then. GPUs that would be left over once all placeable ones of these
    are used are allocated to jobs with tasks (`waiting`, `[jobs, types]`) that fit them.
    """
    wanted = np.clip(target - held, 0, waiting.sum(axis=1))
    share = hierarchy.under_limits(held=held, wanted=wanted)
    if not hierarchy.has_idle and len(free) == 1 and share.sum() >= free[0]:
        # All free GPUs are used in any case.
        return Entitlement(share=share, extra=np.zeros_like(share))
    placeable = hierarchy.allocate_by_type(
        held=held, tasks=waiting, gpus=free, accepts=accepts, most=share
    )
    if hierarchy.has_idle:
        share = placeable
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
