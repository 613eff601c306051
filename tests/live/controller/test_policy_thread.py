"""Every decision has one outcome before its deadline, for any failure of the policy."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from headgate.engine import Engine
from headgate.live.controller.policy_thread import MOST_HANGS, PolicyThread
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Policy
from headgate.protocol import (
    Command,
    Decide,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    Plan,
    PlanFailed,
    PlanReady,
    QueueChanged,
    TimerFired,
    WakeAt,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.testing.digest import digest

WAIT_S = 30.0


class _Policy:
    """Returns, raises or hangs as set by the test."""

    name = "scripted"

    def __init__(self, bed: _Bed) -> None:
        self.bed = bed
        self.calls = 0

    def warm_copy(self) -> _Policy:
        return _Policy(self.bed)

    def decide(self, *_: object) -> Plan:
        self.calls += 1
        return self.bed.next()


class _Bed:
    def __init__(self) -> None:
        self.next: Callable[[], Plan] = Plan
        self.made: list[_Policy | FirstInFirstOut] = []
        self.posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.release = threading.Event()
        self.begun: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()
        self.thread = PolicyThread(
            self.make,
            seed=0,
            post=lambda events: [self.posted.put(event) for event in events],
            now=lambda: 1.0,
            deadline_s=WAIT_S,
        )

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.made]

    def make(self, name: str | None) -> Policy:
        assert name in (None, "fifo")
        made = _Policy(self) if name is None else FirstInFirstOut()
        self.made.append(made)
        return made  # type: ignore[return-value]  # only `decide` is used

    def hang(self) -> Plan:
        self.begun.put(threading.current_thread())
        assert self.release.wait(WAIT_S)
        return Plan()

    def ask(self, number: int) -> None:
        self.thread.decide(Decide(seen=number), Engine().snapshot())

    def answer(self) -> Event:
        return self.posted.get(timeout=WAIT_S)

    def hangs(self, number: int) -> tuple[str, threading.Thread]:
        """Let a call hang; return the message of its failure, and its thread."""
        self.next = self.hang
        self.thread._deadline_s = 0.0
        self.ask(number)
        failed = self.answer()
        assert isinstance(failed, PlanFailed)
        assert failed.seen == number
        return failed.message, self.begun.get(timeout=WAIT_S)

    def decides(self, number: int) -> bool:
        """Let a call return; return whether there is a plan."""
        self.next = Plan
        self.thread._deadline_s = WAIT_S
        self.ask(number)
        found = self.answer()
        assert isinstance(found, PlanReady | PlanFailed)
        assert found.seen == number
        return isinstance(found, PlanReady)


@pytest.fixture
def bed() -> Iterator[_Bed]:
    bed = _Bed()
    yield bed
    bed.release.set()
    bed.thread.close()


def test_after_a_call_that_hangs_a_fresh_object_decides(bed: _Bed) -> None:
    message, hung = bed.hangs(1)
    assert message == "policy scripted: it made no plan within 0 s"
    assert (bed.thread.hung_calls, bed.thread.stand_in) == (1, None)
    assert bed.decides(2)
    first, second = bed.made
    assert bed.thread.policy is second, "the warm state of the first is dropped"
    bed.release.set()
    hung.join(WAIT_S)
    assert not hung.is_alive(), "the thread of an abandoned call ends with it"
    assert bed.decides(3)
    assert bed.posted.empty(), "the late plan is dropped"
    assert isinstance(first, _Policy)
    assert isinstance(second, _Policy)
    assert (first.calls, second.calls) == (1, 2)


def test_after_three_calls_in_a_row_that_hang_fifo_decides(bed: _Bed) -> None:
    for number in range(1, MOST_HANGS):
        assert "fifo" not in bed.hangs(number)[0]
    assert bed.thread.stand_in is None
    message, _ = bed.hangs(MOST_HANGS)
    assert message.endswith("no plan within 0 s; fifo decides until the controller restarts")
    assert (bed.thread.hung_calls, bed.thread.stand_in) == (MOST_HANGS, "fifo")
    assert bed.decides(10)
    assert isinstance(bed.thread.policy, FirstInFirstOut)
    assert bed.decides(11)
    assert bed.names == ["scripted"] * MOST_HANGS + ["fifo"], "it is made once"
    assert bed.thread.warm_copy() is None


@pytest.mark.parametrize("error", [None, ValueError("odd")])
def test_calls_that_hang_are_in_a_row_without_another_outcome_between(
    bed: _Bed, error: Exception | None
) -> None:
    def fail() -> Plan:
        if error is not None:
            raise error
        return Plan()

    for number in range(1, 2 * MOST_HANGS, 2):
        bed.hangs(number)
        bed.next, bed.thread._deadline_s = fail, WAIT_S
        bed.ask(number + 1)
        assert isinstance(bed.answer(), PlanReady if error is None else PlanFailed)
    assert (bed.thread.hung_calls, bed.thread.stand_in) == (MOST_HANGS, None)


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), KeyboardInterrupt()])
def test_policy_that_raises_fails_its_decision_and_decides_again(
    bed: _Bed, error: BaseException
) -> None:
    def fail() -> Plan:
        raise error

    bed.next = fail
    bed.ask(1)
    answer = bed.answer()
    assert isinstance(answer, PlanFailed)
    assert type(error).__name__ in answer.message
    assert bed.decides(2)
    assert len(bed.made) == 1
    assert bed.thread.hung_calls == 0


def test_policy_that_cannot_be_made_fails_the_decision(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hangs(1)

    def broken(name: str | None) -> Policy:
        raise ImportError("uninstalled")

    monkeypatch.setattr(bed.thread, "_make", broken)
    bed.thread._deadline_s = WAIT_S
    bed.ask(2)
    answer = bed.answer()
    assert isinstance(answer, PlanFailed)
    assert answer.message == "policy scripted: ImportError: uninstalled"


class _Journal:
    """An engine beside a policy thread: all recorded batches."""

    def __init__(self, bed: _Bed) -> None:
        self.bed, self.engine, self.at = bed, Engine(), 0.0
        self.batches: list[tuple[Event, ...]] = []

    def _record(self, batch: tuple[Event, ...]) -> tuple[Event, ...]:
        self.batches += [batch] if batch else []
        return batch

    def handle(self, *events: Event) -> list[Command]:
        """Handle events; return the commands but for decisions, which are requested."""
        commands = self.engine.handle(*events, record=self._record)
        for command in commands:
            if isinstance(command, Decide):
                self.bed.thread.decide(command, self.engine.decision_snapshot())
        return [each for each in commands if not isinstance(each, Decide)]

    def fire(self, commands: Sequence[Command]) -> None:
        (wake,) = [each for each in commands if isinstance(each, WakeAt)]
        self.at = wake.at
        self.handle(TimerFired(at=wake.at, timer=wake.timer))


def test_a_journal_in_which_fifo_stands_in_is_replayed_without_any_policy(bed: _Bed) -> None:
    journal, bed.next, bed.thread._deadline_s = _Journal(bed), bed.hang, 0.0
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))
    job = Job(id="j", name="j", user="u", queue="q", tasks=(Task(),))
    journal.handle(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=node),
        JobSubmitted(at=0.0, job=job),
    )
    for _ in range(MOST_HANGS):
        commands = journal.handle(bed.answer())
        (refusal,) = journal.engine.state.refusals
        assert isinstance(refusal.reason, PolicyBroke), "why says so"
        if bed.thread.stand_in is not None:
            bed.thread._deadline_s = WAIT_S
        journal.fire(commands)
    (launch,) = journal.handle(bed.answer())
    assert isinstance(launch, LaunchTask), "fifo has placed it"
    again = Engine()
    for batch in journal.batches:
        again.replay(batch)
    assert digest(again.state) == digest(journal.engine.state)


HUNG = """
import threading
from headgate.engine import Engine
from headgate.live.controller.policy_thread import PolicyThread
from headgate.protocol import Decide

class Hung:
    name = "hung"
    def decide(self, *_):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
thread = PolicyThread(lambda name: Hung(), seed=0, post=print, now=lambda: 0.0)
thread.decide(Decide(seen=1), Engine().snapshot())
begun.wait()
thread.close()
"""


def test_process_ends_although_its_policy_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], check=False, timeout=WAIT_S)
    assert done.returncode == 0


def test_policy_is_copied_between_decisions_only(bed: _Bed) -> None:
    assert bed.decides(1)
    assert isinstance(bed.thread.warm_copy(), _Policy)
    bed.next = bed.hang
    bed.ask(2)
    bed.begun.get(timeout=WAIT_S)
    assert bed.thread.warm_copy() is None
    bed.release.set()
    bed.answer()
