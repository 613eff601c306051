"""Why a job waits: the binding reason, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.rng import Random
from headgate.engine import Engine
from headgate.foresight.explain import explain
from headgate.foresight.outlook import outlook
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import JobCancelled, JobSubmitted, Plan, QueueChanged, Reason, Refusal
from headgate.protocol.order_reasons import WaitsForTasks
from headgate.protocol.reasons import (
    BehindHead,
    JobsInFlightLimit,
    NoFittingNode,
    NoFreeGpu,
    Shortage,
    Undecided,
)
from headgate.state import JobState, Snapshot, State, TaskState

FULL = NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=1)


@pytest.fixture
def state() -> State:
    """Jobs 0 to 4, of two tasks each, the second after the first; 0 and 1 are in flight."""
    made = State()
    made.set_queue(Queue(name="q", max_jobs_in_flight=2))
    made.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),)))
    made.now = 10.0
    for number in range(5):
        tasks = (Task(), Task(after=(0,)))
        made.add_job(Job(id=f"j{number}", name="j", user="ada", queue="q", tasks=tasks))
    for job in (0, 1):
        made.move_job(job, JobState.ACTIVE)
        made.move_task(2 * job, TaskState.WAITING)
        made.move_task(2 * job + 1, TaskState.BLOCKED)
    return made


def test_a_job_that_arrived_after_the_last_round_is_undecided(state: State) -> None:
    explanation = explain(state, 0, now=25.0)
    assert (explanation.reason, explanation.waits_s, explanation.state) == (
        Undecided(),
        15.0,
        "active",
    )
    assert explanation.counts == {"blocked": 1, "waiting": 1}


def test_refusal_that_names_a_job_precedes_the_one_for_all_others(state: State) -> None:
    behind = BehindHead(head="j0")
    state.refusals = (Refusal(reason=behind), Refusal(reason=FULL, jobs=(0,)))
    assert explain(state, 0, now=10.0).reason == FULL
    assert explain(state, 1, now=10.0).reason == behind


def test_job_with_blocked_tasks_only_waits_for_its_runs(state: State) -> None:
    state.refusals = (Refusal(reason=FULL),)
    state.launch(0, 0, (0,), attempt=1)
    explanation = explain(state, 0, now=12.0)
    assert explanation.reason == WaitsForTasks(unfinished=1)
    assert explanation.counts == {"blocked": 1, "starting": 1}


def test_reason_of_a_queued_job_has_the_number_of_jobs_ahead(state: State) -> None:
    limit = JobsInFlightLimit(queue="q", in_flight=2, max_jobs_in_flight=2, ahead=2)
    assert explain(state.freeze(), 4, now=10.0).reason == limit


def test_job_with_runs_only_has_no_reason(state: State) -> None:
    state.launch(0, 0, (0,), attempt=1)
    state.release(0, TaskState.FINISHED)
    state.tasks.blockers[1] = 0
    state.move_task(1, TaskState.WAITING)
    state.launch(1, 0, (0,), attempt=1)
    explanation = explain(state, 0, now=99.0)
    assert (explanation.reason, explanation.waits_s) == (None, 0.0)


def test_ended_job_has_a_message(state: State) -> None:
    for task in (4, 5):
        state.move_task(task, TaskState.CANCELLED)
    state.move_job(2, JobState.CANCELLED, "cancelled by ada")
    explanation = explain(state, 2, now=99.0)
    assert (explanation.state, explanation.reason, explanation.message) == (
        "cancelled",
        None,
        "cancelled by ada",
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=9))
def test_number_of_jobs_ahead_equals_the_order_of_the_engine(jobs: list[tuple[int, int]]) -> None:
    """Against the engine: jobs (user, priority) through a queue with one in flight."""
    engine = Engine()
    engine.handle(QueueChanged(at=0.0, queue=Queue(name="q", max_jobs_in_flight=1)))
    for number, (user, priority) in enumerate(jobs):
        job = Job(
            id=f"j{number}", name="j", user=f"u{user}", queue="q", tasks=(Task(),),
            priority=priority,
        )  # fmt: skip
        engine.handle(JobSubmitted(at=0.0, job=job))
    state = engine.state
    reported: dict[int, int] = {}
    for row in range(1, len(jobs)):
        reason = explain(state, row, now=0.0).reason
        assert isinstance(reason, JobsInFlightLimit)
        reported[row] = reason.ahead
    came: list[int] = []
    while len(came) < len(jobs):
        (active,) = (r for r in range(len(jobs)) if state.jobs.state[r] == JobState.ACTIVE)
        came.append(active)
        engine.handle(JobCancelled(at=0.0, job=f"j{active}", by="root"))
    assert came[0] == 0
    assert [row for row, _ in sorted(reported.items(), key=lambda item: item[1])] == came[1:]
    assert sorted(reported.values()) == list(range(len(jobs) - 1))


def test_reason_of_a_task_is_its_own(state: State) -> None:
    cpus = Shortage(resource="cpus", needed=1000, most_free=0)
    state.refusals = (Refusal(reason=cpus, jobs=(0,)), Refusal(reason=FULL, jobs=(0,)))
    assert explain(state, 0, now=10.0).reason == cpus
    assert explain(state, 0, now=10.0, task=0).reason == FULL
    assert explain(state, 0, now=10.0, task=1).reason == WaitsForTasks(unfinished=1)
    state.launch(0, 0, (0,), attempt=1)
    explanation = explain(state, 0, now=12.0, task=0)
    assert (explanation.reason, explanation.waits_s) == (None, 0.0)


@pytest.mark.parametrize(
    "other",
    [
        Shortage(resource="cpus", needed=1000, most_free=0),
        Shortage(resource="memory", needed=64, most_free=12),
        NoFittingNode(need="a CPU and 64 B of memory"),
    ],
)
def test_task_without_a_gpu_does_not_wait_for_gpus(other: Reason) -> None:
    state = State()
    state.set_queue(Queue(name="q"))
    state.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),), cpus=4))
    tasks = (Task(), Task(demand=Demand(cpus_milli=1000, memory_bytes=64)))
    state.add_job(Job(id="j", name="j", user="u", queue="q", tasks=tasks))
    state.move_job(0, JobState.ACTIVE)
    for task in (0, 1):
        state.move_task(task, TaskState.WAITING)
    state.refusals = (Refusal(reason=FULL, jobs=(0,)), Refusal(reason=other, jobs=(0,)))
    assert explain(state, 0, now=0.0, task=0).reason == FULL
    assert explain(state, 0, now=0.0, task=1).reason == other


def test_outlook_reads_the_refusals_once_for_all_jobs(state: State) -> None:
    read: list[int] = []

    class Counted(tuple[Refusal, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Refusal]:
            read.append(1)
            return super().__iter__()

    class Refuses(FirstInFirstOut):
        def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
            refusals = [Refusal(reason=FULL, jobs=(0,)), Refusal(reason=FULL, jobs=(1,))]
            return Plan(refusals=Counted(refusals))

    found = outlook(state.freeze(), Refuses(), now=10.0)
    assert [job.reason for job in found.jobs[:2]] == [FULL, FULL]
    assert [type(job.reason) for job in found.jobs[2:]] == [JobsInFlightLimit] * 3
    assert len(read) <= 2
