"""Compaction and thawing: what the jobs that are kept refer to stays as it was."""

from __future__ import annotations

import pytest

from headgate.model import Gpu, Job, Node, Queue, Task, result_id
from headgate.state import JobState, State, TaskState, check, compact, thaw


@pytest.fixture
def state() -> State:
    """Job a has finished with a result on node 0 and is archived; job b, which reads it, waits."""
    made = State()
    made.set_queue(Queue(name="q"))
    made.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=8),)))
    for name, task in (("a", Task()), ("b", Task(reads=(result_id("a", 0),)))):
        made.add_job(Job(id=name, name=name, user="ada", queue="q", tasks=(task,)))
        row = made.names.job_rows[name]
        made.move_job(row, JobState.ACTIVE)
        made.move_task(row, TaskState.WAITING)
    made.launch(0, 0, (0,), attempt=1)
    made.release(0, TaskState.FINISHED)
    made.set_replica(made.keep_result(0, (5,))[0], 0)
    made.move_job(0, JobState.FINISHED)
    made.archive(0)
    return made


def test_result_of_an_archived_job_is_kept_while_another_job_reads_it(state: State) -> None:
    reads = state.planned_reads(1, 0)
    compact(state)
    check(state)
    assert [job.id for job in state.names.jobs] == ["b"]
    assert state.planned_reads(0, 0) == reads


def test_result_of_an_archived_job_that_no_job_reads_is_dropped(state: State) -> None:
    state.move_task(1, TaskState.CANCELLED)
    state.move_job(1, JobState.STOPPING)
    state.move_job(1, JobState.CANCELLED)
    state.archive(1)
    compact(state)
    check(state)
    assert (state.names.jobs, state.names.shards, len(state.shards.size_bytes)) == ([], [], 0)


def test_state_is_thawed_while_a_job_reads_one_part_of_a_result_that_is_still_missing() -> None:
    made = State()
    made.set_queue(Queue(name="q"))
    for name, task in (("a", Task(parts=2)), ("b", Task(reads=(result_id("a", 0, 0),)))):
        made.add_job(Job(id=name, name=name, user="ada", queue="q", tasks=(task,)))
    assert thaw(made.freeze()).results == made.results == {}
