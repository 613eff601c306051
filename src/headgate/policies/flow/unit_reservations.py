"""Multi-GPU units that start or get reservations in the order of jobs, before the flow.

So under `headgate`. In that order every job gets GPUs in the timetable of the round. A job with
tasks for the flow claims the GPUs of its entitlement, those that are free soonest. A multi-GPU unit
starts if it fits now on GPUs that nothing before it needs; otherwise the first ones get
reservations, at the earliest time at which their GPUs are expected to be free. So does a unit that
communicates and would end sooner on other GPUs, with faster links (`planning.place.choose.links`).
What comes later only backfills: it starts if it ends before the reservations begin with a
probability of at least `BACKFILL_P`. For tasks of the flow, reserved GPUs are slots until then
(`windows`); what the flow leaves, they get by first fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.base.units import SAME_INSTANT_S
from headgate.model import WHOLE
from headgate.planning.links.job_traffic import communicates
from headgate.planning.moves.migration import Migration
from headgate.planning.place.choose import Placer
from headgate.planning.place.free_gpus import any_free, free_milli
from headgate.planning.place.multi_gpu import unit_refusals
from headgate.planning.place.placing import Placing
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
from headgate.planning.place.why import WhyWaits
from headgate.planning.shares.announced import Announced
from headgate.planning.shares.debts import FinishOrder
from headgate.planning.shares.standing import Standing, standing_less
from headgate.planning.times.reservations import (
    RESERVED_AT,
    UNKNOWN_AT,
    Reservation,
    first_reservations,
    is_new,
)
from headgate.planning.units.unit import Unit, waiting_units
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.node_order import PAUSE_S
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.preempt_units import PreemptionBudget, UnitPreemptions
from headgate.policies.flow.times import Times
from headgate.policies.flow.windows import Windows, cells, shortest_windows, windows_of
from headgate.protocol import Memo, Refusal, Reserved
from headgate.state import Scratch
from headgate.state.elastic import unit_sizes
from headgate.state.quotas import Quotas, gpus_alone
from headgate.state.view import Names


class UnitReservations:
    """The multi-GPU units of a round, and reservations; jobs are indices into `Standing.jobs`."""

    def __init__(
        self,
        scratch: Scratch,
        standing: Standing,
        times: Times,
        finish: FinishOrder,
        *,
        reservations: int,
        announced: Announced | None = None,
        announces_within_s: float = math.inf,
        placer: Placer | None = None,
        migrate: bool = False,
    ) -> None:
        """Start without any; at most `reservations` units get one, and runs may move for it.

        Starts are announced that are no later than in `announces_within_s` seconds.
        """
        self._scratch, self._standing, self._times, self.finish = scratch, standing, times, finish
        self._most, self._placer, self._migrates = reservations, placer, migrate
        self._announced, self._announces_within_s = announced, announces_within_s
        self._serving = Serving(scratch, times.end_at, placer)
        self._order: Ints = standing.multi_gpu_jobs
        self._was_claimed = False
        self._won_milli = np.zeros(len(standing.jobs), np.int64)
        self.preempted: UnitPreemptions | None = None
        self.windows: Windows | None = None

    def __bool__(self) -> bool:
        """Return True: some job has multi-GPU units."""
        return True

    @property
    def reservations(self) -> list[Reservation]:
        """The reservations of this round, in order."""
        return self._serving.reservations

    @property
    def _placing(self) -> Placing:
        return self._serving.placing

    @cached_property
    def _sought(self) -> Ints | None:
        """By how many demands for certain models or nodes each GPU is sought, `[GPU rows]`."""
        names = self._scratch.snapshot.names
        if not any(demand.restricted for demand in names.demands):
            return None
        sought = np.zeros(len(self._standing.hardware.gpu_class), np.int64)
        for demand in sorted(
            {unit.demands[0] for job in self._order for unit in self._heads(int(job))}
        ):
            if names.demands[demand].restricted:
                sought += self._scratch.ledger.suits(demand)
        return sought

    def _heads(self, job: int) -> Iterator[Unit]:
        """Yield the first unit of each demand of a job."""
        row = int(self._standing.jobs[job])
        for units in waiting_units(self._scratch.snapshot, row, multi_gpu=True):
            yield next(iter(units))

    @cached_property
    def _with_units(self) -> _JobsWithUnits:
        return _JobsWithUnits(self._standing, self._times)

    # --- in the order of jobs ------------------------------------------------------------------

    def place(self, order: Ints, flow: Ints, most: Ints, promised: int) -> None:
        """Start or reserve units, and claim GPUs for the flow, for all jobs in this order.

        `flow` and `most`, `[jobs]`, are the GPUs that each job is entitled to, for its tasks
        in the flow and for its multi-GPU units; it may get one unit however wide. Nothing is
        reserved if no GPU is free; the first `promised` get reservations also if others need all
        that is free. O(jobs + reservations x GPUs x log), and for each unit that may
        fit, O(GPUs).
        """
        has_units = np.zeros(len(order), bool)
        has_units[self._standing.multi_gpu_jobs] = True
        self._order = order[has_units[order]]
        if not any_free(self._scratch):
            return
        self._serving.serve(self._in_order(order, has_units[order], flow, most, promised))
        self._serving.serve(self._filling(most))

    def _in_order(
        self, order: Ints, has_units: Bools, flow: Ints, most: Ints, promised: int
    ) -> Turns:
        """Yield units up to the last reservation; jobs before them claim GPUs for the flow."""
        last = 0
        for place in np.flatnonzero(has_units).tolist():
            if len(self.reservations) >= self._most:
                break
            if place >= promised and not self._placing.table.has_open():
                break
            self._claim(order[last:place], flow)
            last, job = place, int(order[place])
            yield from self._within(job, WHOLE * int(most[job]))
        self._claim(order[last:], flow)

    def _claim(self, jobs: Ints, flow: Ints) -> None:
        """Count what flow tasks of these jobs are entitled to as used, GPUs and all beside."""
        count = flow[jobs]
        jobs, count = jobs[count > 0], count[count > 0]
        if not len(jobs) or not self._placing.table.has_open():
            return
        standing = self._standing
        task = standing.task[np.searchsorted(standing.task_job, jobs)]
        run_s = np.repeat(self._times.run_s[jobs], count)
        demand = np.repeat(standing.snapshot.tasks.demand.take(task), count)
        for rows in _alike(standing.snapshot.names, np.unique(demand).tolist()):
            self._placing.claim(rows[0], run_s[np.isin(demand, rows)], self._sought)

    def _within(self, job: int, limit_milli: int) -> Turns:
        """Yield units of a job within its limit, up to the first that does not start."""
        for unit in self._units(job):
            milli, won = unit.gpus_milli(self._scratch.snapshot), int(self._won_milli[job])
            if won and won + milli > limit_milli:
                return
            turn = self._turn(job, unit, reserves=True, waits_for_links=True)
            if (yield turn) is not Answer.STARTED:
                return
            self._won_milli[job] += milli

    def _turn(
        self,
        job: int,
        unit: Unit,
        *,
        starts: bool = True,
        reserves: bool = False,
        waits_for_links: bool = False,
    ) -> Turn:
        return Turn(
            unit,
            float(self._with_units.high_s[job]),
            float(self._with_units.run_s[job]),
            starts=starts,
            reserves=reserves,
            waits_for_links=waits_for_links,
        )

    def _units(self, job: int) -> Iterator[Unit]:
        """Yield the units of a job that have not started."""
        started = self._serving.started
        for units in waiting_units(
            self._scratch.snapshot, int(self._standing.jobs[job]), multi_gpu=True
        ):
            yield from (unit for unit in units if unit.tasks[0] not in started)

    def _job_of(self, unit: Unit) -> int:
        return int(np.searchsorted(self._standing.jobs, unit.job))

    def preempt(self, ahead: InFlight, budget: PreemptionBudget) -> None:
        """Preempt units for those of the first jobs in order that wait, where that is worth it.

        The GPUs that they free are reserved.
        """
        budget.held = budget.held - (-self._won_milli // WHOLE)
        preempted = UnitPreemptions(self._serving, self._standing, ahead, budget)
        self._serving.serve(self._below_share(preempted), victims=preempted)
        self.preempted = preempted

    def _below_share(self, preempted: UnitPreemptions) -> Turns:
        """Yield the next unit of jobs that may gain by preemption, but wait for no faster links."""
        by_choice = {each.unit.tasks[0] for each in self.reservations if each.spread}
        for job in preempted.may_gain(self._order[: self._most]).tolist():
            unit = next(self._units(job), None)
            if unit is not None and unit.tasks[0] not in by_choice:
                yield self._turn(job, unit, starts=False, reserves=True)

    # --- windows -------------------------------------------------------------------------------

    def open_windows(self, ahead: InFlight) -> None:
        """Make slots of the reserved GPUs, free ones and held ones, until their reservations.

        None without data: all GPUs are equal then, and tasks backfill in the order of jobs alone.
        """
        standing, runs, table = self._standing, ahead.runs, self._placing.table
        if not self.reservations or not len(standing.snapshot.shards.size_bytes):
            return
        free = standing_less(standing, self._scratch).free_gpu
        free_window = self._windows_of(free, np.full(len(free), table.now))
        held_window = self._windows_of(runs.gpu, table.now + ahead.wait_s)
        free, free_window = free[free_window >= 0], free_window[free_window >= 0]
        if not len(free) and (held_window < 0).all():
            return
        node = standing.snapshot.gpus.node.take(free).astype(np.int64)
        cell = cells(standing, node, standing.hardware.gpu_class[free], free_window)
        order = np.lexsort((free, cell))
        self.windows = Windows(
            free_gpu=free[order],
            free_cell=cell[order],
            held=ahead.only(held_window >= 0),
            held_window=held_window[held_window >= 0],
            needed=shortest_windows(self._with_units.high_s),
        )

    def _windows_of(self, gpus: Ints, free_at: Floats) -> Ints:
        """Return the windows of GPUs (rows) that are free at some times; -1 without."""
        windows, kept = np.full(len(gpus), -1), np.flatnonzero(self._placing.table.is_kept(gpus))
        free_at = np.maximum(free_at[kept], self._placing.table.free_at[gpus[kept]])
        windows[kept] = windows_of(self._placing.table.reserved_from[gpus[kept]] - free_at)
        return windows

    def start_in_windows(self, placed: Placed) -> tuple[Bools, Bools]:
        """Start tasks that the flow places on reserved GPUs, in this order.

        Each on a free GPU of its node, class and window, if it ends before the reservation with a
        probability of at least `BACKFILL_P`, and the rest of its demand fits. Returns which of them
        start, and which wait for GPUs that are held.
        """
        starts, waits = np.zeros(len(placed.task), bool), np.ones(len(placed.task), bool)
        if self.windows is None or not len(self.windows.free_gpu):
            return starts, waits
        standing, free = self._standing, self.windows
        cell = cells(standing, placed.node, placed.gpu_class, placed.window)
        index = np.searchsorted(free.free_cell, cell) + nth_of_equals(cell)
        known = index < len(free.free_cell)
        some = np.flatnonzero(known & (free.free_cell.take(index, mode="clip") == cell))
        waits[some] = False
        gpus, rows = free.free_gpu[index[some]], standing.task[placed.task[some]]
        ends_at = self._placing.table.now + self._times.surely_s_of(rows)
        in_time = ends_at <= self._placing.table.reserved_from[gpus] + SAME_INSTANT_S
        first = standing.snapshot.nodes.first_gpu
        for n in np.flatnonzero(in_time).tolist():
            node, gpu = int(placed.node[some[n]]), int(gpus[n])
            if not self.leaves_room(int(rows[n]), node):
                continue
            if self._scratch.place(int(rows[n]), node, (gpu - first[node],)):
                starts[some[n]] = True
                self._placing.table.hold(gpus[n : n + 1], float(ends_at[n]))
        return starts, waits

    def leaves_room(self, task: int, node: int) -> bool:
        """Return whether a task of the flow leaves a node what is reserved of it, GPUs aside."""
        table = self._placing.table
        if not self.reservations or not table.book.is_kept(node):
            return True
        (run_s,) = self._times.surely_s_of(np.array([task])).tolist()
        demand = self._scratch.snapshot.tasks.demand[task]
        return table.leaves_room(demand, node, run_s)

    def start(self, task: int) -> bool:
        """Start a task of the flow on what no reservation needs while it runs."""
        self._end_claims()
        (run_s,) = self._times.surely_s_of(np.array([task])).tolist()
        tasks = self._scratch.snapshot.tasks
        unit = Unit(job=tasks.job[task], tasks=(task,), demands=(tasks.demand[task],))
        return self._serving.answer(Turn(unit, run_s)) is Answer.STARTED

    # --- backfill ------------------------------------------------------------------------------

    def _filling(self, limits: Ints | None) -> Turns:
        """Yield units in the order of jobs that may fit now, each job within its limit."""
        left, serving = free_milli(self._scratch), self._serving
        order = self._order[self._with_units.unit_milli[self._order] <= left]
        least = self._with_units.unit_milli[order].min(initial=left)
        for job in order.tolist():
            if self._with_units.unit_milli[job] > left:
                continue
            if serving.is_too_long(
                self._with_units.shape(job), float(self._with_units.high_s[job])
            ):
                continue
            for unit in self._units(job):
                milli, won = unit.gpus_milli(self._scratch.snapshot), int(self._won_milli[job])
                beyond = limits is not None and won > 0 and won + milli > WHOLE * int(limits[job])
                if beyond or unit.tasks[0] in serving.reserved:
                    break
                if (yield self._turn(job, unit)) is not Answer.STARTED:
                    break
                self._won_milli[job] += milli
                left -= milli
            if left < least:
                return

    def place_rest(self) -> None:
        """Start units on what the flow has left, in the order of jobs, beyond entitlements."""
        if len(self._order) and any_free(self._scratch):
            self._end_claims()
            if self._was_claimed:
                self._start_reserved()
            self._serving.serve(self._filling(None))

    def _end_claims(self) -> None:
        """Open what the flow was expected to use, and has not."""
        self._was_claimed |= self._placing.table.unclaim()
        self._serving.open_again()

    def _start_reserved(self) -> None:
        """Start reserved units that only claims delayed.

        A claim that the flow has not used may be that of a task that fits nowhere, in every round.
        """
        for each in tuple(self.reservations):
            turn = self._turn(self._job_of(each.unit), each.unit, waits_for_links=bool(each.spread))
            if self._serving.start_reserved(each, turn):
                self._won_milli[self._job_of(each.unit)] += each.unit.gpus_milli(
                    self._scratch.snapshot
                )

    def backfill(self, tasks: Ints, starts: Ints) -> tuple[Ints, Ints, Ints]:
        """Start tasks of the flow on GPUs that are free until reservations begin, in this order.

        `tasks` are indices into `Standing.task`, as are those that the flow `starts`. Returns those
        that start besides, the nodes, and the classes of the GPUs.
        """
        standing, before = self._standing, len(self._scratch.starts)
        starting = list[int]()
        if self.reservations and self._placing.table.has_kept():
            self._serving.serve(self._on_kept(tasks, self._queue_room(starts), starting))
        started = self._scratch.starts[before:]
        node = np.array([start.node for start in started], np.int64)
        gpu = standing.snapshot.nodes.first_gpu.array()[node] + [start.gpus[0] for start in started]
        return tasks[starting], node, standing.hardware.gpu_class[gpu.astype(np.int64)]

    def _on_kept(self, tasks: Ints, quotas: Quotas, starting: list[int]) -> Turns:
        """Yield tasks of the flow that may fit; `starting` are those that start, as indices."""
        standing, too_long = self._standing, dict[int, float]()  # by demand
        rows = standing.task[tasks]
        high_s = self._times.surely_s_of(rows)
        demands = standing.snapshot.tasks.demand.take(rows)
        for n in np.flatnonzero(np.isfinite(high_s)).tolist():
            demand, run_s, job = int(demands[n]), float(high_s[n]), int(standing.task_job[tasks[n]])
            queue = int(standing.queue[job])
            full = quotas.at_limit(queue, gpus_alone(WHOLE)) is not None
            if full or run_s >= too_long.get(demand, math.inf):
                continue
            unit = Unit(job=int(standing.jobs[job]), tasks=(int(rows[n]),), demands=(demand,))
            if (yield Turn(unit, run_s, on_kept=True)) is Answer.STARTED:
                quotas.add(queue, gpus_alone(WHOLE))
                starting.append(n)
            else:
                too_long[demand] = run_s

    def _queue_room(self, starts: Ints) -> Quotas:
        """Return what queues hold with these starts, and their limits."""
        standing = self._standing
        won = np.bincount(
            standing.queue[standing.task_job[starts]], minlength=len(standing.tree.most)
        )
        quotas = self._serving.ceilings.quotas()
        for queue, gpus in enumerate(won.tolist()):
            quotas.add(queue, gpus_alone(WHOLE * gpus))
        return quotas

    # --- results -------------------------------------------------------------------------------

    def room_freed(self) -> RoomFreed:
        """Return the room that runs free which are stopped after those stopped for units."""
        return RoomFreed(self._scratch) if self.preempted is None else self.preempted.room

    def standing_after(self) -> Standing:
        """Return the standing with the starts, without the free GPUs that are reserved."""
        left = standing_less(self._standing, self._scratch)
        if not self.reservations:
            return left
        kept = self._placing.table.is_kept(left.free_gpu)
        return left.without_free(kept) if kept.any() else left

    def is_slot(self, gpus: Ints) -> Bools:
        """Return which of these held GPUs (rows) are not reserved for when they become free."""
        if not self.reservations:
            return np.ones(len(gpus), bool)
        return ~self._placing.table.is_kept(gpus)

    def migration(self) -> Migration:
        """Return the moves that make room for the unit reserved first, where they pay.

        None in a round that preempts units.
        """
        preempts = self.preempted is not None and self.preempted.groups
        if not self._migrates or not self.reservations or preempts:
            return Migration()
        return self._serving.moves_for(self.reservations[0])

    def memo(self) -> Memo:
        """Return the times that are announced: of reservations of jobs that had none before.

        And which of those announced before no longer stand, where that has changed.
        """
        snapshot = self._standing.snapshot
        first = first_reservations(snapshot, self.reservations, self._announces_within_s)
        return first if self._announced is None else {**first, **self._announced.memo()}

    def refusals(self) -> Iterator[Refusal]:
        """Yield why units still wait, one refusal per reason."""
        left: list[tuple[int, Unit | None]] = []
        for job in self._order.tolist():
            unit = next(self._units(job), None)
            if unit is not None or not self._won_milli[job]:
                left.append((int(self._standing.jobs[job]), unit))
        why = WhyWaits(self._scratch, self._placing.table, self._all_reservations, self._placer)
        yield from unit_refusals(self._scratch, left, why, self._unit_s)

    @property
    def _all_reservations(self) -> list[Reservation]:
        """The reservations of the round, with those that no free GPU made necessary."""
        snapshot, within_s = self._standing.snapshot, self._announces_within_s
        needed = self._needed
        known = snapshot.memo(RESERVED_AT)
        return [
            replace(
                each,
                announced=not math.isnan(known[each.unit.job])
                or (each.unit.tasks[0] in needed and is_new(snapshot, each, within_s)),
            )
            for each in self.reservations
        ]

    @cached_property
    def _needed(self) -> set[int]:
        """The first tasks of units with reservations that the round needed; reserves the rest."""
        needed = {each.unit.tasks[0] for each in self.reservations}
        self._serving.serve(self._unreserved())
        return needed

    def _unreserved(self) -> Turns:
        """Yield the next unit of jobs without a reservation, up to the last reservation."""
        for job in self._order.tolist():
            if len(self.reservations) >= self._most:
                return
            unit = next(self._units(job), None)
            if unit is not None and unit.tasks[0] not in self._serving.reserved:
                yield self._turn(job, unit, starts=False, reserves=True)

    def _unit_s(self, unit: Unit) -> float:
        """Return the run time of a unit that is compared with reservations."""
        return float(self._with_units.high_s[self._job_of(unit)])

    def planned(self) -> Iterator[Reserved]:
        """Yield what is reserved, in order."""
        for each in self._all_reservations:
            run_s = float(self._with_units.run_s[self._job_of(each.unit)])
            yield each.planned(self._scratch.snapshot, self._serving.run_s_on(each, run_s))

    def again_at(self) -> float:
        """Return when a set was expected to be free for a unit that waits for links; inf for none.

        Unless it is free by then, another round decides whether the unit still waits for it.
        """
        at = min((each.at for each in self.reservations if each.spread), default=math.inf)
        return max(at, self._standing.snapshot.now + PAUSE_S) if at < UNKNOWN_AT else math.inf


def _alike(names: Names, rows: Iterable[int]) -> list[list[int]]:
    """Return demands (rows) in groups that need the same of GPUs and nodes.

    Those for models first, then by memory of GPUs, most first.
    """
    groups: dict[tuple[bool, int, tuple[str, ...], tuple[tuple[int, int], ...]], list[int]] = {}
    for row in rows:
        spec, needs = names.demands[row], tuple(names.needs[row])
        key = not spec.gpu_models, -spec.gpu_memory_bytes, spec.gpu_models, needs
        groups.setdefault(key, []).append(row)
    return [groups[key] for key in sorted(groups)]


def start_only_unit(
    scratch: Scratch, standing: Standing, times: Times, placer: Placer | None = None
) -> bool:
    """Start the only unit that waits, if there is no other and it fits now; return whether it does.

    It starts where `UnitReservations` would start it; no order of jobs needs to be known for that,
    and no time unless it communicates.
    """
    if len(standing.task) or len(standing.multi_gpu_jobs) != 1:
        return False
    job = int(standing.multi_gpu_jobs[0])
    units = waiting_units(standing.snapshot, int(standing.jobs[job]), multi_gpu=True)
    if len(units) != 1 or len(units[0]) != 1:
        return False
    (unit,) = units[0]
    turn = Turn(unit)
    if communicates(standing.snapshot.job(unit.job)):
        high_s, run_s = float(times.surely_s[job]), float(times.run_s[job])
        turn = Turn(unit, high_s, run_s, waits_for_links=True)
    return Serving(scratch, times.end_at, placer).answer(turn) is Answer.STARTED


class _JobsWithUnits:
    """The jobs with waiting multi-GPU units, as arrays by job: `[jobs]`."""

    def __init__(self, standing: Standing, times: Times) -> None:
        snapshot, jobs = standing.snapshot, standing.multi_gpu_jobs
        rows = standing.jobs[jobs]
        self.unit_milli = np.full(len(standing.jobs), np.iinfo(np.int64).max)
        self.unit_milli[jobs] = snapshot.jobs.unit_gpus_milli.take(rows)
        self.run_s, self.high_s = times.run_s, times.surely_s
        self._snapshot, self._shape = snapshot, dict[int, object]()
        size, gang = unit_sizes(snapshot, rows), snapshot.jobs.gang.take(rows)
        columns = (gang, size, snapshot.jobs.first_task.take(rows))
        lists = (column.tolist() for column in columns)
        self._rows = dict(zip(jobs.tolist(), zip(rows.tolist(), *lists, strict=True), strict=True))

    def shape(self, job: int) -> object:
        """Return the shape of the unit of a job; None if it may have several."""
        if job not in self._shape:
            row, gang, count, first = self._rows[job]
            demands = tuple(self._snapshot.tasks.demand.span(first, first + count).tolist())
            distinct = bool(gang) and self._snapshot.job(row).distinct_nodes
            self._shape[job] = (demands, distinct) if gang or count == 1 else None
        return self._shape[job]
