"""GPU tasks that also need CPUs: a GPU on a node without them does not hold a task back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.policies.offers.greedy import GreedyDelay
from headgate.ports import make_policy
from headgate.protocol import Plan
from headgate.protocol.reasons import Short, Shortage
from headgate.state import State, check

NEAR, FAR = 0, 1
IN_ORDER = {name for name, info in POLICIES.items() if info.parts} | {"new-capacity"}


def waiting(tasks: int, *, near: tuple[int, int], far: tuple[int, int]) -> State:
    """Two nodes of (GPUs, CPUs), and a job whose tasks need 2 CPUs and read a shard on NEAR."""
    state = State()
    state.set_queue(Queue(name="default"))
    for name, (gpus, cpus) in (("near", near), ("far", far)):
        devices = tuple(Gpu(memory_bytes=1) for _ in range(gpus))
        state.add_node(Node(id=name, rack=name, gpus=devices, cpus=cpus))
    state.add_replica(state.shard(Shard(id="d", size_bytes=1000)), NEAR)
    many = (Task(reads=("d",), demand=Demand(gpus=1, cpus_milli=2000)),) * tasks
    row = state.add_job(Job(id="a", name="a", user="ada", queue="default", tasks=many))
    activate(state, row)
    check(state)
    return state


def decide(name: str, state: State) -> Plan:
    return make_policy(POLICIES, name).decide(state.freeze(), stream(1))


@pytest.mark.parametrize("name", POLICIES)
def test_task_starts_on_another_node_when_the_nearest_gpu_has_too_few_cpus(name: str) -> None:
    plan = decide(name, waiting(1, near=(1, 1), far=(1, 2)))
    assert [(start.task, start.node) for start in plan.starts] == [(0, FAR)]
    assert list(plan.refusals) == []


# `fs` and `gsd` leave GPUs idle by choice.
@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("fs", "gsd")])
def test_tasks_start_where_gpus_and_cpus_are_left_and_the_others_wait_with_one_reason(
    name: str,
) -> None:
    plan = decide(name, waiting(6, near=(3, 2), far=(3, 4)))
    assert sorted(start.node for start in plan.starts) == [NEAR, FAR, FAR]
    reasons = [
        replace(refusal.reason, reserved=None) if isinstance(refusal.reason, Short) else None
        for refusal in plan.refusals
    ]
    assert reasons.count(Shortage(resource="cpus", needed=2000, most_free=0)) == 1


@pytest.mark.parametrize("name", [n for n in POLICIES if n not in {"fsp", "gsp", *IN_ORDER}])
def test_tasks_that_lack_a_resource_leave_no_gpu_idle(name: str) -> None:
    """Job `a`, which comes first, needs licenses; there are none."""
    state = State()
    state.set_queue(Queue(name="default"))
    state.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),) * 2, cpus=2))
    licensed = (Task(demand=Demand(gpus=1, custom=(("license", 1000),))),) * 5
    for job, tasks in (("a", licensed), ("b", (Task(),) * 3)):
        row = state.add_job(Job(id=job, name=job, user=job, queue="default", tasks=tasks))
        activate(state, row)
    plan = decide(name, state)
    assert [state.tasks.job[start.task] for start in plan.starts] == [1, 1]
    assert {job for refusal in plan.refusals for job in refusal.jobs} == {0, 1}


def test_skip_counter_is_not_reset_by_a_task_that_does_not_start() -> None:
    state = waiting(2, near=(1, 0), far=(1, 0))
    state.write_memo({"skips": {"a": 3}})
    plan = GreedyDelay(threshold1=5.0, threshold2=10.0).decide(state.freeze(), stream(1))
    assert list(plan.starts) == []
    assert plan.memo == {"skips": {0: 4}}
