"""Preemption by price for multi-GPU units: whole units, gangs among them, also as victims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model import WHOLE
from headgate.planning.place.limits import preempted_for
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.place.serve import Serving, Turn
from headgate.planning.place.timetable import GpuCosts
from headgate.planning.shares.standing import Standing
from headgate.planning.units.settled import may_stop
from headgate.planning.units.unit import Unit
from headgate.policies.flow.in_flight import InFlight
from headgate.protocol import Group, Stop

RESTART_S = 1.0
"""Assumed seconds to start a run again, besides its lost work, on each of its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningUnits:
    """The units that hold GPUs, by held GPU as in `InFlight.all_runs`, `[GPUs]`.

    A unit is a gang, or a task. `price` is the GPU seconds lost if the whole unit is preempted, on
    all its GPUs, and those to start it again.
    """

    unit: Ints  # a number for each unit
    gpus: Ints  # of the unit
    price: Floats


def running_units(standing: Standing, ahead: InFlight) -> RunningUnits:
    """Return the units that hold GPUs now."""
    runs, jobs = ahead.all_runs, standing.snapshot.jobs
    its_job = standing.snapshot.tasks.job.take(runs.task).astype(np.int64)
    key = np.where(jobs.gang.take(its_job) > 0, -1 - its_job, runs.task)
    _, unit = np.unique(key, return_inverse=True)
    lost_s = ahead.lost_s(standing.snapshot, runs) + RESTART_S
    price = np.bincount(unit, lost_s)[unit].astype(np.float64)
    return RunningUnits(unit=unit, gpus=np.bincount(unit)[unit], price=price)


@dataclass(slots=True, kw_only=True, eq=False)
class PreemptionBudget:
    """What jobs hold, owe and may lose while units are preempted in a round, `[jobs]`."""

    target: Ints  # GPUs of the fair share
    held: Ints  # GPUs
    left_s: Floats  # GPU seconds that the job will still take
    owed: Floats  # GPU seconds of its debt, less what it paid
    spare: Ints  # GPUs that it may lose

    @classmethod
    def of(
        cls, standing: Standing, ahead: InFlight, target: Ints, owed: Floats, *, slack: float
    ) -> PreemptionBudget:
        """Start with what jobs hold now, without runs that are being stopped.

        A job above `1 + slack` of its target may lose GPUs, but keeps its target and one; one that
        is a gang may lose them all, since it holds all or none.
        """
        runs = ahead.all_runs
        stopping = runs.job[runs.stopping & (runs.job >= 0)]
        keeps = standing.held - np.bincount(stopping, minlength=len(target))
        over = keeps > (1 + slack) * target
        spare = np.where(over, np.minimum(keeps - target, keeps - 1), 0)
        if standing.has_multi_gpu.any():
            gang = over & (standing.snapshot.jobs.gang.take(standing.jobs) > 0)
            spare = np.where(gang, keeps, spare)
        return cls(
            target=target, held=standing.held, left_s=ahead.left_s, owed=owed.copy(), spare=spare
        )

    def rank_of(self, job: int, price: float) -> float:
        """Return a job's place in the order of jobs once it has paid a price."""
        owed = max(0.0, float(self.owed[job]) - price)
        return float(self.left_s[job] - owed) / max(int(self.target[job]), 1)

    def ranks(self, jobs: Ints) -> Floats:
        """Return the places of jobs in the order of jobs."""
        owed = np.maximum(0.0, self.owed[jobs])
        ranks: Floats = (self.left_s[jobs] - owed) / np.maximum(self.target[jobs], 1)
        return ranks


class UnitPreemptions:
    """The units preempted for multi-GPU units in a round."""

    def __init__(
        self, serving: Serving, standing: Standing, ahead: InFlight, budget: PreemptionBudget
    ) -> None:
        """Start without any."""
        self._serving, self._standing, self._ahead, self.budget = serving, standing, ahead, budget
        self.room = RoomFreed(serving.scratch)
        self.groups: list[Group] = []
        self.freed: Bools = np.zeros(len(ahead.all_runs.gpu), bool)
        """The GPUs that they free, by held GPU."""

    @cached_property
    def running(self) -> RunningUnits:
        """The units that hold GPUs."""
        return running_units(self._standing, self._ahead)

    @cached_property
    def _may_stop(self) -> Bools:
        """Which held GPUs are of runs that may be stopped by now."""
        return may_stop(self._standing.snapshot, self._ahead.all_runs.task)

    def may_gain(self, jobs: Ints) -> Ints:
        """Return those of some jobs, in their order, for which units may be worth preempting.

        Each holds less than its share, and the debt to it covers the least price. The others do not
        come to that later in the round: prices stay, and what jobs may lose and are owed shrinks.
        """
        budget, runs = self.budget, self._ahead.all_runs
        if not (budget.spare > 0).any():
            return jobs[:0]
        jobs = jobs[budget.held[jobs] < budget.target[jobs]]
        if not len(jobs):
            return jobs
        may = (runs.job >= 0) & ~runs.stopping & (budget.spare[runs.job] > 0)
        if not may.any():
            return jobs[:0]
        may &= (self.running.gpus <= budget.spare[runs.job]) & self._may_stop
        least: float = self.running.price[may].min(initial=math.inf)
        return jobs[budget.owed[jobs] > least]

    def is_freed(self, gpus: Ints) -> Bools:
        """Return which of some held GPUs (rows) they free."""
        freed: Bools = np.isin(gpus, self._ahead.all_runs.gpu[self.freed])
        return freed

    def free(self, turn: Turn) -> bool:
        """Preempt units for one that waits, if that is worth its price; return whether it is.

        The price, in GPU seconds, must be less than the unit would wait otherwise, on all its GPUs,
        and the debt to its job must cover it, which pays it. The job holds less than its share, and
        precedes each job that loses a unit, even after paying. It would start then. The GPUs are
        free soon.
        """
        unit, budget = turn.unit, self.budget
        job = int(np.searchsorted(self._standing.jobs, unit.job))
        if budget.held[job] >= budget.target[job]:
            return False
        most = float(budget.owed[job])
        may = self._may_lose(job, most)
        if not may.any() or not self._may_precede(job, may):
            return False
        chosen = self._cheapest(unit, may)
        if chosen is None:
            return False
        victims = self._victims(chosen, may)
        total = sum(float(self.running.price[first]) for first in victims)
        if not victims or total >= most or not self._affordable(victims):
            return False
        rank = budget.rank_of(job, total)
        losers = [int(self._ahead.all_runs.job[first]) for first in victims]
        if any(rank >= budget.rank_of(loser, 0.0) for loser in losers):
            return False
        placing = self._serving.placing
        soonest = placing.earliest(unit, turn.run_s)
        wait_s = math.inf if soonest is None else soonest.at - placing.table.now
        gpus = -(-unit.gpus_milli(self._standing.snapshot) // WHOLE)
        if total >= max(gpus, 1) * wait_s:
            return False
        stops = [int(self._ahead.all_runs.task[first]) for first in victims]
        if not self.room.holds(unit, chosen, stops):
            return False
        self._preempt(job, victims, total)
        placing.table.free_soon(self._ahead.all_runs.gpu[self.freed])
        return True

    def _cheapest(self, unit: Unit, may: Bools) -> Ints | None:
        """Return the GPUs (rows) with which least is lost, of free ones and those of runs."""
        runs, placing = self._ahead.all_runs, self._serving.placing
        each = (self.running.price / self.running.gpus)[may]
        of_gpu = placing.table.cost_of_open()
        of_gpu[runs.gpu[may]] = each
        of_task = np.full(len(self._standing.snapshot.tasks.state), math.inf)
        of_task[runs.task[may]] = each
        return placing.cheapest(unit, GpuCosts(of_gpu, of_task.take))

    def _may_lose(self, job: int, most: float) -> Bools:
        """Return which held GPUs are of a unit that a job may preempt for less than `most`."""
        runs, units, budget = self._ahead.all_runs, self.running, self.budget
        may: Bools = (runs.job >= 0) & ~runs.stopping & ~self.freed & (runs.job != job)
        may &= (units.gpus <= budget.spare[runs.job]) & (units.price < most)
        return may & self._may_stop

    def _may_precede(self, job: int, may: Bools) -> bool:
        """Return whether a job precedes one of those that may lose GPUs after the least price."""
        rank = self.budget.rank_of(job, float(self.running.price[may].min()))
        losers = self.budget.ranks(self._ahead.all_runs.job[may])
        return bool((rank < losers).any())

    def _victims(self, chosen: Ints, may: Bools) -> list[int]:
        """Return the index of one held GPU of each unit that holds GPUs of `chosen` (rows)."""
        runs = self._ahead.all_runs
        held = np.flatnonzero(may & np.isin(runs.gpu, chosen))
        first = np.unique(self.running.unit[held], return_index=True)[1]
        victims: list[int] = held[first].tolist()
        return victims

    def _affordable(self, victims: list[int]) -> bool:
        """Return whether the jobs of units can lose all of them."""
        runs, lost = self._ahead.all_runs, np.zeros(len(self.budget.spare), np.int64)
        for first in victims:
            lost[runs.job[first]] += self.running.gpus[first]
        return bool((lost <= self.budget.spare).all())

    def _preempt(self, job: int, victims: list[int], total: float) -> None:
        runs, budget = self._ahead.all_runs, self.budget
        reason = preempted_for(self._standing.snapshot, int(self._standing.jobs[job]))
        for first in victims:
            budget.spare[runs.job[first]] -= self.running.gpus[first]
            self.freed |= self.running.unit == self.running.unit[first]
            self.groups.append(Group((Stop(int(runs.task[first])),), reason))
        budget.owed[job] -= total
