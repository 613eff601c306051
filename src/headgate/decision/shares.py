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

_ABOVE = 1 << 40  # more GPUs than anyone holds or takes


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
class Segments:
    """Items in segments, each of which has some; those of a segment in order of precedence."""

    of: Ints  # [items] segment
    sorted: Ints  # items by segment
    first: Ints  # [segments] where its items begin in `sorted`
    end: Ints  # [segments] where they end


def _segments(of: Ints, segments: int) -> Segments:
    count = np.bincount(of, minlength=segments)
    end = count.cumsum()
    return Segments(of=of, sorted=of.argsort(kind="stable"), first=end - count, end=end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Jobs sorted into queues, users of a queue and priorities (tiers) of a user, numbered each."""

    queue: Ints  # [queues] row
    users: Segments  # in queues
    tiers: Segments  # in users, highest priority first
    jobs: Segments  # in tiers
    user_of_job: Ints
    queue_of_job: Ints


def _levels(queue: Ints, user: Ints, priority: Ints) -> Levels:
    queues, queue_of_job = _by_arrival(queue)
    users, user_of_job = _by_arrival(queue_of_job, user)
    tiers, tier_of_job = _by_value(user_of_job, -priority)
    return Levels(
        queue=queue[queues],
        users=_segments(queue_of_job[users], len(queues)),
        tiers=_segments(user_of_job[tiers], len(users)),
        jobs=_segments(tier_of_job, len(tiers)),
        user_of_job=user_of_job,
        queue_of_job=queue_of_job,
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
        if gpus >= int(room.sum()) and not self._is_bound(held, room):
            return room
        return self._dealer(held, room)(gpus)

    def _is_bound(self, held: Ints, room: Ints) -> bool:
        """Return whether a queue's ceiling keeps jobs from taking all of their room."""
        queue, queues = self.levels.queue_of_job, len(self._max_gpus)
        takes = np.bincount(queue, room, queues)
        total = np.bincount(queue, held, queues) + takes
        return bool(((total > self._max_gpus) & (takes > 0)).any())

    def deal_classes(self, *, held: Ints, tasks: Ints, gpus: Ints, won: Ints | None = None) -> Ints:
        """Return how many GPUs each job wins, on top of what it holds.

        `tasks` (`[jobs, classes]`) are those to serve, `gpus` (`[classes]`) those to deal. `won`
        are GPUs of these already won by each job; the result includes them.
        O(classes x log(GPUs) x jobs), and O(jobs x log(jobs)) where all GPUs are alike.
        """
        below = tasks.cumsum(axis=1) - tasks  # tasks of smaller classes
        at_least = gpus[::-1].cumsum()[::-1]  # GPUs of this class and above
        won = np.zeros(self.jobs, np.int64) if won is None else won
        room = tasks.sum(axis=1) - won
        total = int(gpus.sum()) - int(won.sum())

        def too_many(more: Ints) -> NDArray[np.bool_]:
            need = np.maximum((won + more)[:, None] - below, 0).sum(axis=0)
            many: NDArray[np.bool_] = need > at_least
            return many

        dealt = 0
        while True:
            most = min(total, int(room.sum()))
            if not most:
                return won
            deal = self._dealer(held + won, room)
            more = deal(most)
            if not too_many(more).any():
                return won + more
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

    def count_dealt(self, *, held: Ints, tasks: Ints, gpus: Ints) -> int:
        """Return how many GPUs `deal_classes` would deal to all jobs together."""
        if len(gpus) > 1:
            return int(self.deal_classes(held=held, tasks=tasks, gpus=gpus).sum())
        queue, queues = self.levels.queue_of_job, len(self._max_gpus)
        left = np.maximum(self._max_gpus - np.bincount(queue, held, queues), 0)
        room = np.minimum(np.bincount(queue, tasks.sum(axis=1), queues), left)
        return min(int(gpus.sum()), int(room.sum()))

    def under_ceilings(self, *, held: Ints, wanted: Ints, otherwise: Ints) -> Ints:
        """Return `wanted`, but `otherwise` for jobs of queues that it would lift over a ceiling."""
        queue = self.levels.queue_of_job
        total = np.bincount(queue, held + wanted, len(self._max_gpus))
        return np.where((total > self._max_gpus)[queue], otherwise, wanted)

    def _dealer(self, held: Ints, room: Ints) -> Callable[[int], Ints]:
        """Return the deal as a function of the number of GPUs, all alike."""
        at = self.levels
        tier_room = _sum(room, at.jobs)
        user_room = _sum(tier_room, at.tiers)
        user_held = np.bincount(at.user_of_job, held, len(user_room)).astype(np.int64)
        queue_held = _sum(user_held, at.users)
        left = np.maximum(self._max_gpus - queue_held, 0)
        queue_room = np.minimum(_sum(user_room, at.users), left)
        job_pool = _Pool(held, room, at.jobs)
        user_pool = _Pool(user_held, user_room, at.users)
        queue_pool = _WeightedPool(queue_held, queue_room, self._weight)
        # Room of the same user's tiers of higher priority: tiers are sorted by user, then priority.
        ahead = tier_room.cumsum() - tier_room
        ahead -= ahead[at.tiers.first][at.tiers.of]

        def deal(gpus: int) -> Ints:
            by_user = user_pool.fill(queue_pool.fill(gpus))
            by_tier = np.minimum(np.maximum(by_user[at.tiers.of] - ahead, 0), tier_room)
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


class _Pool:
    """Deals units within each segment of items, always to who holds least.

    `held, room` have one value per item.
    """

    def __init__(self, held: Ints, room: Ints, segments: Segments) -> None:
        self._held, self._top, self._segments = held, held + room, segments
        # Raise a level in each segment: an item takes part from what it holds up to its top.
        # `filled` is what has been dealt (over all segments, one after the other) at each level
        # where an item comes in or drops out, `taking` how many take part from there on.
        key = segments.of * _ABOVE
        order = np.concatenate([key + held, key + self._top]).argsort(kind="stable")
        self._level = np.concatenate([held, self._top])[order]
        # Stable: at one level items come in, then drop out.
        self._taking = np.where(order < len(held), 1, -1).cumsum()
        rise = np.zeros_like(self._level)
        rise[1:] = self._level[1:] - self._level[:-1]
        rise[1:] *= self._taking[:-1]  # 0 between segments: none take part
        self._filled = rise.cumsum()
        self._last = 2 * segments.end - 1
        self._before = self._filled[self._last] - _sum(room, segments)

    def fill(self, units: Ints) -> Ints:
        """Return what each item wins of its segment's units, none of which exceeds its room."""
        of, by_segment = self._segments.of, self._segments.sorted
        goal = self._before + units
        step = np.minimum(self._filled.searchsorted(goal, side="right") - 1, self._last)
        taking, rest = np.maximum(self._taking[step], 1), goal - self._filled[step]
        raised, left = rest // taking, rest % taking
        level = (self._level[step] + raised)[of]
        takes = (self._held <= level) & (level < self._top)
        count: Ints = takes[by_segment].cumsum()
        nth = np.empty_like(count)
        nth[by_segment] = count
        first = self._segments.first
        nth -= (count - takes[by_segment])[first][of]
        won: Ints = np.minimum(np.maximum(level, self._held), self._top) - self._held
        won += takes & (nth <= left[of])
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
        level = self._levels[:, None] * weight + 1
        bound = np.minimum(np.maximum(level, held), self._top)
        self._bounds = (bound - held).sum(axis=1)

    def fill(self, units: int) -> Ints:
        """Return what each item wins of the units."""
        if units >= self._room:
            return self._top - self._held
        # In bulk up to a level that deals too few even with errors of rounding, then one by one.
        level = np.interp(units, self._bounds, self._levels)
        bound = np.ceil(level * self._weight) - 1
        holds = np.minimum(np.maximum(bound, self._held), self._top).astype(np.int64)
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


def _sum(values: Ints, segments: Segments) -> Ints:
    # Counts stay far below 2^53, where float64 sums are still exact.
    return np.bincount(segments.of, values, len(segments.end)).astype(np.int64)
