"""The default policy: each task on the GPU where its reading would end first, free now or soon,
jobs in the order in which fair sharing would finish them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import in_order, ranks
from headgate.planning.moves.migration import WHEN_CHEAPER
from headgate.planning.place.choose import ByLinks
from headgate.planning.place.multi_gpu import MultiGpuUnits
from headgate.planning.shares.announced import Announced
from headgate.planning.shares.debts import FinishOrder, debts_gpu_s, updated_debts
from headgate.planning.shares.standing import Standing
from headgate.planning.shares.stopped_for import stopped_for_first, stopped_for_memo
from headgate.policies.flow.eligible import Entitled, PlacedUnits, Round
from headgate.policies.flow.freed import to_freed
from headgate.policies.flow.in_flight import InFlight, Work, in_flight
from headgate.policies.flow.node_order import assign_waiting, next_round_at, starts_by_rank
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.flow.preempt_by_price import JobClaims, worth_preempting
from headgate.policies.flow.preempt_units import PreemptionBudget
from headgate.policies.flow.readback import Choice
from headgate.policies.flow.times import Times
from headgate.policies.flow.unit_reservations import UnitReservations, start_only_unit
from headgate.policies.flow.windows import UNLIMITED
from headgate.protocol import Memo
from headgate.state import Scratch, Snapshot


class TimelyFlow(FlowPolicy):
    """The policy `headgate`.

    **Placement.** Every GPU that is up has one next slot: now, or when its run is expected to end.
    One min-cost flow assigns these slots to as many tasks of each job as its fair share of all GPUs
    is; a task costs, in seconds, the wait for its slot plus the time to read its shards there. A
    task whose slot is not free yet waits: so a task waits exactly when waiting is cheaper than
    moving its data. Runs are expected to read for the time estimated at their launch and to compute
    as long as others of their runtime class; an overdue run is expected to take its delay once
    more, so no task waits for a run without limit.

    **Order of jobs.** Of the tasks sent to a node, those of the job start first that fair sharing
    would finish first: by (remaining GPU seconds - debt) / share. The debt to a job is the GPU
    seconds that it held less than its share while it had tasks for them; it decays with `memory_s`.
    Jobs that have been short of their share for about 0.7 x `memory_s` precede all others.

    **Preemption.** A job below its share preempts a run of a job above `1 + slack` of its own if
    that is worth its price, the lost work: if waiting for the next GPU to become free would take
    longer, and if the debt to the job covers the price. The debt is reduced by the price, so the
    total work lost never exceeds what jobs have missed; and the job must still precede the other
    one after paying.

    Deviates from the flow paper, which solves for the free GPUs of one instant. The order of jobs
    is that of Friedman and Henderson, Fairness and efficiency in web server protocols, SIGMETRICS
    2003 (Fair Sojourn Protocol): no job ends later than under fair sharing if times are known.
    """

    name = "headgate"
    plans_ahead = True
    reserves_for_impatient = True
    placer = ByLinks()

    def __init__(
        self,
        *,
        memory_s: float = 600.0,
        slack: float = 0.25,
        reservations: float = 16.0,
        migrate: str = "never",
    ) -> None:
        super().__init__(alpha1=1.0, alpha2=1.0, alpha3=None)
        self.migrates = migrate == WHEN_CHEAPER
        self._memory_s, self._slack, self._reservations = memory_s, slack, reservations

    def place_units(
        self, standing: Standing, work: Work | None, scratch: Scratch
    ) -> tuple[PlacedUnits, UnitReservations | None, InFlight | None]:
        """Start or reserve units in the order of jobs; reserved GPUs are no slots of the flow."""
        assert work is not None
        if not len(standing.task) and not len(standing.multi_gpu_jobs):
            return MultiGpuUnits(scratch, standing, self.placer), None, None
        declared = ~np.isnan(standing.snapshot.jobs.estimated_s.take(standing.jobs))
        times = Times(standing) if standing.has_multi_gpu.any() or declared.any() else None
        if times is not None and start_only_unit(scratch, standing, times, self.placer):
            none_left = replace(standing, multi_gpu_jobs=standing.multi_gpu_jobs[:0])
            return MultiGpuUnits(scratch, none_left), None, None
        ahead = in_flight(standing, work, times)
        if times is None or not len(standing.multi_gpu_jobs):
            return MultiGpuUnits(scratch, standing, self.placer), None, ahead
        target = standing.fair_shares()
        owed = debts_gpu_s(standing, memory_s=self._memory_s)
        finish = FinishOrder.of(target, ahead.left_s, owed)
        order = self._order(standing, target, ahead.left_s, finish)
        most = self._slots(standing, standing.waiting + standing.multi_gpu)
        flow = np.minimum(most, standing.waiting.sum(axis=1))
        announced = Announced(standing, target)
        units = UnitReservations(
            scratch,
            standing,
            times,
            finish,
            reservations=int(self._reservations),
            announced=announced,
            announces_within_s=self.patience_s,
            placer=self.placer,
            migrate=self.migrates,
        )
        order, promised = announced.first(order)
        units.place(stopped_for_first(standing, order), flow, most, promised)
        units.preempt(ahead, PreemptionBudget.of(standing, ahead, target, owed, slack=self._slack))
        units.open_windows(ahead)
        is_slot = units.is_slot(ahead.runs.gpu)
        return units, units, ahead if is_slot.all() else ahead.only(is_slot)

    def entitle(self, standing: Standing) -> Entitled:
        """Allocate the next slots of all GPUs by fair shares.

        If a queue's ceiling may bind, GPUs that its jobs hold count against it: they get no more
        slots than the ceiling leaves, since they cannot use the next slots of others' GPUs.
        """
        target = standing.fair_shares()
        most = self._slots(standing, standing.waiting)
        return Entitled(
            target=target,
            group=np.arange(len(standing.jobs)),
            row=standing.jobs,
            most=most,
            least=most,
        )

    def _slots(self, standing: Standing, waiting: Ints) -> Ints:
        """Return how many of the next slots of all GPUs each job gets, `[jobs]`.

        `waiting` are the GPUs that its waiting tasks need, `[jobs, types]`. If a queue lends less
        than it does not use, and others hold some of that already, only free ones are given.
        """
        if standing.hierarchy.has_idle:
            return standing.hierarchy.allocate_by_type(
                held=standing.held,
                tasks=waiting,
                gpus=standing.free_of_kind,
                accepts=standing.kinds.accepts,
            )
        bound = standing.tree.limited(int(standing.gpus.sum()))[standing.queue]
        return standing.hierarchy.allocate_by_type(
            held=np.where(bound, standing.held, 0),
            tasks=waiting,
            gpus=standing.gpus,
            accepts=standing.kinds.accepts,
        )

    def choose(self, round_: Round, placed: Placed, wait_price: Ints) -> Choice:
        """Start tasks in the order of their jobs, and preempt runs if that is worth its price.

        Prices of waiting follow from the GPUs that tasks wait for, not from `wait_price`.
        """
        standing, ahead, target = round_.standing, round_.in_flight, round_.entitled.target
        if ahead is None:  # nothing waits
            owed = debts_gpu_s(standing, memory_s=self._memory_s)
            useful = np.minimum(target, standing.held + standing.needed)
            memo = _memo(standing, owed, np.zeros(len(owed)), useful - standing.held)
            return Choice(starts=placed, wait_price=wait_price, memo=memo)
        units = round_.reserving
        if units:
            finish = units.finish
        else:
            owed = debts_gpu_s(standing, memory_s=self._memory_s)
            finish = FinishOrder.of(target, ahead.left_s, owed)
        order = self._order(standing, target, ahead.left_s, finish)
        owed, rank = finish.owed, ranks(stopped_for_first(standing, order))
        placed, short = _by_window(placed)
        placed = to_freed(standing, placed, rank, self._read_price(standing.snapshot))
        starts, left = starts_by_rank(standing, placed, rank)
        started = None
        if units and units.reservations:
            short = short.only(in_order(rank[standing.task_job[short.task]]))
            started, short = self._with_backfill(units, standing, rank, starts, short)
            left = left.only(np.flatnonzero(~np.isin(left.task, started.task)))
        won = np.bincount(standing.task_job[(started or starts).task], minlength=len(standing.jobs))
        held = standing.held + won
        waiting = assign_waiting(standing, ahead, left)
        claims = JobClaims(target=target, held=held, left_s=ahead.left_s, owed=owed)
        for_units = units.preempted if units else None
        preempted = worth_preempting(
            standing, ahead, waiting, claims, for_units, round_.units.room_freed,
            slack=self._slack, memory_s=self._memory_s,
        )  # fmt: skip
        useful = np.minimum(target, held + standing.needed - won)
        free = _free_after(standing, starts)
        memo = _memo(standing, owed, preempted.paid, useful - held)
        if units:
            memo = {**memo, **units.memo()}
        price = waiting.price_by_job(len(standing.jobs))
        again_at = next_round_at(standing, ahead, waiting, free, held < target, preempted.next_s)
        if units and units.again_at() < (again_at or math.inf):
            again_at = units.again_at()
        if round_.windows is not None:
            ahead = round_.windows.held
            waiting = assign_waiting(standing, ahead, short)
            price = np.minimum(price, waiting.price_by_job(len(standing.jobs)))
            sooner_at = next_round_at(standing, ahead, waiting, free, held < target, math.inf)
            again_at = min((at for at in (again_at, sooner_at) if at is not None), default=None)
        return Choice(
            starts=starts,
            wait_price=price,
            backfilled=started,
            stops=preempted.stops,
            memo=memo,
            again_at=again_at,
        )

    def _read_price(self, snapshot: Snapshot) -> Callable[[int, int], int]:
        return lambda task, node: round(self.cost_s(snapshot, task, node) * 1e6)

    def _order(self, standing: Standing, target: Ints, left_s: Floats, finish: FinishOrder) -> Ints:
        """Return the jobs in the order in which fair sharing would finish them.

        Jobs short of their share for long come first.
        """
        first = _short_for_long(standing, target, left_s, finish.owed, self._memory_s)[finish.order]
        return np.concatenate([finish.order[first], finish.order[~first]])

    def _with_backfill(
        self,
        units: UnitReservations,
        standing: Standing,
        rank: Ints,
        starts: Placed,
        short: Placed,
    ) -> tuple[Placed, Placed]:
        """Start tasks on reserved GPUs until their reservations.

        First those that the flow places there (`short`), then, by first fit, others that wait.
        Returns all starts, and which of `short` wait for GPUs that are held.
        """
        begins, waits = units.start_in_windows(short)
        all_starts = starts.joined(short.only(np.flatnonzero(begins)))
        is_left = np.ones(len(standing.task), bool)
        is_left[all_starts.task] = False
        tasks = np.flatnonzero(is_left)
        tasks = tasks[in_order(rank[standing.task_job[tasks]])]
        task, node, gpu_class = units.backfill(tasks, starts.task)
        none = np.zeros(len(task), np.int64)
        all_starts = all_starts.joined(
            Placed(task=task, node=node, gpu_class=gpu_class, window=none, price=none)
        )
        waits &= ~np.isin(short.task, task)
        return all_starts, short.only(np.flatnonzero(waits))


def _free_after(standing: Standing, starts: Placed) -> Ints:
    """Return the free GPUs of each class after some starts, `[classes]`."""
    free: Ints = standing.free.sum(axis=0)
    return free - np.bincount(starts.gpu_class, minlength=len(free))


def _memo(standing: Standing, owed: Floats, paid: Floats, missing: Ints) -> Memo:
    """Return the memo of debts, and of jobs for which runs are stopped: those that `paid`."""
    debts = updated_debts(standing, owed, paid, missing)
    return {**debts, **stopped_for_memo(standing, paid > 0)}


def _by_window(placed: Placed) -> tuple[Placed, Placed]:
    """Return the tasks that the flow places on unlimited GPUs, and those on reserved ones."""
    short = placed.window < UNLIMITED
    if not short.any():
        return placed, placed.only(np.zeros(0, np.int64))
    return placed.only(np.flatnonzero(~short)), placed.only(np.flatnonzero(short))


def _short_for_long(
    standing: Standing, target: Ints, left_s: Floats, owed: Floats, memory_s: float
) -> Bools:
    """Return which jobs have been short for long, `[jobs]`.

    They are owed more than half of the limit to which the debt of a job that misses as many GPUs
    grows: as after 0.7 x `memory_s`. Later the debt hardly grows and no longer changes their rank.
    """
    missing = np.minimum(target - standing.held, standing.needed)
    first: Bools = (missing > 0) & (2 * owed > missing * memory_s)
    return np.where(standing.has_multi_gpu, (standing.needed > 0) & (owed >= left_s), first)
