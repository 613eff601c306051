"""Explanations and plans over REST: they never stand in the scheduler's way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.api.client import Client
from headgate.base.errors import SpecError
from headgate.protocol import Plan, Refusal
from headgate.protocol.reasons import PolicyBroke
from headgate.state import Snapshot

MANY = "{tasks: {run: x, count: 6}}"


class Slow:
    """A policy that takes its time: it places nothing, once it is let through."""

    name = "slow"

    def __init__(self) -> None:
        self.asked, self.let = threading.Event(), threading.Event()

    def decide(self, snapshot: Snapshot, rng: object) -> Plan:
        self.asked.set()
        assert self.let.wait(60)
        return Plan()


def test_while_a_plan_is_made_everything_goes_on(
    client: Client, controller: Any, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit(MANY)
    slow, usual = Slow(), controller.policy
    monkeypatch.setattr(controller, "policy", lambda text: slow if text == "slow" else usual(text))
    answers: list[Any] = []

    def ask() -> None:
        with Client(socket) as other:
            answers.append(other.plan(policy="slow"))

    asking = threading.Thread(target=ask)
    asking.start()
    assert slow.asked.wait(60)
    second = client.submit(MANY)
    controller.end("job-1", 0, b"")
    assert client.job("job-1")["tasks"]["finished"] == 1
    assert client.job(second)["reason"]
    assert answers == []
    slow.let.set()
    asking.join(60)
    (told,) = answers
    assert [job["job"] for job in told["what_if"]["jobs"]] == ["job-1"], "as it was when asked"


def test_a_task_that_is_not_there_and_a_policy_that_is_not_known(client: Client) -> None:
    job = client.submit(MANY)
    with pytest.raises(SpecError) as wrong:
        client.explanation(job, 6)
    assert wrong.value.code == "not_found"
    with pytest.raises(SpecError) as wrong:
        client.plan(policy="best")
    assert wrong.value.code == "unknown_policy"
    with pytest.raises(SpecError) as wrong:
        client.plan(policy="fs,alpha1=0")
    assert wrong.value.code == "bad_parameter"


def test_what_a_broken_policy_leaves_is_told_without_asking_it_again(
    client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    job = client.submit(MANY)
    controller.engine.state.refusals = (Refusal(reason=PolicyBroke(message="it fell over")),)
    slow = Slow()
    monkeypatch.setattr(controller, "policy", lambda text: slow)
    told = client.explanation(job)
    assert told["reason"]["code"] == "PolicyBroke"
    assert (told["start"], told["if_freed"]) == (None, None)
    assert not slow.asked.is_set()
