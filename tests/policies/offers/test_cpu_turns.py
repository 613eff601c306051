"""Jobs without GPUs under `capacity` and `fair`: CPUs by queue, user and job, as GPUs are."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import make_policy
from headgate.state import State

CPU = Demand(gpus=0, cpus_milli=1000)


def cluster(*queues: Queue, cpus: float = 12, gpus: int = 0) -> State:
    state = State()
    for queue in queues:
        state.set_queue(queue)
    state.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),) * gpus, cpus=cpus))
    return state


def add(
    state: State, name: str, count: int, *, user: str = "u", queue: str = "q", gang: bool = False
) -> None:
    tasks = (Task(demand=CPU),) * count
    activate(
        state,
        state.add_job(Job(id=name, name=name, user=user, queue=queue, tasks=tasks, gang=gang)),
    )


def started(state: State, policy: str) -> Counter[str]:
    snapshot = state.freeze()
    plan = make_policy(POLICIES, policy).decide(snapshot, stream(1))
    return Counter(snapshot.job(snapshot.tasks.job[start.task]).id for start in plan.starts)


@pytest.mark.parametrize("policy", ["capacity", "fair"])
def test_queues_get_cpus_by_weight_and_users_of_a_queue_equally(policy: str) -> None:
    state = cluster(Queue(name="q", weight=2.0), Queue(name="other"))
    add(state, "ann", 20, user="ann")
    add(state, "bob", 20, user="bob")
    add(state, "cid", 20, user="cid", queue="other")
    assert started(state, policy) == {"ann": 4, "bob": 4, "cid": 4}


def test_first_job_of_a_user_goes_first_under_capacity_all_equally_under_fair() -> None:
    state = cluster(Queue(name="q"))
    add(state, "first", 20)
    add(state, "second", 20)
    assert started(state, "capacity") == {"first": 12}
    assert started(state, "fair") == {"first": 6, "second": 6}


@pytest.mark.parametrize("policy", ["capacity", "fair"])
def test_queue_below_its_guarantee_goes_first(policy: str) -> None:
    state = cluster(Queue(name="q"), Queue(name="own", guaranteed=(("cpus", 8000),)))
    add(state, "any", 20)
    add(state, "own", 20, user="v", queue="own")
    assert started(state, policy) == {"own": 8, "any": 4}


@pytest.mark.parametrize("policy", ["capacity", "fair"])
def test_gang_starts_whole_in_its_turn_or_not_at_all(policy: str) -> None:
    state = cluster(Queue(name="q"))
    add(state, "gang", 8, user="ann", gang=True)
    add(state, "large", 13, user="bob", gang=True)
    add(state, "rest", 20, user="cid")
    assert started(state, policy) == {"gang": 8, "rest": 4}


@pytest.mark.parametrize("policy", ["capacity", "fair"])
def test_limit_of_a_queue_holds_for_cpus(policy: str) -> None:
    state = cluster(Queue(name="q", limit=(("cpus", 3000),)), Queue(name="other"))
    add(state, "few", 20)
    add(state, "more", 20, queue="other")
    assert started(state, policy) == {"few": 3, "more": 9}
