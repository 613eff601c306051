"""Every policy accepts every kind of job and places it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import make_policy
from headgate.protocol import Plan
from headgate.state import State, TaskState, check

PART, WIDE, REDUCE = (
    Task(demand=Demand(gpus=1, gpu_milli=250)),
    Task(demand=Demand(gpus=2)),
    Task(demand=Demand(cpus_milli=1000)),
)
EACH = pytest.mark.parametrize("name", POLICIES)


def job_of(*tasks: Task, gang: bool = False) -> Job:
    return Job(id="a", name="a", user="ada", queue="default", tasks=tasks, gang=gang)


def waiting(job: Job) -> State:
    """A node of two GPUs, and a job whose tasks are all WAITING."""
    state = State()
    state.set_queue(Queue(name="default"))
    gpus = (Gpu(memory_bytes=1), Gpu(memory_bytes=1))
    state.add_node(Node(id="n", rack="r", gpus=gpus, cpus=4))
    activate(state, state.add_job(job))
    return state


def decide(name: str, state: State) -> Plan:
    check(state)
    return make_policy(POLICIES, name).decide(state.freeze(), stream(1))


KINDS = {
    "parts": job_of(PART, PART),
    "whole and part": job_of(Task(), PART),
    "several GPUs": job_of(WIDE, REDUCE),
    "gang": job_of(Task(), Task(), gang=True),
    "mixed gang": job_of(Task(), REDUCE, gang=True),
    "gang without GPUs": job_of(REDUCE, REDUCE, gang=True),
}


@EACH
def test_jobs_of_every_kind_are_accepted_and_placed(name: str) -> None:
    for kind, job in KINDS.items():
        assert make_policy(POLICIES, name).refuses(job) is None, kind
        plan = decide(name, waiting(job))
        assert sorted(start.task for start in plan.starts) == [*range(len(job.tasks))], kind


@EACH
def test_units_that_do_not_fit_together_wait_with_a_reason(name: str) -> None:
    plan = decide(name, waiting(job_of(WIDE, WIDE, PART)))
    assert [start.task for start in plan.starts] == [0]
    assert {job for refusal in plan.refusals for job in refusal.jobs} == {0}


@EACH
def test_task_without_a_gpu_starts_when_no_wide_task_of_its_job_is_left(name: str) -> None:
    state = waiting(job_of(WIDE, REDUCE))
    state.launch(0, 0, (0, 1), attempt=1)
    state.move_task(0, TaskState.RUNNING)
    state.release(0, TaskState.FINISHED)
    plan = decide(name, state)
    assert [start.task for start in plan.starts] == [1]
    assert [*plan.refusals] == []


H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def two_models(*jobs: Job) -> State:
    """A node with an H100 and an A100, one with two A100s, and jobs whose tasks are all WAITING."""
    state = State()
    state.set_queue(Queue(name="default"))
    for node, models in (("n", (H100, A100)), ("m", (A100, A100))):
        gpus = tuple(Gpu(memory_bytes=1, model=model) for model in models)
        state.add_node(Node(id=node, rack="r", gpus=gpus, cpus=4))
    for job in jobs:
        activate(state, state.add_job(job))
    return state


@EACH
def test_tasks_start_on_the_models_and_nodes_that_they_name_only(name: str) -> None:
    tasks = (
        Task(demand=Demand(cpus_milli=1000, exclude=("n",))),
        Task(demand=Demand(gpus=1, nodes=("m",), gpu_models=("a100",))),
        Task(demand=Demand(gpus=1, gpu_models=("H100", "L4"))),
        Task(demand=Demand(gpus=1, gpu_models=("H100", "L4"))),
    )
    state = two_models(job_of(*tasks))
    plan = decide(name, state)
    placed = {start.task: (start.node, start.gpus) for start in plan.starts}
    assert (placed.pop(0), placed.pop(1)[0], placed) == ((1, ()), 1, {2: (0, (0,))})
    reasons = {refusal.reason.cause() for refusal in plan.refusals}
    assert "0 of 1 H100 or L4 GPUs free, 1 needed" in reasons


@EACH
def test_gang_waits_for_the_model_that_it_names(name: str) -> None:
    wanted = Task(demand=Demand(gpus=1, gpu_models=("A100",), exclude=("n",)))
    state = two_models(job_of(wanted, wanted, wanted, gang=True))
    assert state.ledger.gpu_room(0).tolist() == [0, 0, 1, 1]
    plan = decide(name, state)
    assert not plan.starts
    reasons = {refusal.reason.cause() for refusal in plan.refusals}
    assert "2 of 3 needed A100 GPUs are free" in reasons


@pytest.mark.parametrize(
    "name", ["headgate", "fs", "fsp", "fsu", "gs", "gsp", "gsd", "capacity", "fair"]
)
def test_share_of_a_job_counts_only_gpus_that_it_can_use(name: str) -> None:
    """One GPU is all that the first job can use; so the other one has a right to all others."""
    picky = replace(
        job_of(*[Task(demand=Demand(gpus=1, gpu_models=("H100",)))] * 4), id="b", user="bob"
    )
    plan = decide(name, two_models(picky, job_of(*[Task()] * 4)))
    placed = {start.task: (start.node, start.gpus) for start in plan.starts}
    assert placed[0] == (0, (0,))
    assert len(placed) == 4
