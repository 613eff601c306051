"""The policy's thread: every `Decide` is answered exactly once and in time, even if a policy hangs.

A call of a policy cannot be ended from outside. So one that misses its deadline is abandoned: the
engine gets a `PlanFailed`, and the plan is dropped if it ever comes. A policy object is never used
by two threads; while an abandoned call goes on, further decisions fail immediately.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.ports import Policy, decide
from headgate.protocol import Decide, Event, PlanFailed, PlanReady
from headgate.state import Snapshot

log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Seconds after which a decision has failed; rounds take milliseconds to a few seconds."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """One `Decide` on its way; `answered` is set by the thread that posts the answer."""

    command: Decide
    snapshot: Snapshot
    asked_s: float  # in monotonic seconds
    answered: threading.Event = field(default_factory=threading.Event)


class PolicyThread:
    """Runs one policy; `decide` is called by one thread, `post` is called from any."""

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        post: Callable[[Sequence[Event]], object],
        now: Callable[[], float],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._policy, self._seed, self._deadline_s = policy, seed, deadline_s
        self._post, self._now = post, now
        self._lock = threading.Lock()
        self._current: _Question | None = None  # what the policy computes, abandoned or not
        self._asked: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._watched: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        # daemons: a policy that hangs must not keep the process from ending
        for name, work in (("policy", self._work), ("policy-deadline", self._watch)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def decide(self, command: Decide, snapshot: Snapshot) -> None:
        """Have a decision made; the answer is posted. Returns immediately."""
        question = _Question(command=command, snapshot=snapshot, asked_s=time.monotonic())
        with self._lock:
            hanging = self._current
            if hanging is None:
                self._current = question
        if hanging is None:
            self._asked.put(question)
            self._watched.put(question)
        else:
            since_s = time.monotonic() - hanging.asked_s
            self._fail(question, f"it has not returned from a decision for {since_s:.0f} s")

    def close(self) -> None:
        """Make no further decision; a call under way is abandoned."""
        self._asked.put(None)
        self._watched.put(None)

    def _work(self) -> None:
        for question in iter(self._asked.get, None):
            event = self._decide(question)
            with self._lock:
                self._current = None  # before the answer: the engine may ask again immediately
            if not self._answer(question, event):
                spent_s = time.monotonic() - question.asked_s
                log.warning(
                    "policy %s returned after %.0f s; its plan is dropped",
                    self._policy.name, spent_s,
                )  # fmt: skip

    def _decide(self, question: _Question) -> Event:
        command = question.command
        try:
            plan = decide(self._policy, self._seed, command, question.snapshot)
            return PlanReady(at=self._now(), seen=command.seen, plan=plan)
        except BaseException as error:  # any policy may break in any way, even exit
            log.exception("policy %s broke", self._policy.name)
            return self._failure(command, f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        """Fail what is not answered in time; the engine has one decision outstanding at most."""
        for question in iter(self._watched.get, None):
            if not question.answered.wait(self._deadline_s):
                self._fail(question, f"it made no plan within {self._deadline_s:g} s")

    def _fail(self, question: _Question, problem: str) -> None:
        if self._answer(question, self._failure(question.command, problem)):
            log.error("policy %s: %s", self._policy.name, problem)

    def _failure(self, command: Decide, problem: str) -> PlanFailed:
        message = f"policy {self._policy.name}: {problem}"
        return PlanFailed(at=self._now(), seen=command.seen, message=message)

    def _answer(self, question: _Question, event: Event) -> bool:
        """Post an answer unless there was one already; say whether it was posted."""
        with self._lock:
            if question.answered.is_set():
                return False
            question.answered.set()
        self._post([event])
        return True
