"""Every decision has one outcome before its deadline, for any failure of the policy."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headgate.engine import Engine
from headgate.live.policy_thread import PolicyThread
from headgate.ports import Policy
from headgate.protocol import Decide, Event, Plan, PlanFailed, PlanReady

WAIT_S = 30.0


class _Policy:
    """Returns, raises or hangs as set by the test."""

    name = "scripted"

    def __init__(self) -> None:
        self.next: Callable[[], Plan] = Plan
        self.users = 0
        self.most_users = 0

    def warm_copy(self) -> _Policy:
        return _Policy()

    def decide(self, *_: object) -> Plan:
        self.users += 1
        self.most_users = max(self.users, self.most_users)
        try:
            return self.next()
        finally:
            self.users -= 1


class _Bed:
    def __init__(self, deadline_s: float) -> None:
        self.policy = _Policy()
        self.posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
        stand_in: Policy = self.policy  # type: ignore[assignment]  # only `decide` is used
        self.thread = PolicyThread(
            stand_in,
            seed=0,
            post=lambda events: [self.posted.put(event) for event in events],
            now=lambda: 1.0,
            deadline_s=deadline_s,
        )

    def ask(self, number: int) -> None:
        self.thread.decide(Decide(seen=number), Engine().snapshot())

    def answer(self) -> Event:
        return self.posted.get(timeout=WAIT_S)


@pytest.fixture
def hasty() -> Iterator[_Bed]:
    """A policy thread with a deadline of 0 s."""
    bed = _Bed(deadline_s=0.0)
    yield bed
    bed.thread.close()


@pytest.fixture
def patient() -> Iterator[_Bed]:
    bed = _Bed(deadline_s=WAIT_S)
    yield bed
    bed.thread.close()


def test_hung_policy_fails_its_decision_and_every_other_until_it_returns(hasty: _Bed) -> None:
    begun, release = threading.Event(), threading.Event()

    def hang() -> Plan:
        begun.set()
        release.wait(WAIT_S)
        return Plan()

    hasty.policy.next = hang
    hasty.ask(1)
    first = hasty.answer()
    assert isinstance(first, PlanFailed)
    assert (first.seen, "no plan within" in first.message) == (1, True)
    assert begun.wait(WAIT_S)
    hasty.ask(2)
    second = hasty.answer()
    assert isinstance(second, PlanFailed)
    assert (second.seen, "has not returned" in second.message) == (2, True)
    assert hasty.policy.most_users == 1, "the policy is not used by a second thread"

    hasty.thread._deadline_s = WAIT_S
    hasty.policy.next = Plan
    release.set()
    answers: list[Event] = []
    while not answers or isinstance(answers[-1], PlanFailed):  # until the call has returned
        hasty.ask(3 + len(answers))
        answers.append(hasty.answer())
        time.sleep(0.001)
    assert [answer.seen for answer in answers] == list(range(3, 3 + len(answers)))
    assert isinstance(answers[-1], PlanReady), "it continues once the policy has returned"
    assert hasty.posted.empty(), "the late plan is dropped"
    assert hasty.policy.most_users == 1


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), KeyboardInterrupt()])
def test_policy_that_raises_fails_its_decision_and_decides_again(
    patient: _Bed, error: BaseException
) -> None:
    def fail() -> Plan:
        raise error

    patient.policy.next = fail
    patient.ask(1)
    answer = patient.answer()
    assert isinstance(answer, PlanFailed)
    assert type(error).__name__ in answer.message
    patient.policy.next = Plan
    patient.ask(2)
    assert isinstance(patient.answer(), PlanReady)


HUNG = """
import threading
from headgate.engine import Engine
from headgate.live.policy_thread import PolicyThread
from headgate.protocol import Decide

class Hung:
    name = "hung"
    def decide(self, *_):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
thread = PolicyThread(Hung(), seed=0, post=print, now=lambda: 0.0)
thread.decide(Decide(seen=1), Engine().snapshot())
begun.wait()
thread.close()
"""


def test_process_ends_although_its_policy_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], check=False, timeout=WAIT_S)
    assert done.returncode == 0


def test_policy_is_copied_between_decisions_only(patient: _Bed) -> None:
    assert isinstance(patient.thread.warm_copy(), _Policy)
    begun, end = threading.Event(), threading.Event()

    def hang() -> Plan:
        begun.set()
        assert end.wait(WAIT_S)
        return Plan()

    patient.policy.next = hang
    patient.ask(1)
    assert begun.wait(WAIT_S)
    assert patient.thread.warm_copy() is None
    end.set()
    patient.answer()
