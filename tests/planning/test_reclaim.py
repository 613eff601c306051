"""Slots that are reclaimed: laws on random states under every policy, and small worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.foresight.whatif import WhatIf
from headgate.machine import apply
from headgate.machine.admission import admit
from headgate.model import Items, Job
from headgate.planning.owners import Owners
from headgate.planning.reclaim import PENDING, with_reclaimed
from headgate.policies.fifo import FirstInFirstOut
from headgate.ports import Policy, make_policy
from headgate.protocol import JobSubmitted, Plan, PlanAdmitted, PlanReady
from headgate.state import Snapshot, State
from headgate.testing.random_worlds import random_job, random_state

BY_ORDER = ("srtf", "least-attained-service")


def with_leases(seed: int, policy: Policy) -> State:
    """Return a random state with leases, on nodes that they fill, and jobs that come after them."""
    rng = stream(seed, "leases")

    def job(name: str, *, is_lease: bool = False) -> Job:
        while True:
            found = random_job(rng, name, every_kind=True)
            if policy.refuses(found) is not None or (is_lease and found.gang):
                continue
            if not is_lease:
                return found
            slot = replace(found.tasks[0], reads=(), after=())
            return replace(found, tasks=(slot,) * rng.randint(1, 8), items=Items(), priority=0)

    state = random_state(seed, lambda job: policy.refuses(job) is None, every_kind=True)
    filled = WhatIf(state.freeze(), FirstInFirstOut(), 0.0)
    for number in range(3):
        at = filled.state.now
        apply(filled.state, JobSubmitted(at=at, job=job(f"calls{number}", is_lease=True)))
    filled.round()
    for number in range(4):
        apply(filled.state, JobSubmitted(at=filled.state.now, job=job(f"after{number}")))
    return filled.state


def rounds(name: str) -> list[tuple[int, State, Snapshot, Plan, Plan]]:
    """Return of each random state the plan of a policy, and that with what is reclaimed."""
    found = []
    for seed in range(300):
        policy = make_policy(POLICIES, name)
        state = with_leases(seed, policy)
        snapshot = state.freeze()
        plan = policy.decide(snapshot, stream(seed))
        gpus = name not in BY_ORDER
        found.append((seed, state, snapshot, plan, with_reclaimed(snapshot, plan, gpus=gpus)))
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_reclaiming_is_admitted_takes_slots_alone_and_leaves_every_owner_its_share(
    name: str,
) -> None:
    resized = 0
    for seed, state, snapshot, before, plan in rounds(name):
        resized += len(plan.resizes)
        ready = PlanReady(at=state.now, seen=snapshot.version, plan=plan)
        verdict = admit(state, snapshot, ready)
        assert isinstance(verdict, PlanAdmitted), (seed, verdict)
        assert verdict.dropped == 0, seed
        own = {snapshot.run_id(task) for task in before.stops.task.tolist()}
        stops = [run for stop in verdict.stops for run in stop.runs if run not in own]
        rows = [row for run in stops if (row := snapshot.run_row(run)) is not None]
        assert len(rows) == len(stops)
        owners = Owners(snapshot, plan.starts.task)
        losers = [(snapshot.tasks.job[row], snapshot.tasks.demand[row]) for row in rows]
        dropped = set(before.starts.task.tolist()) - set(plan.starts.task.tolist())
        for job, demand in losers:
            assert snapshot.job(job).items is not None, seed
            owners.add(job, owners.kind(demand), -owners.amount(demand))
        losers += [(snapshot.tasks.job[t], snapshot.tasks.demand[t]) for t in sorted(dropped)]
        for job, demand in losers:
            assert owners.spare(job, owners.kind(demand)) >= 0, (seed, job)
    assert resized > 5 or name in ("fsp", "gsp", "headgate", *BY_ORDER), resized


@pytest.mark.parametrize("name", sorted({*POLICIES} - {*BY_ORDER}))
def test_no_slot_is_stopped_twice_for_a_world_that_stays_and_all_units_served_start(
    name: str,
) -> None:
    """All runs go on but those that are stopped: rounds come to an end."""
    for seed in range(150):
        policy = make_policy(POLICIES, name)
        world = WhatIf(with_leases(seed, policy).freeze(), policy, 0.0)
        stopped: list[str] = []
        for _ in range(12):
            before = world.state.freeze()
            plan = world.round()
            stopped += [before.task_id(task) for resize in plan.resizes for task in resize.first]
            if not plan.resizes and not len(plan.starts) and not world.stopped:
                break
        else:
            raise AssertionError(f"{seed}: no end")
        if PENDING in world.state.memos:
            assert np.nansum(world.state.memo(PENDING)) == 0, seed
        assert len(set(stopped)) == len(stopped), (seed, stopped)


def test_without_leases_a_plan_stays_the_same() -> None:
    for seed in range(30):
        snapshot = random_state(seed, every_kind=True).freeze()
        plan = FirstInFirstOut().decide(snapshot, stream(seed))
        assert with_reclaimed(snapshot, plan) is plan
