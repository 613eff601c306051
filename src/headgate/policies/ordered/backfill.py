"""One round in an order of jobs: starts from its head on, then reservations, then backfill.

Units start in order as long as they fit. The first ones that do not get reservations
(`planning.place.timetable`); what comes later starts if it fits now and delays none of them. A job
whose queue has no room below its ceiling waits with all later jobs of its queue, and delays no
other; one whose user may hold no more there, with all later ones of its user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.place.choose import Placer
from headgate.planning.place.free_gpus import free_milli
from headgate.planning.place.placement import fit
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
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
from headgate.state.elastic import unit_size
from headgate.state.quotas import gpus_alone

_UNLIMITED_MILLI = 1 << 62


class Backfill:
    """Serves jobs on a scratch, in an order.

    The time of a reservation is `UNKNOWN_AT` if it waits for runs of unknown length.
    """

    def __init__(
        self, scratch: Scratch, estimates: Estimates, *, most: int, placer: Placer | None = None
    ) -> None:
        """`most` units that do not fit get reservations; if that is 0, nothing backfills."""
        self._placer = placer
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._estimates, self._most = estimates, most
        self.serving = Serving(scratch, self._end_at, placer, keeps_free=True)
        self._reserved_at = self._snapshot.memos.get(RESERVED_AT)
        self._full: set[int] = set()  # rows of quotas at their ceilings
        self._rows = scratch.quotas.rows
        self._expected_s: dict[int, float] = {}  # by the first task of a unit, of the first units
        self._left = 0  # the index of the first job that is not served in order

    def _end_at(self, tasks: Ints) -> Floats:
        return np.minimum(self._estimates.end_at(tasks), UNKNOWN_AT)

    @property
    def reservations(self) -> list[Reservation]:
        """The reservations of this round, in order."""
        return self.serving.reservations

    def serve(self, jobs: Ints, *, always_reserve: bool = False) -> None:
        """Start what may start now of jobs with waiting tasks on GPUs (rows, in their order).

        Reservations are made if something may backfill or one is the first of its job, or always.
        """
        self.serving.serve(self._in_order(jobs), fit=fit(self._scratch, self._placer))
        left = jobs[self._left :]
        if not self._most or not len(left):
            return
        units = WaitingUnits.of(self._snapshot, self._estimates, left, free_milli(self._scratch))
        if (
            always_reserve
            or len(units)
            or any(self._has_no_time(job) for job in left[: self._most].tolist())
        ):
            self.serving.serve(self._reserving(left))
            self.serving.serve(self._filling(units))

    def memo(self) -> Memo:
        """Return the times of reservations of jobs that had none."""
        return first_reservations(self._snapshot, self.reservations)

    def first_left(self, jobs: Ints) -> Reservation | None:
        """Return the first unit of served jobs that has not started, with its earliest start.

        None if all have, or no more is known of that start than that it comes.
        """
        if self.reservations:
            return self.reservations[0]
        unit = None if self._most else self._first_below_ceiling(jobs)
        return None if unit is None else self.serving.placing.earliest(unit, math.inf)

    def _first_below_ceiling(self, jobs: Ints) -> Unit | None:
        for job in jobs.tolist():
            for unit in self._units(job):
                if self.serving.ceilings.has_room(unit):
                    return unit
                self._full.add(self.serving.ceilings.line_of(unit))
                break
        return None

    def _has_no_time(self, job: int) -> bool:
        return self._reserved_at is None or math.isnan(self._reserved_at[job])

    def _units(self, job: int) -> Iterator[Unit]:
        """Yield the units of a job that have not been placed or reserved; none in a full line."""
        if not self._is_full(job):
            for units in waiting_units(self._snapshot, job):
                yield from (unit for unit in units if not self._is_taken(unit))

    def _is_full(self, job: int) -> bool:
        """Return whether a job waits with those of its queue, or of its user, for a ceiling."""
        return not self._full.isdisjoint(self._rows.lines_of(job))

    def _is_taken(self, unit: Unit) -> bool:
        return unit.tasks[0] in self.serving.started or unit.tasks[0] in self.serving.reserved

    # --- the turns -----------------------------------------------------------------------------

    def _in_order(self, jobs: Ints) -> Turns:
        """Yield units up to the first that does not fit."""
        for index in range(len(jobs)):
            self._left, job = index, int(jobs[index])
            if self._is_too_large(job):
                return
            for unit in self._units(job):
                answer = yield Turn(unit)
                if answer is Answer.FULL:
                    self._full.add(self.serving.ceilings.line_of(unit))
                    break
                if answer is Answer.WAITS:
                    return
        self._left = len(jobs)

    def _is_too_large(self, job: int) -> bool:
        """Return whether a job, below its ceiling, needs more GPUs than are free; O(nodes)."""
        rows = self._snapshot.jobs
        milli = rows.unit_gpus_milli[job]
        return (
            rows.waiting[job] == unit_size(self._snapshot, job)
            and milli > free_milli(self._scratch)
            and not self._is_full(job)
            and self._scratch.may_hold(job, gpus_alone(milli))
        )

    def _reserving(self, jobs: Ints) -> Turns:
        """Yield units up to that with the last reservation."""
        if self._most > 1:
            first = jobs[: self._most]
            units = WaitingUnits.of(self._snapshot, self._estimates, first, _UNLIMITED_MILLI)
            self._expected_s = dict(zip(units.lead.tolist(), units.run_s.tolist(), strict=True))
        for job in jobs.tolist():
            for unit in self._units(job):
                run_s = self._run_s(unit)
                if (yield Turn(unit, run_s, run_s, reserves=True)) is Answer.FULL:
                    self._full.add(self.serving.ceilings.line_of(unit))
                    break
                if len(self.reservations) == self._most:
                    return

    def _run_s(self, unit: Unit) -> float:
        """Return the run time of a unit that is compared with reservations."""
        if self._most == 1:
            return math.inf  # no other reservation begins or ends by it
        known = self._expected_s.get(unit.tasks[0])
        return self._estimates.together_s(unit.tasks) if known is None else known

    def _filling(self, units: WaitingUnits) -> Turns:
        """Yield units in order that may fit now without delaying a reservation."""
        taken = np.zeros(len(self._snapshot.tasks.state), bool)
        taken[[*self.serving.started, *self.serving.reserved]] = True
        left = (~taken[units.lead]).nonzero()[0]
        if self._full:
            left = self._not_full(units, left)
        left = left[self._fits(units, left)]
        while len(left):
            index, left = int(left[0]), left[1:]
            unit, run_s = units.unit(index), float(units.run_s[index])
            answer = yield Turn(unit, run_s)
            if answer is Answer.FULL:
                self._full.add(self.serving.ceilings.line_of(unit))
                left = self._not_full(units, left)
            elif answer is Answer.STARTED:
                left = left[self._fits(units, left)]
            else:
                shape, too_long = units.shape, self.serving.too_long.get(unit.shape, math.inf)
                left = left[(shape[left] != shape[index]) | (units.run_s[left] <= too_long)]

    def _not_full(self, units: WaitingUnits, left: Ints) -> Ints:
        """Return the units of jobs that do not wait for a ceiling."""
        if self._rows.column is None:
            return left[~np.isin(units.queue[left], sorted(self._full))]
        full = {job for job in dict.fromkeys(units.job[left].tolist()) if self._is_full(job)}
        return left[~np.isin(units.job[left], sorted(full))]

    def _fits(self, units: WaitingUnits, left: Ints) -> Bools:
        """Return which units may fit the GPUs that are free for as long as they run."""
        fits: Bools = units.milli[left] <= self.serving.open_milli(units.run_s[left])
        return fits
