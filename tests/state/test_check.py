"""The laws of the state find what they are there to find: one planted fault each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.base.errors import InvariantBroken
from headgate.model import Gpu, Job, Node, Queue, Shard, Task
from headgate.state import JobState, State, TaskState, check
from headgate.state.line import Line
from headgate.testing.random_worlds import random_state


@pytest.fixture
def state() -> State:
    """Jobs 0 runs task 0 (2 GPUs) and task 1 (CPU), task 2 waits, 3 is blocked; job 1 is queued.

    Job 2 has finished with task 5. Node 0 is up with 3 GPUs, node 1 is down.
    """
    made = State()
    made.set_queue(Queue(name="q"))
    made.set_queue(Queue(name="r"))
    gpus = tuple(Gpu(memory_bytes=m) for m in (8, 8, 4))
    for name in ("a", "b"):
        made.add_node(Node(id=name, rack="r", gpus=gpus, cpus=3))
    made.remove_node(1)
    made.add_replica(made.shard(Shard(id="s", size_bytes=5)), 0)
    busy = (
        Task(gpus=2, gpu_memory_bytes=5), Task(gpus=0, cpus=2), Task(), Task(after=(0, 1)),
    )  # fmt: skip
    for number, tasks in enumerate((busy, (Task(),), (Task(),))):
        job = Job(id=f"j{number}", name="j", user="ada", queue="q", tasks=tasks)
        made.add_job(job)
    for job_row in (0, 2):
        made.move_job(job_row, JobState.ACTIVE)
    for task in (0, 1, 2, 5):
        made.move_task(task, TaskState.WAITING)
    made.move_task(3, TaskState.BLOCKED)
    made.launch(0, 0, (0, 1), attempt=1)
    made.launch(1, 0, (), attempt=1)
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


def waits_nowhere(state: State) -> None:
    state.first_waiting_job = 1


def one_more_waits(state: State) -> None:
    state.waiting_tasks += 1


def the_line_is_empty(state: State) -> None:
    state.lines[0] = Line()


FAULTS = [
    (put("gpus", "task", 0, -1), "GPUs know their holders"),
    (put("gpus", "task", 2, 2), "GPUs know their holders"),
    (put("gpus", "task", 4, -1), "GPUs know their holders"),
    (put("tasks", "held", 0, (0, 0)), "no GPU is held twice"),
    (put("tasks", "held", 0, (0,)), "as many GPUs as it needs"),
    (put("tasks", "held", 0, (0, 2)), "has the memory that the task needs"),
    (put("tasks", "held", 0, None), "holds something exactly while it runs"),
    (put("tasks", "held", 5, (2,)), "holds something exactly while it runs"),
    (put("tasks", "node", 0, 1), "holds GPUs of a node that is up"),
    (put("nodes", "free_gpus", 0, 2), "free GPUs are counted"),
    (put("nodes", "free_gpus", 1, 3), "free GPUs are counted"),
    (put("nodes", "free_cpus", 0, 3), "free CPU slots are counted"),
    (put("tasks", "cpus", 1, 9), "free CPU slots are counted"),
    (put("jobs", "waiting", 0, 2), "jobs count 'waiting' rightly"),
    (put("jobs", "waiting_cpu", 0, 1), "jobs count 'waiting_cpu' rightly"),
    (put("jobs", "running", 0, 0), "jobs count 'running' rightly"),
    (put("jobs", "running_cpu", 0, 0), "jobs count 'running_cpu' rightly"),
    (put("jobs", "unfinished", 2, 1), "jobs count 'unfinished' rightly"),
    (put("jobs", "held_gpus", 0, 1), "jobs count 'held_gpus' rightly"),
    (one_more_waits, "waiting tasks are counted"),
    (waits_nowhere, "no job before the first waiting one waits"),
    (put("queues", "in_flight", 0, 2), "jobs in flight are counted"),
    (put("queues", "held_gpus", 1, 2), "queues count their GPUs"),
    (put("queues", "queued", 0, 0), "queued jobs are counted"),
    (the_line_is_empty, "queued jobs stand in order of arrival"),
    (put("tasks", "blockers", 3, 1), "blockers are counted"),
    (put("shards", "replicas", 0, (0, 1)), "replicas lie on nodes that are up"),
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
    with pytest.raises(InvariantBroken, match="without predecessors is not blocked"):
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
    state.lines[0].remove(1)
    state.queues.queued[0] = 0
    with pytest.raises(InvariantBroken, match="a job has finished exactly when all its tasks have"):
        check(state)


def test_a_job_that_is_stopping_nothing_is_found(state: State) -> None:
    state.move_job(1, JobState.ACTIVE)
    state.move_job(1, JobState.STOPPING)
    state.move_task(4, TaskState.CANCELLED)
    with pytest.raises(InvariantBroken, match="a stopping job waits for a run to end"):
        check(state)


def test_a_broken_law_tells_the_story_of_what_broke_it(state: State) -> None:
    state.now = 4.0
    with pytest.raises(InvariantBroken) as broken:
        state.move_task(0, TaskState.HELD)
    assert str(broken.value) == (
        "task cannot go from STARTING to HELD\n"
        "task j0/0:\n"
        "  at 0.0 s: held -> waiting\n"
        "  at 0.0 s: waiting -> starting"
    )


def test_a_gpu_given_twice_and_a_node_taken_down_under_a_task_raise_with_a_story(
    state: State,
) -> None:
    with pytest.raises(InvariantBroken, match=r"GPU 1 of a is taken\ntask j0/2:"):
        state.launch(2, 0, (1,), attempt=1)
    with pytest.raises(InvariantBroken, match=r"a lost node still has a task\ntask j0/0:"):
        state.remove_node(0)
    with pytest.raises(InvariantBroken, match=r"node a joined while it is up\nnode a:"):
        state.add_node(state.node(0))


def test_random_states_keep_every_law() -> None:
    for seed in range(100):
        check(random_state(seed))
