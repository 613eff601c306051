"""One round of an order that preempts: what comes later gives way to what comes first.

Jobs are served in order. The runs of a job that is reached keep their GPUs, unless an earlier one
took them; a unit that waits starts on free GPUs, or gets those of runs of later jobs, the last ones
first, which are stopped: gangs whole. It then starts in a later round, and until then no later unit
may use its GPUs. A unit for which all that is not enough waits, and delays none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model import WHOLE
from headgate.planning.place.cheapest import CheapestGpus
from headgate.planning.place.choose import Placer
from headgate.planning.place.free_gpus import parts_milli
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
from headgate.planning.place.timetable import SOONEST_S, EndAt, GpuCosts, latest_holders
from headgate.planning.units.settled import may_stop
from headgate.planning.units.unit import Unit, waiting_units
from headgate.policies.ordered.runs import Runs
from headgate.protocol import Group, Steps, Stop
from headgate.protocol.reasons import OutrankedBy
from headgate.state import Scratch, TaskState
from headgate.state.quotas import Quotas, amounts_of
from headgate.state.tables import GPU_GONE

_STOPPING, _OUTNUMBERED = 1.0, 1.5  # costs; those of other runs begin at 2


class Preempting:
    """Serves jobs on a scratch in an order (rows, those that wait and those that run).

    GPUs cost more the later they should be taken: 0 if free, then those that are being freed, then
    those of runs that have to go in any case, then those of runs from the last job of the order to
    the first; `inf` is out of reach. Tasks on parts of GPUs neither preempt nor are preempted, and
    those that were stopped lately run for a while (`planning.units.settled`).
    """

    def __init__(
        self, scratch: Scratch, jobs: Ints, order: str, placer: Placer | None = None
    ) -> None:
        """Start with all runs."""
        self._scratch, self._snapshot, self._order = scratch, scratch.snapshot, order
        self._jobs, self._placer = jobs, placer
        self._serving = Serving(scratch, placer=placer)
        self._runs = Runs(self._snapshot, jobs)
        self._stopped = np.zeros(len(self._runs), bool)
        self._groups: list[Group] = []
        self._failed: set[object] = set()  # shapes
        self._protected = 0  # runs, from the first on
        self._served = 0  # jobs whose runs are protected, likewise
        self._quotas = scratch.quotas.copy()  # less what is stopped

    def serve(self) -> None:
        """Start what fits, stop what gives way."""
        self._table = self._serving.placing.table
        self._cheapest_gpus = CheapestGpus(self._table)
        self._room = RoomFreed(self._scratch)
        self._cost = latest_holders(self._snapshot, self._cost_of, free=0.0, left=SOONEST_S)
        self._serving.serve(self._turns(), victims=self)

    def steps(self) -> Steps:
        """Return the starts, then the stops."""
        return self._scratch.steps() + Steps.of(self._groups)

    def _turns(self) -> Turns:
        """Yield the units of the jobs that wait, while any GPU is in reach."""
        rows = self._snapshot.jobs
        waits = np.flatnonzero(rows.waiting.take(self._jobs))
        jobs = self._jobs[waits]
        least = rows.unit_gpus_milli.take(jobs).tolist()
        self._count_gpus()
        for rank, job, milli in zip(waits.tolist(), jobs.tolist(), least, strict=True):
            if milli > self._usable_milli:  # and fewer are once earlier jobs have kept theirs
                continue
            self._protect(rank)
            if not self._usable_milli and not self._table.has_open():
                return
            self._protect(rank + 1)
            if milli <= self._usable_milli:
                yield from self._turns_of(job)

    def _turns_of(self, job: int) -> Turns:
        for units in waiting_units(self._snapshot, job):
            for unit in units:
                if unit.shape not in self._failed:
                    few = unit.gpus_milli(self._snapshot) <= self._free_milli
                    turn = Turn(unit, starts=few or self._is_in_part(unit))
                    if (yield turn) in (Answer.STARTED, Answer.FREED):
                        self._count_gpus()

    # --- what GPUs cost ------------------------------------------------------------------------

    def _cost_of(self, tasks: Ints) -> Floats:
        """Return what it costs to take from tasks that hold some what they hold."""
        state, rows = self._snapshot.tasks, self._snapshot
        of_job = np.full(len(rows.jobs.state), math.inf)
        of_job[self._jobs] = 1.0 + np.arange(len(self._jobs), 0, -1)
        cost = of_job[state.job.take(tasks)]
        cost[np.isin(tasks, self._outnumbered)] = _OUTNUMBERED
        cost[np.isin(state.job.take(tasks), self._jobs[: self._served])] = math.inf
        cost[~may_stop(rows, tasks)] = math.inf
        cost[state.state.take(tasks) == TaskState.STOPPING] = _STOPPING
        moves = (state.target.take(tasks) >= 0) | (state.state.take(tasks) == TaskState.MOVING)
        cost[moves] = math.inf
        in_part = [number for number, spec in enumerate(rows.names.demands) if spec.in_part]
        cost[np.isin(state.demand.take(tasks), in_part)] = math.inf
        return cost

    def _cost_to(self, unit: Unit) -> tuple[Floats, EndAt]:
        """Return what GPUs cost to a unit, and tasks that hold some.

        Others keep what their queues are guaranteed: their runs are out of reach.
        """
        gives = self._gives_way_to(self._quotas, unit)
        if gives.all():
            return self._cost, self._cost_of

        def may(tasks: Ints) -> Bools:
            columns = self._snapshot.tasks
            held_by = self._snapshot.jobs.queue.take(columns.job.take(tasks))
            may_be: Bools = gives[held_by] | (columns.state.take(tasks) == TaskState.STOPPING)
            return may_be

        holder = self._snapshot.gpus.task.array().astype(np.int64)
        held, cost = np.flatnonzero(holder >= 0), self._cost.copy()
        cost[held[~may(holder[held])]] = math.inf
        return cost, lambda rows: np.where(may(rows), self._cost_of(rows), math.inf)

    @cached_property
    def _outnumbered(self) -> list[int]:
        """Return the runs for which too few GPUs would be left if all units started in order.

        By counts of GPUs alone, so on equal GPUs exactly those that must be stopped.
        """
        rows, runs = self._snapshot.jobs, self._runs
        left = WHOLE * int((self._snapshot.gpus.task.array() != GPU_GONE).sum())
        outnumbered: list[int] = []
        stoppable = may_stop(self._snapshot, runs.first_task)
        need = WHOLE * np.diff(runs.first)
        left -= int(need[~stoppable].sum())
        need = np.where(stoppable, need, 0).tolist()
        after = np.searchsorted(runs.rank, np.arange(len(self._jobs)), side="right").tolist()
        columns = (rows.waiting, rows.unit_gpus_milli, rows.gang)
        lists = (column.take(self._jobs).tolist() for column in columns)
        run = 0
        for end, waiting, unit, gang in zip(after, *lists, strict=True):
            for each in range(run, end):
                if need[each] > left:
                    outnumbered += runs.tasks_of(each)
                else:
                    left -= need[each]
            run = end
            if waiting and unit and left >= unit:
                left -= unit * min(1 if gang else waiting, left // unit)
        return outnumbered

    def _count_gpus(self) -> None:
        """Count the GPUs that are within reach, and those of them that are free."""
        self._cost[~self._table.is_unclaimed] = math.inf  # of starts, and those that units get
        usable = WHOLE * int(np.count_nonzero(np.isfinite(self._cost)))
        self._usable_milli = usable + parts_milli(self._scratch)  # these for tasks on parts alone
        self._free_milli = WHOLE * int(np.count_nonzero(self._cost <= 0))

    def _protect(self, rank: int) -> None:
        """Put the GPUs of the first jobs' runs out of reach, except those that are stopped."""
        runs, self._served = self._runs, rank
        first, end = self._protected, int(np.searchsorted(runs.rank, rank))
        if end > first:
            gpus = runs.gpus[runs.first[first] : runs.first[end]]
            self._cost[gpus[~self._stopped[runs.of_gpu[gpus]]]] = math.inf
            self._protected = end
            self._count_gpus()

    # --- what gives way ------------------------------------------------------------------------

    def free(self, turn: Turn) -> bool:
        """Stop the runs that hold the cheapest GPUs for a unit, and keep these for it.

        Also the cheapest runs beside them that hold what else it needs there. Not if it would not
        start then; return whether it will. The other GPUs of these runs are then in reach of all
        later units.
        """
        freed = not self._is_in_part(turn.unit) and self._free(turn.unit)
        if not freed:
            self._failed.add(turn.unit.shape)
        return freed

    def _is_in_part(self, unit: Unit) -> bool:
        return any(self._snapshot.names.demands[demand].in_part for demand in unit.demands)

    def _free(self, unit: Unit) -> bool:
        beside: list[int] = []  # runs that give way for what else the unit needs of a node
        while (gpus := self._cheapest(unit, beside)) is not None:
            held = dict.fromkeys(self._runs.of_gpu[gpus].tolist())
            runs = [run for run in held if run >= 0 and not self._stopped[run]]
            also = [run for run in beside if run not in held]
            if self._holds(unit, gpus, runs + also, counts=False):
                for run in list(also):
                    fewer = [each for each in also if each != run]
                    if self._holds(unit, gpus, runs + fewer, counts=False):
                        also = fewer
                if not self._give_way(runs + also, unit):
                    return False
                self._holds(unit, gpus, runs + also)
                self._stop(runs + also, unit)
                self._keep(unit, gpus)
                return True
            more = self._cheapest_beside(unit, gpus, runs + also)
            if more is None:
                return False
            beside.append(more)
        return False

    def _keep(self, unit: Unit, gpus: Ints) -> None:
        """Keep GPUs for a unit, and what it needs beside them, of what is free now, too.

        Otherwise a later unit starts on that in this round, and is stopped for it in the next.
        """
        self._table.take(gpus, math.inf)
        node, soon = self._snapshot.gpus.node.take(gpus), self._snapshot.now + SOONEST_S
        for demand, tasks in unit.by_demand(self._snapshot):
            each = self._snapshot.names.demands[demand].gpus
            if each:
                here, node = node[: len(tasks) * each : each], node[len(tasks) * each :]
                for row, count in Counter(here.tolist()).items():
                    self._table.book.keep(row, demand, count, soon, math.inf)

    def _holds(self, unit: Unit, gpus: Ints, runs: Iterable[int], *, counts: bool = True) -> bool:
        return self._room.holds(unit, gpus, self._tasks_of(runs), counts=counts)

    def _tasks_of(self, runs: Iterable[int]) -> list[int]:
        return [task for run in runs for task in self._runs.tasks_of(run)]

    def _give_way(self, runs: Sequence[int], unit: Unit) -> bool:
        """Return whether all of some runs give way to a unit; if so, count them as stopped."""
        if not self._quotas.guaranteed:
            return True
        snapshot, quotas = self._snapshot, self._quotas.copy()
        for run in runs:
            tasks = self._runs.tasks_of(run)
            job = snapshot.tasks.job[tasks[0]]
            if not self._gives_way_to(quotas, unit)[snapshot.jobs.queue[job]]:
                return False
            for task in tasks:
                amounts = amounts_of(snapshot.names, snapshot.tasks.demand[task])
                quotas.add(quotas.row_of(job), amounts, -1)
        self._quotas = quotas
        return True

    def _gives_way_to(self, quotas: Quotas, unit: Unit) -> Bools:
        """Return the queues whose runs give way to a unit."""
        queue = self._snapshot.jobs.queue[unit.job]
        return quotas.gives_way(queue, unit.gpus_milli(self._snapshot))

    def _stop(self, runs: Sequence[int], unit: Unit) -> None:
        """Stop runs for a unit."""
        reason = OutrankedBy(job=self._snapshot.job(unit.job).id, order=self._order)
        for run in runs:
            self._groups.append(Group(tuple(map(Stop, self._runs.tasks_of(run))), reason))
            self._stopped[run] = True
            self._cost[self._runs.gpus_of(run)] = _STOPPING

    def _cheapest(self, unit: Unit, beside: Sequence[int]) -> Ints | None:
        """Return the GPUs (rows) that a unit gets where it costs least, None if it never fits.

        Runs that give way in any case cost no more than those that are being stopped.
        """
        gpu, of_tasks = self._cost_to(unit)
        costs = GpuCosts(gpu, of_tasks)
        if beside:
            gpu, before = gpu.copy(), of_tasks
            gpu[np.concatenate([self._runs.gpus_of(run) for run in beside])] = _STOPPING
            tasks = self._tasks_of(beside)

            costs = GpuCosts(
                gpu, lambda rows: np.where(np.isin(rows, tasks), _STOPPING, before(rows))
            )
        if self._placer is not None:
            return self._serving.placing.cheapest(unit, costs)
        return self._cheapest_gpus.of_unit(unit, costs)

    def _cheapest_beside(self, unit: Unit, gpus: Ints, runs: Sequence[int]) -> int | None:
        """Return the cheapest run in reach, other than these, on the nodes of GPUs (rows).

        Of those that hold some of what the unit needs of nodes.
        """
        snapshot, of_gpu = self._snapshot, self._runs.of_gpu
        node = snapshot.gpus.node.array()
        cost = self._cost_to(unit)[0]
        near = np.flatnonzero(np.isin(node, node[gpus]) & np.isfinite(cost) & (of_gpu >= 0))
        near = near[~self._stopped[of_gpu[near]] & ~np.isin(of_gpu[near], runs)]
        needs = snapshot.names.needs
        kinds = {kind for demand in set(unit.demands) for kind, _ in needs[demand]}
        for gpu in near[np.argsort(cost[near], kind="stable")].tolist():
            demand = snapshot.tasks.demand[int(snapshot.gpus.task[gpu])]
            if kinds & {kind for kind, _ in needs[demand]}:
                return int(of_gpu[gpu])
        return None
