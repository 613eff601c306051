"""Each invariant of the state finds a planted violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.errors import InvariantBroken
from headgate.model import CPUS, MEMORY, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.protocol import NodeReported, Outside
from headgate.state import JobState, State, TaskState, check, moves
from headgate.state.actual_book import record_report
from headgate.state.queued_jobs import QueuedJobs
from headgate.state.tables import GPU_FREE, GPU_IN_PART
from headgate.testing.random_worlds import random_state


@pytest.fixture
def state() -> State:
    """Jobs 0 runs task 0 (2 GPUs) and task 1 (CPU), task 2 waits, 3 is blocked; job 1 is queued.

    Job 2 has finished with task 5; job 3, in queue 1, runs task 6 on a quarter of GPU 3 and on half
    an fpga. Node 0 is up with 4 GPUs, node 1 is down. Grants 0, 1 and 2 are those of tasks 0, 1 and
    6, grant 3 is released.
    """
    made = State()
    made.set_queue(Queue(name="q"))
    made.set_queue(Queue(name="r"))
    gpus = tuple(Gpu(memory_bytes=m) for m in (8, 8, 4, 8))
    for name in ("a", "b"):
        node = Node(id=name, rack="r", gpus=gpus, cpus=3, memory_bytes=64, custom=(("fpga", 2000),))
        made.add_node(node)
    made.remove_node(1)
    made.add_replica(made.shard(Shard(id="s", size_bytes=5)), 0)
    busy = (
        Task(demand=Demand(gpus=2, gpu_memory_bytes=5)), Task(demand=Demand(cpus_milli=2000)),
        Task(), Task(after=(0, 1)),
    )  # fmt: skip
    for number, tasks in enumerate((busy, (Task(),), (Task(),))):
        job = Job(id=f"j{number}", name="j", user="ada", queue="q", tasks=tasks)
        made.add_job(job)
    part = Task(demand=Demand(gpus=1, gpu_milli=250, memory_bytes=16, custom=(("fpga", 500),)))
    made.add_job(Job(id="j3", name="j", user="ada", queue="r", tasks=(part,)))
    for job_row in (0, 2, 3):
        made.move_job(job_row, JobState.ACTIVE)
    for task in (0, 1, 2, 5, 6):
        made.move_task(task, TaskState.WAITING)
    made.move_task(3, TaskState.BLOCKED)
    made.launch(0, 0, (0, 1), attempt=1)
    made.launch(1, 0, (), attempt=1)
    made.launch(6, 0, (3,), attempt=1)
    made.launch(5, 0, (2,), attempt=1)
    made.release(5, TaskState.FINISHED)
    made.move_job(2, JobState.FINISHED)
    check(made)
    return made


def put(table: str, column: str, row: int, value: object) -> Callable[[State], None]:
    def plant(state: State) -> None:
        getattr(getattr(state, table), column)[row] = value

    plant.__name__ = f"{table}.{column}[{row}]={value}"
    return plant


def free_is(node: int, kind: int, amount: int) -> Callable[[State], None]:
    def plant(state: State) -> None:
        amounts = [*state.nodes.free[node]]
        amounts[kind] = amount
        state.nodes.free[node] = amounts

    plant.__name__ = f"nodes.free[{node}, {kind}]={amount}"
    return plant


def needs_nine_cpus(state: State) -> None:
    """Task 1 and its grant name a demand that the node was never asked for."""
    state.tasks.demand[1] = state.grants.demand[1] = state.names.demand(Demand(cpus_milli=9000))


def holds_nine_cpus(state: State) -> None:
    """The same, and the node's books agree."""
    needs_nine_cpus(state)
    free_is(0, CPUS, 3000 - 9000)(state)


def two_share_one_grant(state: State) -> None:
    state.tasks.grant[1] = 0


def grants_change_places(state: State) -> None:
    state.tasks.grant[0], state.tasks.grant[1] = 1, 0


def waits_nowhere(state: State) -> None:
    state.first_waiting_job = 1


def one_more_waits(state: State) -> None:
    state.waiting_tasks += 1


def no_queued_job_is_listed(state: State) -> None:
    state.queued_jobs[0] = QueuedJobs()


def node_uses_less_than_nothing(state: State) -> None:
    record_report(state, 0, NodeReported(at=1, node="n0", cpus_milli=-1, memory_bytes=0))


def gpu_uses_less_than_nothing(state: State) -> None:
    record_report(state, 0, NodeReported(at=1, node="n0", cpus_milli=0, memory_bytes=0))
    state.gpus.utilisation_milli[0] = -2


def others_use_less_than_nothing(state: State) -> None:
    outside = Outside(cpus_milli=-1)
    event = NodeReported(at=1, node="n0", cpus_milli=0, memory_bytes=0, outside=outside)
    record_report(state, 0, event)


def job_is(job: int, **fields: Any) -> Callable[[State], None]:
    def plant(state: State) -> None:
        state.names.jobs[job] = replace(state.names.jobs[job], **fields)

    plant.__name__ = f"job {job} is {fields}"
    return plant


def queued_job_is_unknown_to_the_one_before(state: State) -> None:
    job_is(1, after=("j0",))(state)
    state.queued_jobs[0] = QueuedJobs()


FAULTS = [
    (job_is(0, max_running=2), "at most `max_running` tasks are in flight"),
    (job_is(1, after=("j0",)), "queued jobs are in order of arrival"),
    (job_is(3, after=("j0",)), "jobs in flight come after jobs that have finished"),
    (queued_job_is_unknown_to_the_one_before, "awaited jobs know it"),
    (put("gpus", "task", 0, -1), "GPUs know their holders"),
    (put("gpus", "task", 2, 2), "GPUs know their holders"),
    (put("gpus", "task", 4, -1), "GPUs know their holders"),
    (put("gpus", "task", 3, 6), "GPUs know their holders"),
    (put("gpus", "task", 3, GPU_FREE), "GPUs know their holders"),
    (put("gpus", "task", 2, GPU_IN_PART), "GPUs know their holders"),
    (put("grants", "gpus", 0, (0, 0)), "no GPU is held twice"),
    (put("grants", "gpus", 0, (0, 3)), "no GPU is held twice"),
    (put("grants", "gpus", 2, (1,)), "no GPU is held twice"),
    (put("grants", "gpus", 2, (2,)), "GPUs know their holders"),
    (put("grants", "gpus", 0, (0,)), "as many GPUs as it needs"),
    (put("grants", "gpus", 1, (2,)), "as many GPUs as it needs"),
    (put("grants", "gpus", 0, (0, 2)), "has the memory that the task needs"),
    (put("gpus", "free_milli", 0, 1), "free shares of GPUs are counted"),
    (put("gpus", "free_milli", 2, 999), "free shares of GPUs are counted"),
    (put("gpus", "free_milli", 3, 1000), "free shares of GPUs are counted"),
    (put("gpus", "free_milli", 4, 1000), "free shares of GPUs are counted"),
    (put("gpus", "free_bytes", 0, 0), "free memory of GPUs is counted"),
    (put("gpus", "free_bytes", 3, 5), "free memory of GPUs is counted"),
    (put("gpus", "free_bytes", 4, 8), "free memory of GPUs is counted"),
    (put("tasks", "grant", 0, -1), "holds something exactly while it runs"),
    (put("tasks", "grant", 5, 3), "holds something exactly while it runs"),
    (put("grants", "task", 3, 5), "each grant is one task's"),
    (put("grants", "task", 1, -1), "each grant is one task's"),
    (put("grants", "task", 1, 2), "a grant is of its task"),
    (put("grants", "node", 1, 1), "a grant is of its task"),
    (put("grants", "demand", 1, 0), "a grant is of its task"),
    (put("tasks", "demand", 1, 0), "a grant is of its task"),
    (two_share_one_grant, "a grant is of its task"),
    (grants_change_places, "a grant is of its task"),
    (put("tasks", "node", 0, 1), "holds something of a node that is up"),
    (put("nodes", "free_gpus", 0, 2), "free GPUs are counted"),
    (put("nodes", "free_gpus", 1, 3), "free GPUs are counted"),
    (free_is(0, CPUS, 3000), "free cpus is counted"),
    (free_is(1, CPUS, 3000), "free cpus is counted"),
    (free_is(0, MEMORY, 64), "free memory is counted"),
    (free_is(0, 2, 2000), "free fpga is counted"),
    (needs_nine_cpus, "free cpus is counted"),
    (holds_nine_cpus, "no cpus is held twice"),
    (put("jobs", "waiting", 0, 2), "jobs count 'waiting' correctly"),
    (put("jobs", "waiting_cpu", 0, 1), "jobs count 'waiting_cpu' correctly"),
    (put("jobs", "running", 0, 0), "jobs count 'running' correctly"),
    (put("jobs", "running_cpu", 0, 0), "jobs count 'running_cpu' correctly"),
    (put("jobs", "unfinished", 2, 1), "jobs count 'unfinished' correctly"),
    (put("jobs", "held_gpus_milli", 0, 1000), "jobs count 'held_gpus_milli' correctly"),
    (put("jobs", "held_gpus_milli", 3, 1000), "jobs count 'held_gpus_milli' correctly"),
    (one_more_waits, "waiting tasks are counted"),
    (waits_nowhere, "no job before the first waiting one waits"),
    (put("queues", "in_flight", 0, 2), "jobs in flight are counted"),
    (put("queues", "held_gpus_milli", 1, 2000), "queues count their GPUs"),
    (put("queues", "queued", 0, 0), "queued jobs are counted"),
    (no_queued_job_is_listed, "queued jobs are in order of arrival"),
    (put("tasks", "blockers", 3, 1), "blockers are counted"),
    (put("shards", "replicas", 0, (0, 1)), "replicas are on nodes that are up"),
    (put("shards", "away", 0, (0, 1)), "masked copies are on nodes that are down"),
    (put("jobs", "archived", 0, 1), "only ended jobs are archived"),
    (put("jobs", "archived", 2, 1), "archived rows are counted"),
    (put("nodes", "total", 0, (3000, 64, 1000)), "nodes have the fpga they joined with"),
    (put("nodes", "reported_at", 1, 5.0), "a node that is down has no report"),
    (put("nodes", "actual", 0, (1,)), "nothing is used of a node without a report"),
    (node_uses_less_than_nothing, "what is used is not negative"),
    (put("gpus", "actual_bytes", 0, 5), "GPUs of nodes without a report have none"),
    (gpu_uses_less_than_nothing, "what is used of a GPU is not negative"),
    (put("nodes", "outside", 0, (1000,)), "free cpus is counted"),
    (put("gpus", "outside_bytes", 3, 1), "free memory of GPUs is counted"),
    (put("gpus", "outside_bytes", 0, 1), "GPUs of nodes without a report are not used outside"),
    (others_use_less_than_nothing, "what is used outside is not negative"),
    (put("tasks", "over_bytes", 5, 1), "only runs use more than they hold"),
    (put("tasks", "over_gpu_bytes", 6, -1), "only runs use more than they hold"),
]


@pytest.mark.parametrize(("plant", "law"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_a_planted_fault_is_found(state: State, plant: Callable[[State], None], law: str) -> None:
    plant(state)
    with pytest.raises(InvariantBroken, match=law):
        check(state)


def test_a_task_that_waits_though_another_must_finish_first_is_found(state: State) -> None:
    state.move_task(3, TaskState.WAITING)
    with pytest.raises(InvariantBroken, match="blocked exactly when something blocks"):
        check(state)


def test_a_task_that_is_blocked_by_nothing_is_found(state: State) -> None:
    state.move_task(2, TaskState.BLOCKED)
    with pytest.raises(InvariantBroken, match="blocked exactly when something blocks"):
        check(state)


def test_a_task_that_waits_while_its_job_is_held_back_is_found(state: State) -> None:
    state.move_task(4, TaskState.WAITING)
    with pytest.raises(InvariantBroken, match="only tasks of jobs in flight wait"):
        check(state)


def test_a_job_that_finished_though_a_task_runs_is_found(state: State) -> None:
    for task in (2, 3):
        state.move_task(task, TaskState.CANCELLED)
    state.move_job(0, JobState.FINISHED)
    with pytest.raises(InvariantBroken, match="jobs that have ended or not begun run nothing"):
        check(state)


def test_a_job_that_finished_before_its_tasks_is_found(state: State) -> None:
    state.jobs.state[1] = JobState.FINISHED
    state.queued_jobs[0].remove(1)
    state.queues.queued[0] = 0
    with pytest.raises(InvariantBroken, match="a job has finished exactly when all its tasks have"):
        check(state)


def test_a_job_that_is_stopping_nothing_is_found(state: State) -> None:
    state.move_job(1, JobState.ACTIVE)
    state.move_job(1, JobState.STOPPING)
    state.move_task(4, TaskState.CANCELLED)
    with pytest.raises(InvariantBroken, match="a stopping job waits for a run to end"):
        check(state)


def test_violated_invariant_is_reported_with_the_history_of_the_object(state: State) -> None:
    state.now = 4.0
    with pytest.raises(InvariantBroken) as broken:
        state.move_task(0, TaskState.HELD)
    assert str(broken.value) == (
        "task cannot go from STARTING to HELD\n"
        "task j0/0:\n"
        "  at 0.0 s: held -> waiting\n"
        "  at 0.0 s: waiting -> starting"
    )


def test_double_grant_and_removal_of_a_used_node_raise_with_a_history(
    state: State,
) -> None:
    with pytest.raises(InvariantBroken, match=r"GPU 1 of a is not free\ntask j0/2:"):
        state.launch(2, 0, (1,), attempt=1)
    with pytest.raises(
        InvariantBroken, match=r"node a is removed while runs hold some of it\nnode a:"
    ):
        state.remove_node(0)
    with pytest.raises(InvariantBroken, match=r"node a joined while it is up\nnode a:"):
        state.add_node(state.node(0))


def test_random_states_keep_every_invariant() -> None:
    for seed in range(100):
        check(random_state(seed))


@pytest.fixture
def moving() -> State:
    """A gang of tasks 0 and 1, stopped to move: task 0 from GPU 0 to GPU 2, task 1 stays on GPU 1.

    The run of task 0 has ended. GPU 3 is free.
    """
    made = State()
    made.set_queue(Queue(name="q"))
    made.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=8),) * 4, cpus=4))
    made.add_job(Job(id="g", name="g", user="u", queue="q", tasks=(Task(),) * 2, gang=True))
    made.move_job(0, JobState.ACTIVE)
    for task in (0, 1):
        made.move_task(task, TaskState.WAITING)
        made.launch(task, 0, (task,), attempt=1)
    for task, gpu in enumerate((2, 1)):
        moves.hold_target(made, task, 0, (gpu,))
        made.move_task(task, TaskState.STOPPING)
    check(made)
    moves.vacate(made, 0)
    check(made)
    return made


def all_runs_have_ended(state: State) -> None:
    moves.vacate(state, 1)


MOVE_FAULTS = [
    (put("tasks", "target", 1, -1), "a gang moves as a whole"),
    (put("tasks", "target", 0, 1), "only a run that is stopped has a target"),
    (all_runs_have_ended, "a gang waits for the ends of its runs"),
    (put("grants", "purpose", 1, 1), "only a target elsewhere is for a move"),
    (put("grants", "purpose", 2, 0), "a unit that moves has a target elsewhere"),
    (put("jobs", "state", 0, JobState.STOPPING), "only jobs in flight move"),
    (put("gpus", "withheld", 1, 1), "no task moves to GPUs that other programs use"),
]


@pytest.mark.parametrize(("plant", "law"), MOVE_FAULTS, ids=[f.__name__ for f, _ in MOVE_FAULTS])
def test_a_planted_fault_of_a_move_is_found(
    moving: State, plant: Callable[[State], None], law: str
) -> None:
    plant(moving)
    with pytest.raises(InvariantBroken, match=law):
        check(moving)
