"""The laws of orders of jobs, for each of them, on random states."""

from __future__ import annotations

import inspect
import pickle

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.rng import stream
from headgate.planning.shares import orders
from headgate.planning.shares.orders import (
    Arrival,
    FairFinish,
    JobOrder,
    LeastAttainedService,
    ShortestRemaining,
)
from headgate.state import JobState, State
from headgate.testing.random_worlds import random_state

SEEDS = range(60)


def every() -> tuple[JobOrder, ...]:
    """Return a fresh order of each kind."""
    return (
        Arrival(), FairFinish(), LeastAttainedService(threshold_gpu_s=6.0), ShortestRemaining(),
    )  # fmt: skip


def active(state: State) -> Ints:
    return np.flatnonzero(state.jobs.state.array() == JobState.ACTIVE)


def test_rank_has_each_job_once_and_of_some_jobs_in_the_order_of_all() -> None:
    for seed in SEEDS:
        state = random_state(seed, every_kind=True)
        snapshot, jobs, rng = state.freeze(), active(state), stream(seed, "some jobs")
        some = np.array([job for job in jobs.tolist() if rng.random() < 0.6], np.int64)
        for order in every():
            ranked = order.rank(snapshot, jobs).tolist()
            assert sorted(ranked) == jobs.tolist(), (seed, order.name)
            left = [job for job in ranked if job in some]
            assert order.rank(snapshot, some).tolist() == left, (seed, order.name)


def test_equal_snapshots_have_equal_ranks_whatever_was_ranked_before() -> None:
    used = every()
    for seed in SEEDS:
        state = random_state(seed, every_kind=True)
        snapshot, jobs = state.freeze(), active(state)
        copy = pickle.loads(pickle.dumps(snapshot))
        for order, fresh in zip(used, every(), strict=True):
            ranked = order.rank(snapshot, jobs).tolist()
            assert ranked == fresh.rank(copy, jobs).tolist(), (seed, order.name)


def test_rank_by_attained_service_stays_until_the_order_says_that_it_changes() -> None:
    """Without an event."""
    changed = 0
    for seed in SEEDS:
        state = random_state(seed, every_kind=True)
        jobs, order = active(state), LeastAttainedService(threshold_gpu_s=40.0)
        held = state.jobs.held_gpus_milli.array()[jobs]
        now = state.freeze()
        at = order.changes_at(now, jobs, held)
        assert at is None or at > state.now
        ranked = order.rank(now, jobs).tolist()
        for later in (state.now + 5.0, state.now + 20.0) if at is None else (at - 0.01,):
            state.now = max(later, state.now)
            assert order.rank(state.freeze(), jobs).tolist() == ranked, seed
        if at is not None:
            state.now = at + 0.01
            changed += order.rank(state.freeze(), jobs).tolist() != ranked
    assert changed > 0


def test_every_order_is_under_the_laws() -> None:
    classes = {
        each
        for _, each in inspect.getmembers(orders, inspect.isclass)
        if each.__module__ == orders.__name__ and hasattr(each, "rank") and each is not JobOrder
    }
    assert {type(order) for order in every()} == classes
