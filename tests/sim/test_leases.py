"""Timelines of leases: slots of one user's executor, and the tasks of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.model import Demand, Items, Task
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted

Stage = Any  # of conftest.py

FAIR_OR_NOT = sorted(set(POLICIES) - {"srtf", "least-attained-service"})


def executor(stage: Stage, name: str, user: str, slots: int, **needs: Any) -> JobSubmitted:
    """Return that a user's executor was opened: slots that never run out of items."""
    slot = Task(demand=Demand.of(**needs), compute_s=1000)
    facts: JobSubmitted = stage.job(name, *[slot] * slots)
    return replace(facts, job=replace(facts.job, user=user, items=Items()))


def of(user: str, facts: JobSubmitted) -> JobSubmitted:
    return replace(facts, job=replace(facts.job, user=user))


@pytest.mark.parametrize("policy", FAIR_OR_NOT)
def test_second_user_gets_its_share_from_an_executor_that_gets_it_back(
    stage: Stage, policy: str
) -> None:
    seen = stage.play(
        stage.node("a1", gpus=4),
        executor(stage, "calls", "ada", 4),
        of("bob", stage.job("j", Task(compute_s=5), Task(compute_s=5), at=10.0)),
        policy=make_policy(POLICIES, policy),
    )
    assert [line for line in seen.lines if 0 < line[0] < 1000] == [
        (10.0, "stops", "calls/3@a1"), (10.0, "stops", "calls/2@a1"),
        (10.0, "starts", "j/0@a1"), (10.0, "starts", "j/1@a1"),
        (15.0, "ends", "j/0@a1"), (15.0, "ends", "j/1@a1"),
        (15.0, "starts", "calls/2@a1"), (15.0, "starts", "calls/3@a1"),
    ]  # fmt: skip
