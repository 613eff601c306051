"""Fluid fair sharing of a pool of equal GPUs: when each job would end, were jobs divisible.

At every instant the GPUs are divided max-min fairly among the groups that have jobs, and those of a
group among its jobs; a job uses no more than its width, a group no more than its jobs together. A
job runs at the part of its full speed that its GPUs are of its width.
"""

from __future__ import annotations

import heapq

import numpy as np

from headgate.base.arrays import Floats, Ints

_CHUNK = 1 << 14


def fluid_ends(
    submitted_at: Floats, compute_s: Floats, width: Ints, group: Ints, *, gpus: int
) -> Floats:
    """Return when each job ends, as a time of the same clock as `submitted_at`, which ascends.

    `compute_s` is the time of a job on all of its `width` GPUs; one of width 0 is never shared
    down. `group` numbers the group of each job. Exact but for rounding: rates change only where a
    job arrives or ends. O(jobs x (log jobs + (group, width) pairs in the history)).
    """
    ends_at = submitted_at + compute_s
    wide = np.flatnonzero(width > 0)
    widths = int(width.max(initial=0)) + 1
    pairs, class_of = np.unique(group[wide] * widths + width[wide], return_inverse=True)
    group_of, width_of = np.divmod(pairs, widths)
    sharing = _Sharing(group_of, width_of.astype(np.float64), gpus, ends_at)
    for start in range(0, len(wide), _CHUNK):  # numbers of Python take several times the memory
        some = slice(start, start + _CHUNK)
        jobs = wide[some]
        for job, number, at, runs_s in zip(
            jobs.tolist(),
            class_of[some].tolist(),
            submitted_at[jobs].tolist(),
            compute_s[jobs].tolist(),
            strict=True,
        ):
            sharing.advance(at)
            sharing.add(job, number, runs_s)
    sharing.advance(np.inf)
    return ends_at


class _Sharing:
    """The jobs in progress, by class: jobs of one group and width always run at the same speed.

    So a class needs no more than a clock, the seconds of full speed that a job present from the
    beginning would have had; each of its jobs ends at a fixed reading of that.
    """

    def __init__(self, group: Ints, width: Floats, gpus: int, ends_at: Floats) -> None:
        """Take the classes, ordered by group and width, and where to write the ends of jobs."""
        first = np.flatnonzero(np.diff(group, prepend=-1))  # class of each group
        self._first, self._group = first, np.searchsorted(first, np.arange(len(group)), "right") - 1
        self._width, self._gpus, self._ends_at = width, gpus, ends_at
        self._now = -np.inf
        self._jobs, self._demand = 0, 0.0
        self._count = np.zeros(len(group))
        self._clock = np.zeros(len(group))
        self._speed = np.ones(len(group))
        self._next = np.full(len(group), np.inf)  # reading at which the next job of the class ends
        self._ends: list[list[tuple[float, int]]] = [[] for _ in group]  # (reading, job), heaps
        self._stale = False  # whether the speeds are those of other jobs

    def add(self, job: int, number: int, runs_s: float) -> None:
        """Begin a job now, in the class of this number."""
        ends = self._ends[number]
        if not ends:
            self._clock[number] = 0.0  # keeps the readings small, and so exact
        heapq.heappush(ends, (self._clock[number] + runs_s, job))
        self._changed(number, 1)

    def advance(self, until: float) -> None:
        """Let time pass, and end jobs; those that end at `until` itself may remain."""
        while self._now < until:
            if not self._jobs:
                self._now = until
                return
            if self._stale:
                self._share()
            left_s = (self._next - self._clock) / self._speed
            number = int(left_s.argmin())
            ends_at = self._now + max(float(left_s[number]), 0.0)
            self._clock += self._speed * (min(ends_at, until) - self._now)
            if ends_at > until:
                self._now = until
                return
            self._now = ends_at
            self._clock[number] = self._next[number]
            self._end(number)

    def _end(self, number: int) -> None:
        """End the jobs of a class whose reading its clock shows."""
        ends, count = self._ends[number], 0
        while ends and ends[0][0] <= self._clock[number]:
            self._ends_at[heapq.heappop(ends)[1]] = self._now
            count += 1
        self._changed(number, -count)

    def _changed(self, number: int, count: int) -> None:
        ends, before = self._ends[number], self._demand
        self._next[number] = ends[0][0] if ends else np.inf
        self._count[number] += count
        self._jobs += count
        self._demand += count * float(self._width[number])
        self._stale |= max(before, self._demand) > self._gpus

    def _share(self) -> None:
        """Compute the speeds of all classes; 1 for those without jobs."""
        self._stale = False
        if self._demand <= self._gpus:
            self._speed.fill(1.0)
            return
        count, first, group = self._count, self._first, self._group
        demand = count * self._width
        of_group = np.add.reduceat(demand, first)
        share = np.minimum(of_group, _level(of_group, self._gpus))
        # Jobs get the same GPUs up to their width. The level is the largest of those at which all
        # narrower ones, for each width, have theirs in full: the sum is concave in the level.
        narrower = np.cumsum(demand) - demand
        narrower -= narrower[first][group]
        others = np.cumsum(count) - count
        others = (np.add.reduceat(count, first) + others[first])[group] - others
        levels = (share[group] - narrower) / np.maximum(others, 1.0)
        level = np.maximum.reduceat(levels, first)[group]
        self._speed = np.where(count > 0, np.minimum(1.0, level / self._width), 1.0)


def _level(demand: Floats, gpus: int) -> float:
    """Return what each group gets at most, where all together demand more than there is."""
    ascending = np.sort(demand)
    smaller = np.cumsum(ascending) - ascending
    return float(((gpus - smaller) / np.arange(len(demand), 0, -1)).max())
