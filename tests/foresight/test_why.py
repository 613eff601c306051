"""On any state and under any policy, `why` and `outlook` return values that are valid JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.explanations import _outlook_view, _why_view
from headgate.app import POLICIES
from headgate.foresight.outlook import outlook
from headgate.foresight.why import why
from headgate.ports import make_policy
from headgate.state import TaskState
from headgate.state.life import ENDED, HOLDING
from headgate.testing.digest import digest
from headgate.testing.random_worlds import random_state


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_task_has_an_explanation_in_json(name: str, seed: int) -> None:
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
