"""Policies composed of an order, a kind of backfill, and a placer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from headgate.base.rng import Random
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.estimates import Estimates
from headgate.planning.migration import MIGRATE, WHEN_CHEAPER, Migration, defragment
from headgate.planning.orders import (
    Arrival,
    FairFinish,
    LeastAttainedService,
    Order,
    ShortestRemaining,
)
from headgate.planning.placers.setting import PLACE, PlacingPolicy, with_place
from headgate.planning.shares import Ints
from headgate.policies.ordered.backfill import Backfill
from headgate.policies.ordered.preempt import Preempting
from headgate.policies.ordered.refusals import Explained, unserved
from headgate.ports import Parameter, PolicyInfo
from headgate.protocol import Lazy, OnDemand, Plan
from headgate.state import JobState, Scratch, Snapshot


class Backfilling(PlacingPolicy):
    """A policy that serves jobs in an order; units that do not fit get up to `most` reservations.

    If `most` is 0, the first unit that does not fit blocks all later ones.
    """

    def __init__(self, name: str, order: Order, *, most: int, migrate: bool = False) -> None:
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
        moved = Migration()
        if first is not None:
            moved = defragment(scratch, first.unit, wait_s=first.at - snapshot.now)
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

    def __init__(self, order: Order) -> None:
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


RESERVATIONS = Parameter(
    name="reservations",
    default=100,
    unit="units",
    meaning="most tasks and gangs that have a reservation at a time, the first in order",
    least=1,
)
_MU_ALEM = (
    "Mu'alem and Feitelson, Utilization, predictability, workloads, and user runtime estimates "
    "in scheduling the IBM SP2 with backfilling, TPDS 2001"
)
_HOW_MANY = {"none": 0, "easy": 1}  # reservations, by kind of backfill


def _backfilling(name: str, order: Order, backfill: str, *, idea: str, source: str) -> PolicyInfo:
    """Return the description of an order with a kind of backfill."""
    return PolicyInfo(
        name=name,
        idea=idea,
        source=source,
        parameters=(
            *(() if backfill in _HOW_MANY else (RESERVATIONS,)),
            MIGRATE,
            *PLACE,
        ),
        make=with_place(partial(_make_backfilling, name, order, backfill)),
        parts=_parts(order, backfill),
    )


def _make_backfilling(
    name: str, order: Order, backfill: str, *, reservations: float = 100, migrate: str = "never"
) -> PlacingPolicy:
    most = _HOW_MANY.get(backfill, int(reservations))
    return Backfilling(name, order, most=most, migrate=migrate == WHEN_CHEAPER)


def _parts(order: Order, backfill: str = "none") -> dict[str, str]:
    return {"order": order.name, "place": "first-fit", "backfill": backfill}


def _least_attained_service(*, threshold_gpu_s: float = 3250.0) -> PlacingPolicy:
    return PreemptingOrder(LeastAttainedService(threshold_gpu_s=threshold_gpu_s))


def _srtf() -> PlacingPolicy:
    return PreemptingOrder(ShortestRemaining())


_ALL = (
    _backfilling(
        "easy-backfill",
        Arrival(),
        "easy",
        idea="order of arrival, backfill behind one reservation; that of the first job that does "
        "not fit; later ones start where they do not delay it",
        source="Lifka, The ANL/IBM SP scheduling system, JSSPP 1995",
    ),
    _backfilling(
        "conservative-backfill",
        Arrival(),
        "conservative",
        idea="order of arrival, backfill behind all reservations; all jobs that do not fit have "
        "one, later ones start where they delay none",
        source=_MU_ALEM,
    ),
    PolicyInfo(
        name="least-attained-service",
        idea="two queues, by the GPU time that a job has had; the first precedes and preempts the "
        "second; order of arrival in each",
        source="Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, "
        "NSDI 2019",
        parameters=(
            Parameter(
                name="threshold_gpu_s",
                default=3250.0,
                unit="GPU s",
                meaning="attained service from which on a job is in the second queue",
                above=0.0,
            ),
            *PLACE,
        ),
        make=with_place(_least_attained_service),
        parts=_parts(LeastAttainedService()),
    ),
    PolicyInfo(
        name="srtf",
        idea="shortest remaining time first; the job with the least GPU time left by exact "
        "durations first; preempts; an oracle, for simulations alone",
        source="Schrage, A proof of the optimality of the shortest remaining processing time "
        "discipline, Operations Research 1968",
        parameters=PLACE,
        make=with_place(_srtf),
        parts=_parts(ShortestRemaining()),
        simulated_only=True,
    ),
    *(
        _backfilling(
            name,
            FairFinish(),
            backfill,
            idea=idea,
            source="Friedman and Henderson, Fairness and efficiency in web server protocols, "
            "SIGMETRICS 2003",
        )
        for name, backfill, idea in (
            (
                "fair-order",
                "none",
                (
                    "order in which fair sharing would end jobs; the first that does not fit "
                    "blocks all later ones"
                ),
            ),
            (
                "fair-easy-backfill",
                "easy",
                (
                    "as fair-order, backfill behind one reservation; that of the first job that "
                    "does not fit"
                ),
            ),
            (
                "fair-conservative-backfill",
                "conservative",
                (
                    "as fair-order, backfill behind all reservations; all jobs that do not fit "
                    "have one"
                ),
            ),
        )
    ),
)
INFOS: Mapping[str, PolicyInfo] = {info.name: info for info in _ALL}
"""The policies, by name."""
