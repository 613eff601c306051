"""Slots that are reclaimed: laws on random states under every policy, and small worlds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases import cases

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.foresight.explain import explain
from headgate.foresight.whatif import WhatIf
from headgate.machine import apply
from headgate.machine.admission import admit
from headgate.model import Demand, Gpu, Items, Job, Node, Queue, Task
from headgate.planning.rounds.reclaim import PENDING, with_reclaimed
from headgate.planning.shares.owners import Owners
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Policy, make_policy
from headgate.protocol import (
    Event,
    JobSubmitted,
    NodeJoined,
    Plan,
    PlanAdmitted,
    PlanReady,
    PlanRejected,
    QueueChanged,
    Reclaimed,
    Resize,
    TaskFinished,
    TaskStopped,
)
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
            return replace(found, tasks=(slot,) * rng.randint(4, 12), items=Items(), priority=0)

    state = random_state(seed, lambda job: policy.refuses(job) is None, every_kind=True)
    filled = WhatIf(state.freeze(), make_policy(POLICIES, "gs"), 0.0)
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
    for seed in range(cases(20)):
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
    assert resized > 1 or name in ("fsp", "gsp", "headgate", *BY_ORDER), resized


@pytest.mark.parametrize("name", sorted({*POLICIES} - {*BY_ORDER}))
def test_no_slot_is_stopped_twice_for_a_world_that_stays_and_all_units_served_start(
    name: str,
) -> None:
    """All runs continue but those that are stopped."""
    for seed in range(cases(6)):
        policy = make_policy(POLICIES, name)
        world = WhatIf(with_leases(seed, policy).freeze(), policy, 0.0)
        stopped: list[list[str]] = []
        for _ in range(10):
            before, plan = world.state.freeze(), world.round()
            stopped.append([before.task_id(t) for r in plan.resizes for t in r.first])
        assert not any(stopped[-3:]), seed
        if PENDING in world.state.memos:
            assert np.nansum(world.state.memo(PENDING)) == 0, seed
        slots = [slot for some in stopped for slot in some]
        assert len(set(slots)) == len(slots), (seed, slots)


def test_without_leases_a_plan_stays_the_same() -> None:
    for seed in range(30):
        snapshot = random_state(seed, every_kind=True).freeze()
        plan = FirstInFirstOut().decide(snapshot, stream(seed))
        assert with_reclaimed(snapshot, plan) is plan


def world(*jobs: Job, nodes: tuple[Node, ...], runs: str = "") -> State:
    """Return a state in which the job `runs`, submitted before the others, holds what it can."""
    state = WhatIf(State().freeze(), FirstInFirstOut(), 0.0)
    facts: list[Event] = [QueueChanged(at=0, queue=Queue(name="q"))]
    facts += [NodeJoined(at=0, node=node) for node in nodes]
    facts += [JobSubmitted(at=0, job=job) for job in jobs if job.id == runs]
    for fact in facts:
        apply(state.state, fact)
    state.round()
    for job in jobs:
        if job.id != runs:
            apply(state.state, JobSubmitted(at=0, job=job))
    return state.state


def node(name: str, *memory: int, cpus: int = 4) -> Node:
    return Node(id=name, rack="r", gpus=tuple(Gpu(memory_bytes=m) for m in memory), cpus=cpus)


def job(user: str, count: int, *, items: Items | None = None, **needs: Any) -> Job:
    tasks = (Task(demand=Demand.of(**needs)),) * count
    return Job(id=f"{user}-1", name=user, user=user, queue="q", tasks=tasks, items=items)


def reclaimed(state: State) -> Plan:
    return with_reclaimed(state.freeze(), FirstInFirstOut().decide(state.freeze(), stream(0)))


def test_slots_without_gpus_are_reclaimed_by_cpus() -> None:
    slots, others = job("ada", 4, items=Items(), gpus=0), job("bob", 3, gpus=0, cpus=1.5)
    (resize,) = reclaimed(world(slots, others, nodes=(node("a"),), runs="ada-1")).resizes
    assert resize == (0, 0, 2, Reclaimed(job="bob-1", queue="q", user="bob"), (3, 2))
    assert str(resize.reason) == (
        "Reclaimed(reclaimed for bob-1 of bob (queue q), below its fair share; starts again when "
        "resources are free, or its own share is larger)"
    )


def test_slot_on_the_gpu_that_is_large_enough_is_stopped_on_the_node_with_fewest_stops() -> None:
    slots = job("ada", 4, items=Items())
    others = job("bob", 1, gpu_memory_bytes=20)
    state = world(slots, others, nodes=(node("a", 10, 10), node("b", 20, 10)), runs="ada-1")
    (resize,) = reclaimed(state).resizes
    (task,) = resize.first
    assert (resize.node, resize.slots) == (1, 1)
    (index,) = state.held_gpus(task)
    assert state.gpu_memory_bytes_of(1)[index] == 20
    ready = PlanReady(at=0, seen=state.version, plan=reclaimed(state))
    verdict = admit(state, state.freeze(), ready)
    assert isinstance(verdict, PlanAdmitted)
    assert [stop.runs for stop in verdict.stops] == [(state.run_id(task),)]
    assert verdict.stops[0].job == "bob-1"


@pytest.mark.parametrize(
    "others",
    [
        job("bob", 1, gpus=3),  # more than its share
        job("bob", 1, gpus=2, cpus=9.0),  # more than the node has
        job("ada", 1),  # of the same owner
    ],
)
def test_no_slot_is_stopped_for_what_would_not_start(others: Job) -> None:
    slots = job("ada", 4, items=Items())
    slots = replace(slots, id="slots")
    state = world(slots, others, nodes=(node("a", 10, 10, 10, 10),), runs="slots")
    assert reclaimed(state).resizes == ()


def test_runs_of_a_job_without_items_are_never_stopped() -> None:
    tasks, others = job("ada", 4), job("bob", 2)
    state = world(tasks, others, nodes=(node("a", 10, 10, 10, 10),), runs="ada-1")
    assert reclaimed(state).resizes == ()


def test_queue_below_its_weight_gets_its_share_of_slots() -> None:
    slots, others = job("ada", 4, items=Items()), replace(job("bob", 4), queue="heavy")
    state = world(slots, nodes=(node("a", 10, 10, 10, 10),), runs="ada-1")
    apply(state, QueueChanged(at=0, queue=Queue(name="heavy", weight=3.0)))
    apply(state, JobSubmitted(at=0, job=others))
    (resize,) = reclaimed(state).resizes
    assert resize.slots == 1


def test_slot_that_has_ended_since_the_snapshot_counts_as_stopped() -> None:
    slots, others = job("ada", 4, items=Items()), job("bob", 1)
    state = world(slots, others, nodes=(node("a", 10, 10, 10, 10),), runs="ada-1")
    seen, plan = state.freeze(), reclaimed(state)
    assert plan.resizes[0].slots == 3
    apply(state, TaskFinished(at=0, run=state.run_id(0), output_bytes=0))
    verdict = admit(state, seen, PlanReady(at=0, seen=seen.version, plan=plan))
    assert isinstance(verdict, PlanAdmitted)
    assert not verdict.stops


@pytest.mark.parametrize("resize", [(1, 0, 0), (0, 5, 0), (0, 0, -1), (9, 0, 0), (-1, 0, 0)])
def test_resize_of_what_is_no_lease_rejects_the_plan(resize: tuple[int, int, int]) -> None:
    slots, others = job("ada", 2, items=Items()), job("bob", 2)
    state = world(slots, others, nodes=(node("a", 10, 10, 10, 10),), runs="ada-1")
    plan = Plan(resizes=(Resize(*resize, Reclaimed(job="j", queue="q", user="bob")),))
    verdict = admit(state, state.freeze(), PlanReady(at=0, seen=state.version, plan=plan))
    assert isinstance(verdict, PlanRejected)
    assert "resize" in verdict.message or "lease" in verdict.message


def test_unit_starts_before_the_slot_that_was_stopped_for_it_which_has_that_reason() -> None:
    slots, others = job("ada", 4, items=Items()), job("bob", 1)
    state = world(slots, others, nodes=(node("a", 10, 10, 10, 10),), runs="ada-1")
    ready = PlanReady(at=0, seen=state.version, plan=reclaimed(state))
    verdict = admit(state, state.freeze(), ready)
    assert isinstance(verdict, PlanAdmitted)
    assert verdict.memo == {PENDING: {"bob-1": 1.0}}
    apply(state, verdict)
    assert reclaimed(state).resizes == ()  # the slot is being stopped
    apply(state, TaskStopped(at=0, run=state.run_id(3)))
    preferred = FirstInFirstOut().decide(state.freeze(), stream(0))
    assert [start.task for start in preferred.starts] == [3]
    plan = reclaimed(state)
    assert [start.task for start in plan.starts] == [4]
    assert plan.memo == {PENDING: {1: 0.0}}
    state.refusals = plan.refusals
    assert isinstance(explain(state, 0, 0.0).reason, Reclaimed)
