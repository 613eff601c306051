"""On any state and under any policy, `why` and `outlook` return values that are valid JSON.

Some states are explained here, any number of others by `make fuzz`.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.api.explanations import _outlook_view, _why_view
from headgate.app import POLICIES
from headgate.foresight.outlook import outlook
from headgate.foresight.why import why
from headgate.machine import apply
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted
from headgate.state import State, TaskState
from headgate.state.life import ENDED, HOLDING
from headgate.testing.digest import digest
from headgate.testing.random_worlds import random_state


def explained(name: str, seed: int) -> None:
    """Explain all jobs and tasks of a random state, under a policy."""
    policy = make_policy(POLICIES, name)
    snapshot = random_state(seed).freeze()
    before = digest(snapshot)
    now = snapshot.now + 5.0
    for job in range(len(snapshot.jobs.state)):
        for task in (None, *snapshot.tasks_of(job)):
            explanation = why(snapshot, policy, job, task, now)
            json.dumps(_why_view(explanation), allow_nan=False)
            if task is None:
                continue
            at = TaskState(snapshot.tasks.state[task])
            assert explanation.task_state == at.name.lower()
            assert (explanation.run is not None) == (at in HOLDING)
            waits = at in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING)
            assert (explanation.explanation.reason is not None) == waits
            if explanation.start is not None and explanation.start.at is not None:
                assert explanation.start.at >= now
                assert waits
            if at is not TaskState.WAITING:
                assert (explanation.cheapest, explanation.if_freed) == (None, None)
    found = outlook(snapshot, policy, now)
    json.dumps(_outlook_view(found), allow_nan=False)
    assert [job.job for job in found.jobs] == [
        snapshot.job(row).id
        for row in range(len(snapshot.jobs.state))
        if snapshot.jobs.state[row] not in ENDED
    ]
    assert digest(snapshot) == before


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=cases(3))
@given(seed=st.integers(0, 2**32 - 1))
def test_every_task_has_an_explanation_in_json(name: str, seed: int) -> None:
    explained(name, seed)


def test_gpu_held_in_part_is_not_free_for_a_task_that_needs_a_whole_one() -> None:
    state = State()
    state.set_queue(Queue(name="q"))
    state.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=10),)))
    tasks = (
        Task(demand=Demand(gpus=1, gpu_milli=500)),
        Task(demand=Demand(gpus=1, gpu_milli=400)),
        Task(demand=Demand(gpus=1, gpu_milli=200)),
        Task(),
    )
    job = Job(id="j", name="j", user="ada", queue="q", tasks=tasks)
    apply(state, JobSubmitted(at=0.0, job=job))
    state.launch(0, 0, (0,), 1)
    snapshot = state.freeze()
    policy = make_policy(POLICIES, "fifo")
    free = [why(snapshot, policy, 0, task, 0.0).cheapest_now for task in (1, 2, 3)]
    assert [None if place is None else place.node for place in free] == ["a", "a", None]
    state.launch(1, 0, (0,), 1)
    found = why(state.freeze(), policy, 0, 2, 0.0)
    assert found.cheapest_now is None
    assert found.cheapest is not None
    assert (found.cheapest.node, found.cheapest.held_by) == ("a", None)
