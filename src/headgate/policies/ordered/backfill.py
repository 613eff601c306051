"""One round in an order of jobs: starts from its head on, then reservations, then backfill.

Units start in order as long as they fit. The first ones that do not get reservations
(`planning.place.timetable`); what comes later starts if it fits now and delays none of them. A job
whose queue has no room below its ceiling waits with all later jobs of its queue, and delays no
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.model import WHOLE
from headgate.planning.place.choose import Placer
from headgate.planning.place.placement import fit, placing
from headgate.planning.place.placing import Placing
from headgate.planning.place.wide import free_milli, parts_milli
from headgate.planning.times.estimates import Estimates
from headgate.planning.times.reservations import (
    RESERVED_AT,
    UNKNOWN_AT,
    Reservation,
    first_reservations,
)
from headgate.planning.units.unit import Unit, waiting_units
from headgate.policies.ordered.waiting import WaitingUnits
from headgate.protocol import Memo
from headgate.state import Scratch

_UNLIMITED_MILLI = 1 << 62


def expected_s(estimates: Estimates, unit: Unit) -> float:
    """Return how long a unit is expected to run, inf if that is unknown."""
    run_s = float(estimates.run_s(np.array(unit.tasks)).max())
    return math.inf if math.isnan(run_s) else run_s


class Backfill:
    """Serves jobs on a scratch. `reservations` are those of this round, in order.

    The time of one is `UNKNOWN_AT` if it waits for runs of unknown length.
    """

    def __init__(
        self, scratch: Scratch, estimates: Estimates, *, most: int, placer: Placer | None = None
    ) -> None:
        """`most` units that do not fit get reservations; if that is 0, nothing backfills."""
        self._placer = placer
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._estimates, self._most = estimates, most
        self._reserved_at = self._snapshot.memos.get(RESERVED_AT)
        self._full: set[int] = set()  # queues at their ceilings
        self._booked_milli: dict[int, int] = {}  # thousandths of GPUs of reservations, by queue
        self._done: set[int] = set()  # the first tasks of units that are placed or reserved
        self._too_long: dict[object, float] = {}  # by shape: longer runs than this do not fit
        self._expected_s: dict[int, float] = {}  # by the first task of a unit, of the first units
        self._seen = -1, -1  # starts and reservations, when the windows were read
        self.reservations: list[Reservation] = []

    @cached_property
    def placing(self) -> Placing:
        """What places units on a timetable, made when none is placed by first fit any more."""
        return placing(self._scratch, self._end_at, self._placer)

    def _end_at(self, tasks: Ints) -> Floats:
        return np.minimum(self._estimates.end_at(tasks), UNKNOWN_AT)

    def serve(self, jobs: Ints, *, always_reserve: bool = False) -> None:
        """Start what may start now of jobs with waiting tasks on GPUs (rows, in their order).

        Reservations are made if something may backfill or one is the first of its job, or always.
        """
        left = jobs[self._in_order(jobs) :]
        if not self._most or not len(left):
            return
        units = WaitingUnits.of(self._snapshot, self._estimates, left, free_milli(self._scratch))
        if (
            always_reserve
            or len(units)
            or any(self._has_no_time(job) for job in left[: self._most].tolist())
        ):
            self._reserve_first(left)
            self._fill(units)

    def memo(self) -> Memo:
        """Return the times of reservations of jobs that had none."""
        return first_reservations(self._snapshot, self.reservations)

    def first_left(self, jobs: Ints) -> Reservation | None:
        """Return the first unit of served jobs that has not started, with its earliest start.

        None if all have, or no more is known of that start than that it comes.
        """
        if self.reservations:
            return self.reservations[0]
        units = (unit for job in jobs.tolist() for unit in self._units(job) if self._has_room(unit))
        unit = None if self._most else next(units, None)
        return None if unit is None else self.placing.earliest(unit, math.inf)

    def _has_no_time(self, job: int) -> bool:
        return self._reserved_at is None or math.isnan(self._reserved_at[job])

    # --- in order ------------------------------------------------------------------------------

    def _in_order(self, jobs: Ints) -> int:
        """Start units by first fit up to the first that does not fit; return its job's index."""
        first_fit = fit(self._scratch, self._placer)
        for index in range(len(jobs)):
            job = int(jobs[index])
            if self._is_too_large(job):
                return index
            for unit in self._units(job):
                if not self._has_room(unit):
                    break
                if not first_fit.place(unit):
                    return index
                self._done.add(unit.tasks[0])
        return len(jobs)

    def _is_too_large(self, job: int) -> bool:
        """Return whether a job, below its ceiling, needs more GPUs than are free; O(nodes)."""
        rows = self._snapshot.jobs
        milli, queue = rows.unit_gpus_milli[job], rows.queue[job]
        return (
            rows.waiting[job] == rows.task_count[job]
            and milli > free_milli(self._scratch)
            and queue not in self._full
            and self._scratch.has_room(queue, milli)
        )

    def _units(self, job: int) -> Iterator[Unit]:
        """Yield the units of a job that have not been placed or reserved; none of a full queue."""
        if self._snapshot.jobs.queue[job] not in self._full:
            for units in waiting_units(self._snapshot, job):
                yield from (unit for unit in units if unit.tasks[0] not in self._done)

    def _has_room(self, unit: Unit) -> bool:
        """Return whether the ceiling of a unit's queue has room for it; else the queue is full."""
        queue = self._snapshot.jobs.queue[unit.job]
        milli = unit.gpus_milli(self._snapshot) + self._booked_milli.get(queue, 0)
        if self._scratch.has_room(queue, milli):
            return True
        self._full.add(queue)
        return False

    # --- reservations --------------------------------------------------------------------------

    def _reserve_first(self, jobs: Ints) -> None:
        """Start units in order, or reserve, up to the last reservation."""
        if self._most > 1:
            first = jobs[: self._most]
            units = WaitingUnits.of(self._snapshot, self._estimates, first, _UNLIMITED_MILLI)
            self._expected_s = dict(zip(units.lead.tolist(), units.run_s.tolist(), strict=True))
        for index in range(len(jobs)):
            for unit in self._units(int(jobs[index])):
                if not self._has_room(unit):
                    break
                run_s = self._run_s(unit)
                if not self._start(unit, run_s):
                    self._reserve(unit, run_s)
                if len(self.reservations) == self._most:
                    return

    def _reserve(self, unit: Unit, run_s: float) -> None:
        found = self.placing.reserve(unit, run_s)
        if found is not None:
            queue = self._snapshot.jobs.queue[unit.job]
            booked = self._booked_milli.get(queue, 0)
            self._booked_milli[queue] = booked + unit.gpus_milli(self._snapshot)
            self.reservations.append(found)
            self._done.add(unit.tasks[0])

    def _run_s(self, unit: Unit) -> float:
        """Return the run time of a unit that is compared with reservations."""
        if self._most == 1:
            return math.inf  # no other reservation begins or ends by it
        known = self._expected_s.get(unit.tasks[0])
        return expected_s(self._estimates, unit) if known is None else known

    def _start(self, unit: Unit, run_s: float) -> bool:
        """Start a unit if it fits now and delays no reservation."""
        if run_s > self._too_long.get(unit.shape, math.inf):
            return False
        wide = unit.gpus_milli(self._snapshot) > self._open_milli(run_s)
        if not wide and self.placing.start(unit, run_s):
            self._done.add(unit.tasks[0])
            return True
        self._too_long[unit.shape] = self._next_shorter(run_s)
        return False

    def _next_shorter(self, run_s: float) -> float:
        """Return the longest time of which a run may use more GPUs than one of `run_s`, or -inf."""
        windows = self._windows()
        shorter = windows.searchsorted(run_s)
        return float(windows[shorter - 1]) if shorter else -math.inf

    def _open_milli(self, run_s: float | Floats) -> Ints:
        """Return a bound of the thousandths of GPUs that runs of `run_s` seconds may use now."""
        windows = self._windows()
        return WHOLE * (len(windows) - windows.searchsorted(run_s)) + self._parts_milli

    def _windows(self) -> Floats:
        """Return the longest runs that each of the free GPUs may be used for, ascending."""
        seen = len(self._scratch.starts), len(self.reservations)
        if self._seen != seen:
            self._seen, self._longest_s = seen, self.placing.table.windows_now() + SAME_INSTANT_S
            self._parts_milli = parts_milli(self._scratch)
        return self._longest_s

    # --- backfill ------------------------------------------------------------------------------

    def _fill(self, units: WaitingUnits) -> None:
        """Start units that fit now and delay no reservation, in order."""
        done = np.zeros(len(self._snapshot.tasks.state), bool)
        done[sorted(self._done)] = True
        left = (~done[units.lead]).nonzero()[0]
        if self._full:
            left = left[~np.isin(units.queue[left], sorted(self._full))]
        left = left[self._fits(units, left)]
        while len(left):
            index, left = int(left[0]), left[1:]
            unit, run_s = units.unit(index), float(units.run_s[index])
            if not self._has_room(unit):
                left = left[units.queue[left] != units.queue[index]]
            elif self._start(unit, run_s):
                left = left[self._fits(units, left)]
            else:
                shape, too_long = units.shape, self._too_long[unit.shape]
                left = left[(shape[left] != shape[index]) | (units.run_s[left] <= too_long)]

    def _fits(self, units: WaitingUnits, left: Ints) -> Bools:
        """Return which units may fit the GPUs that are free for as long as they run."""
        fits: Bools = units.milli[left] <= self._open_milli(units.run_s[left])
        return fits
