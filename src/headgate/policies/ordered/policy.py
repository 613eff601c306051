"""Policies composed of an order, a kind of backfill, and a placer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.rng import Random
from headgate.planning.moves.migration import WHEN_CHEAPER
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.shares.orders import (
    Arrival,
    FairFinish,
    JobOrder,
    LeastAttainedService,
    ShortestRemaining,
)
from headgate.planning.times.estimates import Estimates
from headgate.policies.ordered.backfill import Backfill
from headgate.policies.ordered.preempt import Preempting
from headgate.policies.ordered.refusals import Explained, unserved
from headgate.protocol import Lazy, OnDemand, Plan
from headgate.state import JobState, Scratch, Snapshot


class Backfilling(PlacingPolicy):
    """A policy that serves jobs in an order; units that do not fit get up to `most` reservations.

    If `most` is 0, the first unit that does not fit blocks all later ones.
    """

    def __init__(self, name: str, order: JobOrder, *, most: int, migrate: bool = False) -> None:
        self.name, self._order, self._most, self.migrates = name, order, most, migrate

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Start what may start; O(waiting jobs + GPUs x log), and that for each reservation."""
        del rng
        snapshot = snapshot.unexplained()  # else each plan would keep all earlier ones alive
        scratch = Scratch(snapshot)
        place_cpu_tasks(scratch, self.placer)
        estimates = Estimates(snapshot)
        jobs = self._order.rank(snapshot, _waiting(snapshot))
        served = Backfill(scratch, estimates, most=self._most, placer=self.placer)
        served.serve(jobs, always_reserve=self.migrates)
        explained = Explained(snapshot, jobs, estimates, most=self._most, placer=self.placer)
        first = served.first_left(jobs) if self.migrates else None
        moved = served.serving.moves_for(first)
        return Plan(
            steps=scratch.steps() + moved.steps,
            memo={**served.memo(), **moved.memo},
            node_memo=scratch.node_memos(),
            refusals=OnDemand(explained.refusals),
            reservations=Lazy(explained.reservations),
        )


class PreemptingOrder(PlacingPolicy):
    """A policy that serves jobs in an order; what comes later gives way to what comes first."""

    preempts_by_order = True

    def __init__(self, order: JobOrder) -> None:
        self.name, self._order = order.name, order

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Start and preempt; O(unfinished tasks + (runs + starts) x GPUs x log)."""
        del rng
        snapshot = snapshot.unexplained()  # else each plan would keep all earlier ones alive
        scratch = Scratch(snapshot)
        without_gpus = place_cpu_tasks(scratch, self.placer)
        waiting = _waiting(snapshot)
        jobs = self._order.rank(snapshot, _in_flight(snapshot)) if len(waiting) else waiting
        placer = self.placer
        served = Preempting(scratch, jobs, self.name, placer)
        served.serve()
        return Plan(
            steps=served.steps(),
            node_memo=scratch.node_memos(),
            again_at=self._order.changes_at(snapshot, jobs, _held_milli(scratch, jobs)),
            refusals=OnDemand(lambda: (*without_gpus, *unserved(scratch, jobs, placer))),
        )


def _held_milli(scratch: Scratch, jobs: Ints) -> Ints:
    """Return the thousandths of GPUs that jobs hold once the starts of a round are made."""
    snapshot = scratch.snapshot
    held = snapshot.jobs.held_gpus_milli.array().astype(np.int64)
    for start in scratch.starts:
        held[snapshot.tasks.job[start.task]] += snapshot.demand(start.task).gpus_milli
    return held[jobs]


def _waiting(snapshot: Snapshot) -> Ints:
    """Return the rows of jobs with WAITING tasks on GPUs."""
    first, end = snapshot.first_waiting_job, len(snapshot.jobs.state)
    return np.flatnonzero(snapshot.jobs.waiting.span(first, end)) + first


def _in_flight(snapshot: Snapshot) -> Ints:
    """Return the rows of jobs with tasks on GPUs that wait or run."""
    rows = snapshot.jobs
    some = (rows.waiting.array() > 0) | (rows.running.array() > 0)
    return np.flatnonzero(some & (rows.state.array() == JobState.ACTIVE))


_ORDERS: Mapping[str, Callable[[], JobOrder]] = {each.name: each for each in (Arrival, FairFinish)}
_HOW_MANY = {"none": 0, "easy": 1}  # reservations, by kind of backfill


def backfilling(
    name: str, order: str, backfill: str, *, reservations: float = 100, migrate: str = "never"
) -> PlacingPolicy:
    """Return the policy that serves jobs in an order with a kind of backfill."""
    most = _HOW_MANY.get(backfill, int(reservations))
    return Backfilling(name, _ORDERS[order](), most=most, migrate=migrate == WHEN_CHEAPER)


def preempting(order: str, **parameters: float) -> PlacingPolicy:
    """Return the policy that serves jobs in an order, and preempts by it."""
    kinds: Mapping[str, Callable[..., JobOrder]] = {
        each.name: each for each in (LeastAttainedService, ShortestRemaining)
    }
    return PreemptingOrder(kinds[order](**parameters))
