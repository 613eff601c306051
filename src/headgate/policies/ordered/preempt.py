"""One round of an order that preempts: what comes later gives way to what comes first.

Jobs are served in order. The runs of a job that is reached keep their GPUs, unless an earlier one
took them; a unit that waits starts on free GPUs, or gets those of runs of later jobs, the last ones
first, which are stopped: gangs whole. It then starts in a later round, and until then no later unit
may use its GPUs. A unit for which all that is not enough waits, and delays none.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import WHOLE
from headgate.planning.place.choose import Placer
from headgate.planning.place.placement import placing
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.place.soonest import Soonest
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit, waiting_units
from headgate.policies.ordered.runs import Runs
from headgate.protocol import Group, Steps, Stop
from headgate.protocol.reasons import OutrankedBy
from headgate.state import Scratch, TaskState
from headgate.state.tables import GPU_GONE


class Preempting:
    """Serves jobs on a scratch in an order (rows, those that wait and those that run).

    Time in its timetable is what GPUs cost: now for free ones, later for those that are being
    freed, then those of runs that have to go in any case, then those of runs from the last job of
    the order to the first; `inf` is out of reach. Tasks on parts of GPUs neither preempt nor are
    preempted.
    """

    def __init__(
        self, scratch: Scratch, jobs: Ints, order: str, placer: Placer | None = None
    ) -> None:
        """Start with all runs."""
        self._scratch, self._snapshot, self._order = scratch, scratch.snapshot, order
        self._jobs, self._placer = jobs, placer
        self._runs = Runs(self._snapshot, jobs)
        self._stopped = np.zeros(len(self._runs), bool)
        self._groups: list[Group] = []
        self._failed: set[object] = set()  # shapes
        self._protected = 0  # runs, from the first on
        self._served = 0  # jobs whose runs are protected, likewise
        self._none_free: set[object] = set()  # shapes that cannot start now
        self._booked_milli: dict[int, int] = {}  # of GPUs that are freed for units, by queue

    def serve(self) -> None:
        """Start what fits, stop what gives way."""
        self._units = placing(self._scratch, self._cost_of, self._placer)
        self._table = self._units.table
        self._soonest = Soonest(self._snapshot, self._table)
        self._room = RoomFreed(self._scratch)
        rows = self._snapshot.jobs
        waits = np.flatnonzero(rows.waiting.take(self._jobs))
        jobs = self._jobs[waits]
        least = rows.unit_gpus_milli.take(jobs).tolist()
        self._count_gpus()
        for rank, job, milli in zip(waits.tolist(), jobs.tolist(), least, strict=True):
            if milli > self._usable_milli:  # and fewer are once earlier jobs have kept theirs
                continue
            self._protect(rank)
            if not self._usable_milli:
                return
            self._protect(rank + 1)
            if milli <= self._usable_milli:
                for units in waiting_units(self._snapshot, job):
                    for unit in units:
                        self._place(unit)

    def steps(self) -> Steps:
        """Return the starts, then the stops."""
        return self._scratch.steps() + Steps.of(self._groups)

    def _cost_of(self, tasks: Ints) -> Floats:
        """Return what the GPUs of tasks that hold some cost, as times."""
        state, rows = self._snapshot.tasks, self._snapshot
        of_job = np.full(len(rows.jobs.state), math.inf)
        of_job[self._jobs] = 1.0 + np.arange(len(self._jobs), 0, -1)
        cost = of_job[state.job.take(tasks)]
        cost[np.isin(tasks, self._outnumbered)] = 1.5
        cost[np.isin(state.job.take(tasks), self._jobs[: self._served])] = math.inf
        cost[state.state.take(tasks) == TaskState.STOPPING] = 1.0
        moves = (state.target.take(tasks) >= 0) | (state.state.take(tasks) == TaskState.MOVING)
        cost[moves] = math.inf
        in_part = [number for number, spec in enumerate(rows.names.demands) if spec.in_part]
        cost[np.isin(state.demand.take(tasks), in_part)] = math.inf
        return rows.now + cost

    @cached_property
    def _outnumbered(self) -> list[int]:
        """Return the runs for which too few GPUs would be left if all units started in order.

        By counts of GPUs alone, so on equal GPUs exactly those that must be stopped.
        """
        rows, runs = self._snapshot.jobs, self._runs
        left = WHOLE * int((self._snapshot.gpus.task.array() != GPU_GONE).sum())
        found: list[int] = []
        need = (WHOLE * np.diff(runs.first)).tolist()
        after = np.searchsorted(runs.rank, np.arange(len(self._jobs)), side="right").tolist()
        columns = (rows.waiting, rows.unit_gpus_milli, rows.gang)
        lists = (column.take(self._jobs).tolist() for column in columns)
        run = 0
        for end, waiting, unit, gang in zip(after, *lists, strict=True):
            for each in range(run, end):
                if need[each] > left:
                    found += runs.tasks_of(each)
                else:
                    left -= need[each]
            run = end
            if waiting and left >= unit:
                left -= unit * min(1 if gang else waiting, left // unit)
        return found

    def _count_gpus(self) -> None:
        """Count the GPUs that are within reach, and those of them that are free."""
        free_at = self._table.free_at
        self._usable_milli = WHOLE * int(np.count_nonzero(np.isfinite(free_at)))
        self._free_milli = WHOLE * int(np.count_nonzero(free_at <= self._table.now))

    def _protect(self, rank: int) -> None:
        """Put the GPUs of the first jobs' runs out of reach, except those that are stopped."""
        runs, self._served = self._runs, rank
        first, end = self._protected, int(np.searchsorted(runs.rank, rank))
        if end > first:
            gpus = runs.gpus[runs.first[first] : runs.first[end]]
            self._table.hold(gpus[~self._stopped[runs.of_gpu[gpus]]], math.inf)
            self._protected = end
            self._count_gpus()

    def _place(self, unit: Unit) -> None:
        """Start a unit, or give it GPUs on which it starts once they are freed."""
        queue = self._snapshot.jobs.queue[unit.job]
        milli = unit.gpus_milli(self._snapshot)
        booked = self._booked_milli.get(queue, 0)
        if unit.shape in self._failed or not self._scratch.has_room(queue, milli + booked):
            return
        in_part = any(self._snapshot.names.demands[demand].in_part for demand in unit.demands)
        if (in_part or milli <= self._free_milli) and self._start(unit):
            return
        found = None if in_part else self._cheapest(unit)
        if found is None or not self._free_for(found):
            self._failed.add(unit.shape)
        else:
            self._booked_milli[queue] = booked + milli

    def _cheapest(self, unit: Unit) -> Reservation | None:
        """Return the GPUs that a unit gets where it costs least, None if it never fits."""
        if self._placer is not None:
            return self._units.earliest(unit, math.inf)
        return self._soonest.reservation(unit)

    def _start(self, unit: Unit) -> bool:
        """Start a unit if it fits on free GPUs, which only become fewer."""
        if unit.shape in self._none_free:
            return False
        starts = self._units.start(unit, math.inf)
        if starts:
            self._count_gpus()
        elif len(set(unit.demands)) == 1:
            self._none_free.add(unit.shape)
        return starts

    def _free_for(self, found: Reservation) -> bool:
        """Stop the runs that hold GPUs which a unit gets, and keep these for it.

        Their other GPUs are then in reach of all later units. Not if it would not start then, since
        others hold what else it needs; return whether it will.
        """
        reason = OutrankedBy(job=self._snapshot.job(found.unit.job).id, order=self._order)
        runs, soon = self._runs, self._snapshot.now + 1.0
        held = dict.fromkeys(runs.of_gpu[found.gpus].tolist())
        stopped = [run for run in held if run >= 0 and not self._stopped[run]]
        tasks = [task for run in stopped for task in runs.tasks_of(run)]
        if not self._room.holds(found.unit, found.gpus, tasks):
            return False
        for run in stopped:
            self._groups.append(Group(tuple(map(Stop, runs.tasks_of(run))), reason))
            self._stopped[run] = True
            self._table.hold(runs.gpus_of(run), soon)
        self._table.hold(found.gpus, math.inf)
        self._count_gpus()
        return True
