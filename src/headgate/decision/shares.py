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

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Jobs sorted into queues, users of a queue and priorities of a user, numbered each."""

    queue: Ints  # [queues] row
    queue_of_user: Ints  # [users]
    user_of_tier: Ints  # [tiers]
    queue_of_job: Ints  # [jobs]
    user_of_job: Ints
    tier_of_job: Ints


def _levels(queue: Ints, user: Ints, priority: Ints) -> Levels:
    queues, queue_of_job = _by_arrival(queue)
    users, user_of_job = _by_arrival(queue_of_job, user)
    tiers, tier_of_job = _by_value(user_of_job, -priority)
    return Levels(
        queue=queue[queues],
        queue_of_user=queue_of_job[users],
        user_of_tier=user_of_job[tiers],
        queue_of_job=queue_of_job,
        user_of_job=user_of_job,
        tier_of_job=tier_of_job,
    )


class Hierarchy:
    """Jobs in order of arrival, each with its queue, user and priority; deals GPUs to them."""

    def __init__(
        self,
        *,
        queue: Ints,
        user: Ints,
        priority: Ints,
        weight: Floats,
        max_gpus: Ints,
        levels: Levels | None = None,
    ) -> None:
        """Sort jobs, or take them as the `levels` of a hierarchy of the same jobs has them.

        `queue, user, priority` have one value per job; `queue` is a row of `weight` and `max_gpus`.
        """
        self.jobs = len(queue)
        self.levels = _levels(queue, user, priority) if levels is None else levels
        self._weight, self._max_gpus = weight[self.levels.queue], max_gpus[self.levels.queue]

    def deal(self, *, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` alike each job wins, on top of what it holds, up to `room`."""
        return self._dealer(held, room)(gpus)

    def deal_classes(self, *, held: Ints, tasks: Ints, gpus: Ints, won: Ints | None = None) -> Ints:
        """Return how many GPUs each job wins, on top of what it holds.

        `tasks` (`[jobs, classes]`) are those to serve, `gpus` (`[classes]`) those to deal. `won`
        are GPUs of these already won by each job; the result includes them.
        O(classes x log(GPUs) x jobs), and O(jobs x log(jobs)) where all GPUs are alike.
        """
        below = np.cumsum(tasks, axis=1) - tasks  # tasks of smaller classes
        at_least = np.cumsum(gpus[::-1])[::-1]  # GPUs of this class and above
        won = np.zeros(self.jobs, np.int64) if won is None else won
        room = tasks.sum(axis=1) - won
        total = int(gpus.sum()) - int(won.sum())

        def too_many(more: Ints) -> NDArray[np.bool_]:
            need: Ints = np.maximum((won + more)[:, None] - below, 0).sum(axis=0)
            return np.greater(need, at_least)

        dealt = 0
        while True:
            deal = self._dealer(held + won, room)
            most = min(total, int(room.sum()))
            if not too_many(deal(most)).any():
                return won + deal(most)
            # The longest part of this deal that fits; then nobody takes of what is exhausted. That
            # changes no step of this part: those limited now were passed over there already.
            beyond = most
            while beyond - dealt > 1:
                middle = (dealt + beyond) // 2
                if too_many(deal(middle)).any():
                    beyond = middle
                else:
                    dealt = middle
            exhausted = int(too_many(deal(beyond)).argmax())
            room = np.minimum(room, np.maximum(deal(dealt), below[:, exhausted] - won))

    def under_ceilings(self, *, held: Ints, wanted: Ints, otherwise: Ints) -> Ints:
        """Return `wanted`, but `otherwise` for jobs of queues that it would lift over a ceiling."""
        total = _sum(held + wanted, self.levels.queue_of_job, len(self._max_gpus))
        return np.where((total > self._max_gpus)[self.levels.queue_of_job], otherwise, wanted)

    def _dealer(self, held: Ints, room: Ints) -> Callable[[int], Ints]:
        """Return the deal as a function of the number of GPUs, all alike."""
        at = self.levels
        tiers, users, queues = len(at.user_of_tier), len(at.queue_of_user), len(at.queue)
        tier_room = _sum(room, at.tier_of_job, tiers)
        user_room = _sum(tier_room, at.user_of_tier, users)
        user_held = _sum(held, at.user_of_job, users)
        queue_held = _sum(user_held, at.queue_of_user, queues)
        queue_room = np.minimum(
            _sum(user_room, at.queue_of_user, queues),
            np.maximum(self._max_gpus - queue_held, 0),
        )
        job_pool = _Pool(held, room, at.tier_of_job, tiers)
        user_pool = _Pool(user_held, user_room, at.queue_of_user, queues)
        queue_pool = _WeightedPool(queue_held, queue_room, self._weight)
        # Room of the same user's tiers of higher priority: tiers are sorted by user, then priority.
        ahead = np.cumsum(tier_room) - tier_room
        ahead -= ahead[np.searchsorted(at.user_of_tier, at.user_of_tier)]

        def deal(gpus: int) -> Ints:
            by_user = user_pool.fill(queue_pool.fill(gpus))
            by_tier = np.clip(by_user[at.user_of_tier] - ahead, 0, tier_room)
            return job_pool.fill(by_tier)

        return deal


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


class _Pool:
    """Items in segments; deals units within each segment, always to who holds least.

    `held, room, segment` have one value per item, items of a segment in order of precedence among
    equals; every segment in `range(segments)` has items.
    """

    def __init__(self, held: Ints, room: Ints, segment: Ints, segments: int) -> None:
        self._held, self._top, self._segment = held, held + room, segment
        # Raise a level in each segment: an item takes part from what it holds up to its top.
        # `filled` is what has been dealt (over all segments, one after the other) at each level
        # where an item comes in or drops out, `taking` how many take part from there on.
        level = np.concatenate([held, self._top])
        where = np.concatenate([segment, segment])
        order = np.lexsort((level, where))  # stable: at one level items come in, then drop out
        self._level = level[order]
        self._taking = np.cumsum(np.repeat([1, -1], len(held))[order])
        rise = np.zeros_like(self._level)
        rise[1:] = self._taking[:-1] * np.diff(self._level)  # 0 between segments: none take part
        self._filled = np.cumsum(rise)
        self._last = np.cumsum(np.bincount(where, minlength=segments)) - 1
        self._before = self._filled[self._last] - _sum(room, segment, segments)
        self._by_segment = np.argsort(segment, kind="stable")
        self._first = np.searchsorted(segment[self._by_segment], np.arange(segments))

    def fill(self, units: Ints) -> Ints:
        """Return what each item wins of its segment's units, none of which exceeds its room."""
        goal = self._before + units
        step = np.minimum(np.searchsorted(self._filled, goal, side="right") - 1, self._last)
        taking, rest = self._taking[step], goal - self._filled[step]
        level = self._level[step] + rest // np.maximum(taking, 1)
        left = (rest % np.maximum(taking, 1))[self._segment]
        level = level[self._segment]
        takes = (self._held <= level) & (level < self._top)
        count = np.cumsum(takes[self._by_segment])
        nth = np.empty_like(count)
        nth[self._by_segment] = count
        nth -= (count - takes[self._by_segment])[self._first][self._segment]
        won: Ints = np.clip(level, self._held, self._top) - self._held + (takes & (nth <= left))
        return won


class _WeightedPool:
    """Like one segment of `_Pool`, but each unit goes to who holds least for its weight.

    So everyone gets a first unit before anyone gets a second one, if they hold nothing yet.
    """

    def __init__(self, held: Ints, room: Ints, weight: Floats) -> None:
        self._held, self._top, self._weight = held, held + room, weight
        self._room = int(room.sum())
        # At level t an item holds the units that it gets at held/weight < t, fewer than
        # t * weight + 1: an upper bound that is linear between the levels where it is clipped.
        self._levels = np.sort(np.concatenate([(held - 1) / weight, (self._top - 1) / weight]))
        bound = np.clip(np.outer(self._levels, weight) + 1, held, self._top)
        self._bounds = (bound - held).sum(axis=1)

    def fill(self, units: int) -> Ints:
        """Return what each item wins of the units."""
        if units >= self._room:
            return self._top - self._held
        # In bulk up to a level that deals too few even with errors of rounding, then one by one.
        level = np.interp(units, self._bounds, self._levels)
        holds = np.clip(np.ceil(level * self._weight) - 1, self._held, self._top).astype(np.int64)
        queue = [
            (holds[i] / self._weight[i], i) for i in np.flatnonzero(holds < self._top).tolist()
        ]
        heapq.heapify(queue)
        for _ in range(units - int((holds - self._held).sum())):
            item = queue[0][1]
            holds[item] += 1
            if holds[item] < self._top[item]:
                heapq.heapreplace(queue, (holds[item] / self._weight[item], item))
            else:
                heapq.heappop(queue)
        won: Ints = holds - self._held
        return won


def _by_arrival(*columns: Ints) -> tuple[Ints, Ints]:
    """Number the distinct rows by first appearance; return first appearances and numbers."""
    first, number = _by_value(*columns)
    rank = np.argsort(np.argsort(first))
    return np.sort(first), rank[number]


def _by_value(*columns: Ints) -> tuple[Ints, Ints]:
    """Number the distinct rows in ascending order; return first appearances and numbers."""
    order = np.lexsort(columns[::-1])  # stable: the first of equals comes first
    new = np.zeros(len(order), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    number = np.empty_like(order)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _sum(values: Ints, group: Ints, groups: int) -> Ints:
    # Counts stay far below 2^53, where float64 sums are still exact.
    return np.bincount(group, weights=values, minlength=groups).astype(np.int64)
