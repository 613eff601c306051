"""Preemption by price (`headgate`): the runs whose GPUs are worth more than the work lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.planning.place.limits import preempted_for
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.shares.standing import Standing
from headgate.planning.units.settled import may_stop
from headgate.planning.units.unit import one_task
from headgate.policies.flow.in_flight import GpuRuns, InFlight
from headgate.policies.flow.node_order import AssignedWaits
from headgate.policies.flow.preempt_units import (
    RESTART_S,
    PreemptionBudget,
    UnitPreemptions,
    running_units,
)
from headgate.protocol import Group, Steps, Stop


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobClaims:
    """The claims of each job after the starts of a round, `[jobs]`."""

    target: Ints  # GPUs of its fair share
    held: Ints  # GPUs
    left_s: Floats  # GPU seconds that it will still take
    owed: Floats  # GPU seconds of its debt

    @property
    def share(self) -> Ints:
        """The GPUs by which a job's remaining work is divided, at least 1."""
        return np.maximum(self.target, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preemptions:
    """The preempted runs, and what the jobs that get their GPUs pay."""

    stops: Steps  # each for the job that gets its GPU
    paid: Floats  # [jobs] GPU seconds
    next_s: float  # seconds until more may be worth their price, if debts grow as now


def worth_preempting(
    standing: Standing,
    ahead: InFlight,
    waiting: AssignedWaits,
    claims: JobClaims,
    units: UnitPreemptions | None,
    room_freed: Callable[[], RoomFreed],
    *,
    slack: float,
    memory_s: float,
) -> Preemptions:
    """Return the runs to preempt for tasks that wait for their GPUs; O(waiting x log(GPUs)).

    For the n-th GPU that jobs are short of, a run is preempted if the n-th GPU to become free
    otherwise is further away, in seconds, than the price, and if the debt to the waiting job covers
    the price, which it then pays. The price is the lost work, reading included, plus `RESTART_S`.
    The run's job holds more than `1 + slack` of its target, and keeps its target and one run; and
    the waiting job precedes it even after paying. So the total work lost never exceeds what jobs
    have missed, and a GPU is not preempted back. A multi-GPU unit is preempted whole, at its price.
    `units` are preempted before, and the tasks must fit what these leave, `room_freed`.
    """
    runs, target, share = ahead.runs, claims.target, claims.share
    budget = units.budget if units else None
    if budget is None:
        budget = PreemptionBudget.of(standing, ahead, target, claims.owed, slack=slack)
    preempted, next_s, done = list(units.groups) if units else [], math.inf, set[int]()
    short, owed, spare = target - claims.held, budget.owed, budget.spare
    so_far = Preemptions(stops=Steps.of(preempted), paid=claims.owed - owed, next_s=next_s)
    # Conditions only get harder as runs are preempted: a run that fails them now also fails later.
    sought = np.flatnonzero(nth_of_equals(waiting.job) < short[waiting.job])
    job, run, loser = waiting.job[sought], waiting.run[sought], runs.job[waiting.run[sought]]
    may = _may_stop(standing, runs, run) & (loser >= 0) & (spare[loser] > 0)
    if not may.any():
        return so_far
    price_s, size, unit = _victims(standing, ahead, run, units)
    worse = (claims.left_s - owed) / share
    rank = (claims.left_s[job] - np.maximum(0.0, owed[job] - price_s)) / share[job]
    may &= (spare[loser] >= size) & (rank < worse[loser])
    if units is not None:
        may &= ~units.is_freed(runs.gpu[run])
    gained = _gained_s(standing, ahead, waiting, sought) if may.any() else ()
    would_start = partial(_would_start, standing, runs, cache(room_freed))
    for i in np.flatnonzero(may).tolist():
        winner, from_job, price, soonest = int(job[i]), int(loser[i]), price_s[i], gained[i]
        if spare[from_job] < size[i] or int(unit[i]) in done:
            continue
        left_s = claims.left_s[winner] - max(0.0, owed[winner] - price)
        if left_s / share[winner] >= worse[from_job]:
            continue  # the other job would preempt the GPU back
        if price < min(soonest, owed[winner]):
            if not would_start(int(standing.task[waiting.task[sought[i]]]), int(run[i])):
                continue
            spare[from_job] -= int(size[i])
            done.add(int(unit[i]))
            owed[winner] -= price
            preempted.append(_preempted(standing, winner, int(runs.task[run[i]])))
            continue
        grows = float(short[winner] - owed[winner] / memory_s)
        next_s = min(next_s, _covered_in_s(price, float(owed[winner]), grows, soonest))
    return Preemptions(stops=Steps.of(preempted), paid=claims.owed - owed, next_s=next_s)


def _may_stop(standing: Standing, runs: GpuRuns, run: Ints) -> Bools:
    """Return which runs on held GPUs (indices) may be stopped."""
    may: Bools = ~runs.stopping[run] & may_stop(standing.snapshot, runs.task[run])
    return may


def _would_start(
    standing: Standing, runs: GpuRuns, room: Callable[[], RoomFreed], task: int, run: int
) -> bool:
    """Return whether a task (row) starts on the GPU of a run, once that has ended."""
    unit = one_task(standing.snapshot, task)
    return room().holds(unit, runs.gpu[run : run + 1], (int(runs.task[run]),))


def _preempted(standing: Standing, job: int, task: int) -> Group:
    """Return the stop of a run for a job."""
    return Group((Stop(task),), preempted_for(standing.snapshot, int(standing.jobs[job])))


def _covered_in_s(price: float, owed: float, grows: float, soonest: float) -> float:
    """Return the seconds after which a growing debt covers a price and waiting is longer, or inf.

    From now on the price grows by a second per second, and the time gained shrinks.
    """
    soon_s = max(0.0, price - owed) / (grows - 1) if grows > 1 else math.inf
    return soon_s if price + soon_s < soonest - soon_s else math.inf


def _victims(
    standing: Standing, ahead: InFlight, run: Ints, units: UnitPreemptions | None
) -> tuple[Floats, Ints, Ints]:
    """Return of the unit of each of some runs: its price, its GPUs, and a number of its own."""
    if not standing.has_multi_gpu.any():
        price_s = ahead.lost_s(standing.snapshot, ahead.runs.only(run)) + RESTART_S
        return price_s, np.ones(len(run), np.int64), run
    running = running_units(standing, ahead) if units is None else units.running
    index = np.searchsorted(ahead.all_runs.gpu, ahead.runs.gpu[run])
    return running.price[index], running.gpus[index], running.unit[index]


def _gained_s(standing: Standing, ahead: InFlight, waiting: AssignedWaits, sought: Ints) -> Floats:
    """Return the seconds after which each seeking task would get a GPU without preemption.

    Each gets the soonest remaining one that fits, or the one that it waits for.
    """
    own_s, classes = ahead.wait_s[waiting.run[sought]], standing.free.shape[1]
    if classes == 1:
        gained, many = own_s, min(len(sought), len(ahead.wait_s))
        gained[:many] = np.sort(np.partition(ahead.wait_s, many - 1)[:many])
        return gained
    # By class, when its GPUs become free, the soonest last.
    of_class = [ahead.wait_s[ahead.runs.gpu_class == k] for k in range(classes)]
    free_s = [np.sort(wait_s)[::-1].tolist() for wait_s in of_class]
    gained = np.empty(len(sought))
    for n, i in enumerate(sought.tolist()):
        # Earlier tasks may have taken all GPUs that fit, except the one that it waits for.
        accepted = np.flatnonzero(standing.accepts[standing.task_type[waiting.task[i]]]).tolist()
        fitting = [free_s[k] for k in accepted if free_s[k]]
        own = [float(own_s[n])]
        gained[n] = min(fitting, key=lambda each: each[-1], default=own).pop()
    return gained
