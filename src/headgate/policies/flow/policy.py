"""The common base of the flow policies: a round is one min-cost flow over all jobs.

`FlowPolicy.decide` names the stages of a round in their order, each of them a module: `eligible`,
`problem`, `solve`, `readback`, `refusals`. A policy defines how many tasks of each job may and must
be placed, and which of the placed ones start now. The flow places tasks of one whole GPU; wide
units are placed before it, in the policy's order of jobs.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.rng import Random
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.place.multi_gpu import MultiGpuUnits, least_served_first
from headgate.planning.shares.standing import Standing, standing_of
from headgate.policies.flow.eligible import Entitled, PlacedUnits, Round, round_of
from headgate.policies.flow.in_flight import InFlight, Work, in_flight
from headgate.policies.flow.job_prices import free_gpu_price_s, prices_by_job, run_price_s
from headgate.policies.flow.packed import packed
from headgate.policies.flow.placed import NOTHING_PLACED, Placed
from headgate.policies.flow.prices import Prices
from headgate.policies.flow.problem import (
    FullProblem,
    OfferedTasks,
    full_problem,
    next_problem,
    offered_problem,
)
from headgate.policies.flow.readback import Choice, flow_placements, plan
from headgate.policies.flow.solve import Flow, solve
from headgate.policies.flow.unit_reservations import UnitReservations
from headgate.policies.flow.warm import WarmCache, WarmRound
from headgate.ports.capabilities import CertificateStats, JobPrices
from headgate.protocol import Plan
from headgate.state import Changes, Scratch, Snapshot

_CERTIFY_EVERY = 64  # warm rounds: the first of each 64 is certified


class FlowPolicy(PlacingPolicy, ABC):
    """A policy that places tasks by min-cost flow; subclasses define entitlements and starts."""

    name: str
    plans_ahead = False
    """Whether GPUs that are held now are also assigned to tasks, which then wait for them."""
    may_wait = False
    """Whether `Entitled.least` may be below `Entitled.most`."""
    fills_gpus = True
    """Whether GPUs meant for tasks that lack another resource go to other tasks.

    Not if a run that got one so would be preempted for the same task again.
    """

    def __init__(self, *, alpha1: float, alpha2: float, alpha3: float | None = 1.0) -> None:
        """Set the coefficients of prices; without `alpha3`, waiting has no price."""
        self._prices = Prices(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3, may_wait=self.may_wait)
        self._cache = WarmCache()
        self.certified = CertificateStats()

    def warm_copy(self) -> Self:
        """Return a copy whose next rounds, hypothetical ones, are those of this policy."""
        return copy.deepcopy(self)

    @abstractmethod
    def entitle(self, standing: Standing) -> Entitled:
        """Return how many tasks may and must be placed."""

    def unit_order(self, standing: Standing) -> tuple[Ints, Ints | None]:
        """Return the order of jobs for their units, indices, and the most GPUs of each, `[jobs]`.

        None for no limit; see `MultiGpuUnits.place`. Here those that hold least of their share come
        first, each with its entitlement.
        """
        return least_served_first(standing)

    def place_units(
        self, standing: Standing, work: Work | None, scratch: Scratch
    ) -> tuple[PlacedUnits, UnitReservations | None, InFlight | None]:
        """Place multi-GPU units on the scratch; return them, and the work in flight.

        The second part is the units again if the policy reserves GPUs for some of them.
        """
        units = MultiGpuUnits(scratch, standing, self.placer)
        if units:
            units.place(*self.unit_order(standing))
        return units, None, None if work is None else in_flight(standing, work)

    def choose(self, round_: Round, placed: Placed, wait_price: Ints) -> Choice:
        """Return which of the `placed` tasks start now, and the rest of the plan; here all start.

        `placed.task` are indices into `Standing.task`; `wait_price` is in microseconds, `[jobs]`.
        """
        del round_
        return Choice(starts=placed, wait_price=wait_price)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Return the plan of one optimal flow of the round.

        On a snapshot that follows that of the last round, the flow is re-optimized rather than
        solved from nothing: the cost is the same, but ties between equal flows may be broken
        differently. Older snapshots, and hypothetical ones after real ones, are solved separately.
        """
        del rng
        snapshot = snapshot.unexplained()  # else each plan would keep all earlier ones alive
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch, self.placer)
        with self._cache.lend(snapshot) as warm:
            standing, changes = warm.advance(snapshot, ahead=self.plans_ahead)
            round_ = self._round(standing, warm.work, scratch)
            placed, wait_price = self._flow(round_, changes, warm)
        choice = self.choose(round_, placed, wait_price)
        if self.placer is not None and self.placer.packs_tightly:
            choice = replace(choice, starts=packed(round_.standing, scratch, choice.starts))
        return plan(round_, choice, scratch, waiting_for_cpus, fill=self.fills_gpus)

    def _flow(self, round_: Round, changes: Changes | None, warm: WarmRound) -> tuple[Placed, Ints]:
        """Return what the optimal flow places, and the price of waiting of each job, `[jobs]`.

        Without tasks, nothing is solved: the next flow would start from nothing in any case.
        """
        if not len(round_.standing.task):
            warm.flow = None
            warm.offered.clear()
            return NOTHING_PLACED, np.zeros(len(round_.standing.jobs), np.int64)
        posed = next_problem(round_, None if warm.flow is None else changes, warm.offered)
        warm.flow = solve(posed, warm.flow)
        if warm.flow.changes % _CERTIFY_EVERY == 1 and not self._is_certified(round_, warm):
            posed = full_problem(round_, warm.offered)
            warm.flow = Flow(posed)
        placed = flow_placements(round_, warm.flow)
        return placed, 2 * posed.problem.wait_price[round_.entitled.group]

    def _round(self, standing: Standing, work: Work | None, scratch: Scratch) -> Round:
        """Place multi-GPU units on the scratch; return the inputs of the flow on the rest."""
        units, reserving, ahead = self.place_units(standing, work, scratch)
        standing = units.standing_after()
        return round_of(standing, ahead, self.entitle(standing), self._prices, units, reserving)

    def _is_certified(self, round_: Round, warm: WarmRound) -> bool:
        """Return whether the re-optimized flow is optimal for the round's problem; count it."""
        assert warm.flow is not None
        certificate = warm.flow.certificate(offered_problem(round_, warm.offered))
        known = self.certified
        self.certified = CertificateStats(
            rounds=known.rounds + 1,
            violations=known.violations + (not certificate.clean),
            last_gap=certificate.gap,
        )
        return certificate.clean

    def _cold_problem(self, snapshot: Snapshot) -> tuple[Round, FullProblem]:
        """Return the round of a snapshot and its full problem, independent of the warm round."""
        work = Work(snapshot) if self.plans_ahead else None
        scratch, standing = Scratch(snapshot), standing_of(snapshot)
        place_cpu_tasks(scratch, self.placer)
        round_ = self._round(standing, work, scratch)
        return round_, full_problem(round_, OfferedTasks())

    @property
    def prices(self) -> Self:
        """The policy itself: it prices its rounds in seconds."""
        return self

    def job_prices(self, snapshot: Snapshot) -> dict[int, JobPrices]:
        """Return the share and prices of each job in the round of a snapshot, by its row."""
        round_, posed = self._cold_problem(snapshot)
        return prices_by_job(round_, posed.problem)

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node, in seconds."""
        return run_price_s(snapshot, task, node, self._prices)

    def slot_price_s(self, snapshot: Snapshot, node: int, gpu: int) -> float | None:
        """Return the shadow price, in seconds, of a free GPU; None if one task less would start."""
        round_, posed = self._cold_problem(snapshot)
        return free_gpu_price_s(round_.standing, Flow(posed), node, gpu)
