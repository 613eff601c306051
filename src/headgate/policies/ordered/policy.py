"""Policies composed of an order, a kind of backfill, and a placer."""

from __future__ import annotations

import numpy as np

from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.cpu_tasks import place_cpu_gangs, place_cpu_tasks
from headgate.planning.estimates import Estimates
from headgate.planning.orders import ORDERS, Order
from headgate.planning.shares import Ints
from headgate.policies.ordered.backfill import Backfill
from headgate.policies.ordered.refusals import Explained
from headgate.ports import Policy, PolicyInfo
from headgate.protocol import Lazy, OnDemand, Plan, Reason
from headgate.state import Scratch, Snapshot


class Ordered:
    """A policy that serves jobs in an order; units that do not fit get up to `most` reservations.

    With `most` 0 the first unit that does not fit blocks all later ones.
    """

    def __init__(self, name: str, order: Order, *, most: int) -> None:
        self.name, self._order, self._most = name, order, most

    def refuses(self, job: Job) -> Reason | None:
        """Return None: all jobs are supported."""
        del job
        return None

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Start what may start; O(waiting jobs + GPUs x log), and that for each reservation."""
        del rng
        scratch = Scratch(snapshot)
        place_cpu_tasks(scratch)
        place_cpu_gangs(scratch)
        estimates = Estimates(snapshot)
        jobs = self._order.rank(snapshot, _waiting(snapshot), estimates)
        served = Backfill(scratch, estimates, most=self._most)
        served.serve(jobs)
        explained = Explained(snapshot, jobs, estimates, most=self._most)
        return Plan(
            steps=scratch.steps(),
            memo=served.memo(),
            refusals=OnDemand(explained.refusals),
            reservations=Lazy(explained.reservations),
        )


def _waiting(snapshot: Snapshot) -> Ints:
    """Return the rows of jobs with WAITING tasks on GPUs."""
    first, end = snapshot.first_waiting_job, len(snapshot.jobs.state)
    return np.flatnonzero(snapshot.jobs.waiting.span(first, end)) + first


def _make() -> Policy:
    return Ordered("easy-backfill", ORDERS["arrival"], most=1)


EASY = PolicyInfo(
    name="easy-backfill",
    idea="order of arrival; the first job that waits has a reservation, later ones fill up to it",
    source="Lifka, The ANL/IBM SP scheduling system, JSSPP 1995",
    parameters=(),
    make=_make,
)
