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

from headgate.model import WHOLE
from headgate.planning.shares import Floats, Ints
from headgate.planning.timetable import Reservation, Timetable
from headgate.planning.units import Unit, waiting_units
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

    def __init__(self, scratch: Scratch, jobs: Ints, order: str) -> None:
        """Start with all runs."""
        self._scratch, self._snapshot, self._order = scratch, scratch.snapshot, order
        self._jobs = jobs
        self._cost = np.full(len(self._snapshot.jobs.state), math.inf)  # of a job's GPUs
        self._cost[jobs] = 1.0 + np.arange(len(jobs), 0, -1)
        holder = self._snapshot.gpus.task.array().astype(np.int64)
        self._rows_of = _rows_by_task(holder)
        self._holder = holder
        self._stopped: set[int] = set()  # tasks
        self._groups: list[Group] = []
        self._failed: set[object] = set()  # shapes

    def serve(self) -> None:
        """Start what fits, stop what gives way."""
        self._table = Timetable(self._scratch, self._cost_of)
        rows = self._snapshot.jobs
        least = rows.unit_gpus_milli.take(self._jobs).tolist()
        waiting = rows.waiting.take(self._jobs).tolist()
        usable = self._usable_milli()
        for job, milli, waits in zip(self._jobs.tolist(), least, waiting, strict=True):
            if not usable:
                return
            if rows.running[job]:
                self._protect(job)
                usable = self._usable_milli()
            if waits and milli <= usable:
                for units in waiting_units(self._snapshot, job):
                    for unit in units:
                        self._place(unit)
                usable = self._usable_milli()

    def steps(self) -> Steps:
        """Return the starts, then the stops."""
        return self._scratch.steps() + Steps.of(self._groups)

    def _cost_of(self, tasks: Ints) -> Floats:
        """Return what the GPUs of tasks that hold some cost, as times."""
        state, rows = self._snapshot.tasks, self._snapshot
        cost = self._cost[state.job.take(tasks)]
        cost[np.isin(tasks, self._outnumbered)] = 1.5
        cost[state.state.take(tasks) == TaskState.STOPPING] = 1.0
        in_part = [number for number, spec in enumerate(rows.names.demands) if spec.in_part]
        cost[np.isin(state.demand.take(tasks), in_part)] = math.inf
        return rows.now + cost

    @cached_property
    def _outnumbered(self) -> list[int]:
        """Return the runs for which too few GPUs would be left if all units started in order.

        By counts of GPUs alone, so on equal GPUs exactly those that must be stopped.
        """
        rows = self._snapshot.jobs
        left = WHOLE * int((self._holder != GPU_GONE).sum())
        found: list[int] = []
        columns = (rows.running, rows.waiting, rows.unit_gpus_milli, rows.gang)
        lists = (column.take(self._jobs).tolist() for column in columns)
        for job, running, waiting, unit, gang in zip(self._jobs.tolist(), *lists, strict=True):
            if running:
                for run in self._runs_of(job):
                    milli = WHOLE * sum(len(self._rows_of[task]) for task in run)
                    if milli > left:
                        found += run
                    else:
                        left -= milli
            if waiting and left >= unit:
                left -= unit * min(1 if gang else waiting, left // unit)
        return found

    def _usable_milli(self) -> int:
        """Return the thousandths of GPUs within reach."""
        reach = np.isfinite(self._table.free_at)
        return WHOLE * int(reach.sum())

    def _protect(self, job: int) -> None:
        """Put the GPUs of a job's runs out of reach, except those that are stopped."""
        for run in self._runs_of(job):
            for task in run:
                self._table.hold(self._rows_of[task], math.inf)

    def _runs(self, task: int) -> bool:
        """Return whether a task runs and is not stopped."""
        return task not in self._stopped and self._snapshot.tasks.state[task] in _RUNS

    def _place(self, unit: Unit) -> None:
        """Start a unit, or give it GPUs on which it starts once they are freed."""
        queue = self._snapshot.jobs.queue[unit.job]
        if unit.shape in self._failed:
            return
        if not self._scratch.has_room(queue, unit.gpus_milli(self._snapshot)):
            return
        if self._table.start(unit, math.inf):
            return
        in_part = any(self._snapshot.names.demands[demand].in_part for demand in unit.demands)
        found = None if in_part else self._table.soonest(unit)
        if found is None:
            self._failed.add(unit.shape)
        else:
            self._free_for(found)

    def _victims(self, found: Reservation) -> list[tuple[int, ...]]:
        """Return the runs, gangs whole, that must be stopped for a unit to get its GPUs."""
        tasks = dict.fromkeys(self._holder[found.gpus].tolist())
        runs = (self._together(task) for task in tasks if task >= 0 and self._runs(task))
        return list(dict.fromkeys(runs))

    def _runs_of(self, job: int) -> list[tuple[int, ...]]:
        """Return the runs of a job on whole GPUs that are not stopped, a gang as one."""
        tasks = [each for each in self._snapshot.tasks_of(job) if each in self._rows_of]
        return list(dict.fromkeys(self._together(task) for task in tasks if self._runs(task)))

    def _together(self, task: int) -> tuple[int, ...]:
        """Return the tasks on GPUs that are stopped with a task, its gang; in order."""
        job = self._snapshot.tasks.job[task]
        if not self._snapshot.jobs.gang[job]:
            return (task,)
        return tuple(
            t for t in self._snapshot.tasks_of(job) if t in self._rows_of and self._runs(t)
        )

    def _free_for(self, found: Reservation) -> None:
        """Stop the runs that hold GPUs which a unit gets, and keep these for it.

        Their other GPUs are then in reach of all later units.
        """
        reason = OutrankedBy(job=self._snapshot.job(found.unit.job).id, order=self._order)
        for run in self._victims(found):
            self._groups.append(Group(tuple(Stop(task) for task in run), reason))
            self._stopped.update(run)
            for task in run:
                self._table.hold(self._rows_of[task], self._snapshot.now + 1.0)
        self._table.hold(found.gpus, math.inf)


_RUNS = (TaskState.STARTING, TaskState.RUNNING)


def _rows_by_task(holder: Ints) -> dict[int, Ints]:
    """Return the rows of the GPUs that each task holds whole."""
    held = np.flatnonzero(holder >= 0)
    order = held[np.argsort(holder[held], kind="stable")]
    tasks, first = np.unique(holder[order], return_index=True)
    parts = np.split(order, first[1:])
    return dict(zip(tasks.tolist(), parts, strict=True)) if len(tasks) else {}
