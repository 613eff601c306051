"""Jobs submitted under `fifo` that a policy of single whole GPUs does not support."""

from __future__ import annotations

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.ports import make_policy
from headgate.protocol import Plan
from headgate.protocol.reasons import PolicyRefuses, Reason
from headgate.state import JobState, State, TaskState, check

NAMES = [name for name in POLICIES if name != "fifo"]
PART, WIDE, REDUCE = Task(gpu_milli=250), Task(gpus=2), Task(gpus=0)


def waiting(*tasks: Task, gang: bool = False) -> State:
    """A node of two GPUs, and a job with these tasks, all WAITING."""
    state = State()
    state.set_queue(Queue(name="default"))
    gpus = (Gpu(memory_bytes=1), Gpu(memory_bytes=1))
    state.add_node(Node(id="n", rack="r", gpus=gpus, cpus=4))
    job = Job(id="a", name="a", user="ada", queue="default", tasks=tasks, gang=gang)
    row = state.add_job(job)
    state.move_job(row, JobState.ACTIVE)
    for task in state.tasks_of(row):
        state.move_task(task, TaskState.WAITING)
    return state


def decide(name: str, state: State) -> Plan:
    check(state)
    return make_policy(POLICIES, name).decide(state.freeze(), stream(1))


def reasons(plan: Plan) -> list[Reason]:
    return [refusal.reason for refusal in plan.refusals]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("tasks", "gang", "what"),
    [
        ((PART, PART), False, "tasks with part of a GPU"),
        ((Task(), PART), False, "tasks with part of a GPU"),
        ((Task(), WIDE), False, "tasks of several GPUs"),
        ((Task(), Task()), True, "gangs"),
        ((REDUCE, REDUCE), True, "gangs"),
    ],
)
def test_unsupported_job_waits_with_the_reason(
    name: str, tasks: tuple[Task, ...], gang: bool, what: str
) -> None:
    plan = decide(name, waiting(*tasks, gang=gang))
    assert list(plan.starts) == []
    assert reasons(plan) == [PolicyRefuses(policy=name, what=what)]


@pytest.mark.parametrize("name", NAMES)
def test_task_without_a_gpu_starts_when_no_unsupported_task_of_its_job_is_left(name: str) -> None:
    state = waiting(WIDE, REDUCE)
    state.launch(0, 0, (0, 1), attempt=1)
    state.move_task(0, TaskState.RUNNING)
    state.release(0, TaskState.FINISHED)
    plan = decide(name, state)
    assert [start.task for start in plan.starts] == [1]
    assert reasons(plan) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tasks", [(PART,), (WIDE,)])
def test_unsupported_job_is_refused_at_submission(name: str, tasks: tuple[Task, ...]) -> None:
    job = Job(id="a", name="a", user="ada", queue="default", tasks=tasks)
    assert isinstance(make_policy(POLICIES, name).refuses(job), PolicyRefuses)
