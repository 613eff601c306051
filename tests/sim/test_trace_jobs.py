"""Jobs of a trace in a simulation: which can run, what they declare, and how they resume."""

from __future__ import annotations

from collections import UserList
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from headgate.model import Communication, Gpu, Job, Node, Pattern, Queue
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import Plan, Start, Steps, Stop
from headgate.sim import run as sim
from headgate.sim.estimated import Estimated
from headgate.sim.trace_jobs import TraceJobs, TraceModel
from headgate.state import Snapshot, TaskState
from headgate.traces import Trace


def history(*rows: tuple[float, float, int], **columns: Any) -> Trace:
    """Return a trace of (submission, duration, GPUs)."""
    submit_s, duration_s, gpus = zip(*rows, strict=True)
    texts = {name: np.array(values, object) for name, values in columns.items()}
    if "estimate_s" in columns:
        texts["estimate_s"] = np.array(columns["estimate_s"], float)
    return Trace(
        job_id=np.array([f"j{n}" for n in range(len(rows))], object),
        submit_s=np.array(submit_s, float),
        duration_s=np.array(duration_s, float),
        gpus=np.array(gpus),
        **texts,
    )


def test_jobs_on_several_gpus_communicate_as_the_model_says() -> None:
    ring = Communication(pattern=Pattern.RING, bytes_per_step=10, step_s=1.0)
    node = Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),) * 4)
    jobs = TraceJobs(
        history((0.0, 1.0, 1), (1.0, 1.0, 2), (2.0, 1.0, 8)),
        queues=(),
        nodes=(node, replace(node, id="b")),
        policy=FirstInFirstOut(),
        model=TraceModel(communication=ring),
    )
    assert [job.communication for _, job in jobs] == [None, ring, ring]


def trace_jobs(
    trace: Trace, estimated: Estimated = Estimated.LEARNT, queues: Sequence[Queue] = ()
) -> TraceJobs:
    node = Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),) * 4)
    model = TraceModel(estimated=estimated)
    policy = FirstInFirstOut()
    return TraceJobs(trace, queues=queues, nodes=(node,), policy=policy, model=model)


def jobs_of(jobs: TraceJobs) -> list[Job]:
    return [job for _, job in jobs]


class CountedNodes(UserList[Node]):
    """Nodes that count how often they are iterated."""

    iterations = 0

    def __iter__(self) -> Iterator[Node]:
        self.iterations += 1
        return iter(self.data)


def jobs_on_two_nodes(*gpus: int) -> tuple[TraceJobs, int]:
    """Return the jobs on two nodes of two GPUs, and how often these were iterated."""
    nodes = CountedNodes(
        Node(id=f"n{number}", rack="r", gpus=(Gpu(memory_bytes=1),) * 2) for number in range(2)
    )
    jobs = TraceJobs(
        history(*[(at, at, count) for at, count in enumerate(gpus)]),
        queues=[Queue(name="default", max_gpus=3)],
        nodes=nodes,
        policy=FirstInFirstOut(),
        model=TraceModel(),
    )
    return jobs, nodes.iterations


def test_jobs_that_can_never_run_are_counted_by_reason() -> None:
    jobs, _ = jobs_on_two_nodes(1, 5, 4, 3, 0, 4)
    assert [job.id for job in jobs_of(jobs)] == ["j0", "j3", "j4"]
    assert jobs.rejected == {"NothingFits": 1, "QueueTooSmall": 2}
    assert len(jobs) == 3


def test_nodes_are_searched_once_per_size_of_job() -> None:
    _, few = jobs_on_two_nodes(1, 2, 3)
    _, many = jobs_on_two_nodes(*[1, 2, 3] * 50)
    assert few == many > 0


class NewestFirst(FirstInFirstOut):
    """Runs the job that arrived last alone, on as many GPUs as it needs; preempts all others."""

    name = "newest-first"

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        states = snapshot.tasks.state.array()
        running = np.flatnonzero(np.isin(states, (TaskState.STARTING, TaskState.RUNNING)))
        newest = int(np.flatnonzero(states == TaskState.WAITING).max(initial=-1))
        if newest < 0 or (running > newest).any():
            return Plan()
        if len(running):
            return Plan(steps=Steps.of([Stop(int(task)) for task in running]))
        gpus = range(snapshot.tasks.gpus[newest])
        return Plan(steps=Steps.of([Start(newest, 0, tuple(gpus))]))


NESTED = ((0, 100, 2), (30, 20, 2), (40, 5, 2))


@pytest.mark.parametrize(
    ("resume_s", "ends", "lost_gpu_s"),
    [
        (None, [165, 65, 45], 2 * (30 + 10)),  # each begins again
        (0.0, [125, 55, 45], 0),
        (7.0, [139, 62, 45], 0),
    ],
)
def test_preempted_job_of_a_trace_resumes_as_modelled(
    resume_s: float | None, ends: list[float], lost_gpu_s: float
) -> None:
    policy = NewestFirst()
    model = TraceModel(resume_s=resume_s)
    simulation = sim.from_trace(history(*NESTED), policy, gpus=2, seed=0, model=model)
    outcome = sim.run(simulation, policy)
    assert outcome.jobs.ended_at.tolist() == ends
    assert outcome.figures["lost_gpu_s"] == lost_gpu_s
    assert outcome.figures["mean_wait_s"] == 0


def test_job_preempted_while_it_resumes_loses_that_time_alone() -> None:
    policy = NewestFirst()
    trace = history(*NESTED, (64, 1, 2))
    model = TraceModel(resume_s=7.0)
    outcome = sim.run(sim.from_trace(trace, policy, gpus=2, seed=0, model=model), policy)
    # the first job resumes from 62 s on, and again from 65 s on
    assert outcome.jobs.ended_at.tolist() == [65 + 7 + 70, 62, 45, 65]
    assert outcome.figures["lost_gpu_s"] == 2 * 2


def test_progress_is_saved_to_the_microsecond_at_uneven_times() -> None:
    policy = NewestFirst()
    trace = history((0.1, 1000.3, 1), (33.333333, 1.7, 1), (777.77, 0.123456, 1))
    model = TraceModel(resume_s=0.0)
    outcome = sim.run(sim.from_trace(trace, policy, gpus=1, seed=0, model=model), policy)
    expected_s = 0.1 + 1000.3 + 1.7 + 0.123456
    assert expected_s <= outcome.jobs.ended_at[0] <= expected_s + 2e-6


def test_jobs_carry_user_queue_and_kind_of_the_trace() -> None:
    trace = history(
        (0, 10, 1), (1, 10, 1), user=["ada", "bob"], queue=["q2", "q1"], kind=["bert", ""]
    )
    jobs = trace_jobs(trace)
    assert [(job.user, job.queue, job.runtime_class) for job in jobs_of(jobs)] == [
        ("ada", "q2", "bert"), ("bob", "q1", ""),
    ]  # fmt: skip
    assert jobs.queues == (Queue(name="q2"), Queue(name="q1"))


def test_trace_without_users_and_queues_is_one_user_in_the_default_queue() -> None:
    jobs = trace_jobs(history((0, 10, 1)))
    assert [(job.user, job.queue, job.runtime_class) for job in jobs_of(jobs)] == [
        ("user", "default", "")
    ]
    assert jobs.queues == (Queue(name="default"),)


def test_queue_that_is_given_keeps_its_ceiling() -> None:
    small = Queue(name="q1", weight=2.0, max_gpus=1)
    trace = history((0, 10, 2), (0, 10, 1), (0, 10, 2), queue=["q1", "q1", "q2"])
    jobs = trace_jobs(trace, queues=[small])
    assert jobs.queues == (small, Queue(name="q2"))
    assert (len(jobs), dict(jobs.rejected)) == (2, {"QueueTooSmall": 1})


@pytest.mark.parametrize(
    ("estimated", "expected"),
    [
        (Estimated.LEARNT, [None, None]),
        (Estimated.EXACT, [10.0, 20.0]),
        (Estimated.DECLARED, [60.0, 30.0]),
    ],
)
def test_jobs_declare_the_chosen_run_times(
    estimated: Estimated, expected: list[float | None]
) -> None:
    trace = history((0, 10, 1), (1, 20, 1), estimate_s=[60, 30])
    assert [job.estimated_s for job in jobs_of(trace_jobs(trace, estimated))] == expected


def test_groups_of_fluid_sharing_are_parts_or_else_users() -> None:
    rows = [(n, 10 + n, n + 1) for n in range(4)] + [(4, 1, 5)]  # the last one fits nowhere
    users = ["ada", "bob", "ada", "ada", "bob"]
    found = trace_jobs(history(*rows, user=users)).history()
    assert found.group.tolist() == [0, 1, 0, 0]
    assert found.compute_s.tolist() == [10, 11, 12, 13]
    assert found.gpus.tolist() == [1, 2, 3, 4]
    parts = ["x", "x", "y", "", "x"]
    assert trace_jobs(history(*rows, user=users, vc=parts)).history().group.tolist() == [0, 0, 1, 2]
    assert trace_jobs(history(*rows)).history().group.tolist() == [0, 0, 0, 0]


class Reserving(FirstInFirstOut):
    """Starts jobs in order of arrival; each one that waits has a reservation from 15 s on."""

    name = "reserving"
    starts_by = 15.0

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = super().decide(snapshot, rng)
        free = np.isnan(snapshot.memo("reserved_at"))
        started = {int(snapshot.tasks.job[task]) for task in plan.starts.task}
        new = [job for job in snapshot.waiting_jobs() if free[job] and job not in started]
        return Plan(steps=plan.steps, memo={"reserved_at": dict.fromkeys(new, self.starts_by)})


def test_reservations_of_a_policy_are_counted_after_its_jobs_were_archived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sim, "ARCHIVED_TOGETHER", 1)
    policy = Reserving()
    trace = history((0, 10, 1), (1, 10, 1), (2, 10, 1), (500, 1, 1))  # start at 0, 10, 20, 500
    outcome = sim.run(sim.from_trace(trace, policy, gpus=1, seed=0), policy)
    reserved_at = [np.nan, 15.0, 15.0, np.nan]
    assert np.array_equal(outcome.jobs.reserved_at, reserved_at, equal_nan=True)
    made = {"made": 2, "broken": 1, "mean_delay_s": 5.0}
    assert made.items() <= outcome.figures["reservations"].items()
