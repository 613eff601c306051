"""Explanations and plans over REST: they never delay the scheduler."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.api.client import Client
from headgate.base.errors import HeadgateError, SpecError
from headgate.protocol import Plan, Refusal
from headgate.protocol.reasons import PolicyBroke
from headgate.state import Snapshot

MANY = "{tasks: {run: x, count: 6}}"


class Slow:
    """A policy whose decision blocks until `released`, and places no task."""

    name = "slow"

    def __init__(self) -> None:
        self.called, self.released = threading.Event(), threading.Event()

    def decide(self, snapshot: Snapshot, rng: object) -> Plan:
        self.called.set()
        assert self.released.wait(60)
        return Plan()


def test_requests_and_events_continue_while_a_plan_is_computed(
    client: Client, controller: Any, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit(MANY)
    slow, usual = Slow(), controller.policy
    monkeypatch.setattr(controller, "policy", lambda text: slow if text == "slow" else usual(text))
    responses: list[Any] = []

    def request() -> None:
        with Client(socket) as other:
            responses.append(other.plan(policy="slow"))

    requesting = threading.Thread(target=request)
    requesting.start()
    assert slow.called.wait(60)
    second = client.submit(MANY)
    controller.end("job-1", 0, b"")
    assert client.job("job-1")["tasks"]["finished"] == 1
    assert client.job(second)["reason"]
    assert responses == []
    slow.released.set()
    requesting.join(60)
    (view,) = responses
    assert [job["job"] for job in view["what_if"]["jobs"]] == ["job-1"], "the state at the request"


def test_an_explanation_by_a_policy_that_hangs_ends_and_delays_no_other(
    client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        job = client.submit(MANY)
    slow, usual = Slow(), controller.policy
    monkeypatch.setattr("headgate.api.deps.MOST_S", 0.0)
    monkeypatch.setattr(controller, "policy", lambda text: slow)
    with pytest.raises(HeadgateError, match="the policy did not answer within 0 s") as failed:
        client.why(job)
    assert failed.value.code == "timeout"
    monkeypatch.setattr("headgate.api.deps.MOST_S", 60.0)
    monkeypatch.setattr(controller, "policy", usual)
    assert client.why(job)["job"] == job
    slow.released.set()


def test_an_explanation_says_that_another_policy_decides(client: Client, controller: Any) -> None:
    job = client.submit(MANY)
    assert client.why(job)["stand_in"] is None
    controller.policy_name, controller.stand_in = "headgate", "fifo"
    found = client.why(job)
    assert (found["policy"], found["stand_in"]) == ("headgate", "fifo")


def test_an_unknown_task_policy_or_parameter_is_rejected(client: Client) -> None:
    job = client.submit(MANY)
    with pytest.raises(SpecError) as wrong:
        client.why(job, 6)
    assert wrong.value.code == "not_found"
    with pytest.raises(SpecError) as wrong:
        client.plan(policy="best")
    assert wrong.value.code == "unknown_policy"
    with pytest.raises(SpecError) as wrong:
        client.plan(policy="fs,alpha1=0")
    assert wrong.value.code == "bad_parameter"


def test_a_failed_policy_is_explained_without_another_decision(
    client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    job = client.submit(MANY)
    controller.engine.state.version += 1  # a snapshot of it, as of any change, is new
    controller.engine.state.refusals = (Refusal(reason=PolicyBroke(message="it fell over")),)
    slow = Slow()
    monkeypatch.setattr(controller, "policy", lambda text: slow)
    view = client.why(job)
    assert view["reason"]["code"] == "PolicyBroke"
    assert (view["start"], view["if_freed"]) == (None, None)
    assert not slow.called.is_set()
