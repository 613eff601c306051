"""The policy's thread: every `Decide` has exactly one outcome, even if the policy hangs.

A call of a policy cannot be interrupted. So one that misses its deadline is abandoned: the engine
gets a `PlanFailed`, and a later plan of that call is dropped. A policy object is never used by two
threads; while an abandoned call runs, further decisions fail immediately.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.planning.rounds import decide
from headgate.ports import Policy, WarmPolicy
from headgate.protocol import Decide, Event, PlanFailed, PlanReady
from headgate.state import Snapshot

log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Seconds after which a decision has failed; rounds take milliseconds to a few seconds."""


@dataclass(slots=True, kw_only=True, eq=False)
class _PendingDecision:
    """One outstanding `Decide`; `reported` is set by the thread that posts its outcome."""

    command: Decide
    snapshot: Snapshot
    started_s: float  # in monotonic seconds
    reported: threading.Event = field(default_factory=threading.Event)


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
        self._in_use = threading.Lock()  # while the policy decides, or is copied
        self._current: _PendingDecision | None = None  # the running call, abandoned or not
        self._requested: queue.SimpleQueue[_PendingDecision | None] = queue.SimpleQueue()
        self._watched: queue.SimpleQueue[_PendingDecision | None] = queue.SimpleQueue()
        # daemons: a policy that hangs must not keep the process from ending
        for name, work in (("policy", self._work), ("policy-deadline", self._watch)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def decide(self, command: Decide, snapshot: Snapshot) -> None:
        """Start a decision, whose outcome is posted later; returns immediately."""
        pending = _PendingDecision(command=command, snapshot=snapshot, started_s=time.monotonic())
        with self._lock:
            hanging = self._current
            if hanging is None:
                self._current = pending
        if hanging is None:
            self._requested.put(pending)
            self._watched.put(pending)
        else:
            since_s = time.monotonic() - hanging.started_s
            self._fail(pending, f"it has not returned from a decision for {since_s:.0f} s")

    def warm_copy(self) -> Policy | None:
        """Return a copy that continues from the last round; None if there is none, or right now.

        A decision that is requested meanwhile waits for it.
        """
        if not isinstance(self._policy, WarmPolicy) or not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._policy.warm_copy()
        finally:
            self._in_use.release()

    def close(self) -> None:
        """Make no further decision; a running call is abandoned."""
        self._requested.put(None)
        self._watched.put(None)

    def _work(self) -> None:
        for pending in iter(self._requested.get, None):
            with self._in_use:
                event = self._decide(pending)
            with self._lock:
                self._current = None  # before the report: the engine may request the next decision
            if not self._report(pending, event):
                spent_s = time.monotonic() - pending.started_s
                log.warning(
                    "policy %s returned after %.0f s; its plan is dropped",
                    self._policy.name, spent_s,
                )  # fmt: skip

    def _decide(self, pending: _PendingDecision) -> Event:
        command = pending.command
        try:
            plan = decide(self._policy, self._seed, command, pending.snapshot)
            return PlanReady(at=self._now(), seen=command.seen, plan=plan)
        except BaseException as error:  # a policy may fail in any way, even exit
            log.exception("policy %s failed", self._policy.name)
            return self._failure(command, f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        """Fail decisions at their deadline; the engine has at most one outstanding."""
        for pending in iter(self._watched.get, None):
            if not pending.reported.wait(self._deadline_s):
                self._fail(pending, f"it made no plan within {self._deadline_s:g} s")

    def _fail(self, pending: _PendingDecision, problem: str) -> None:
        if self._report(pending, self._failure(pending.command, problem)):
            log.error("policy %s: %s", self._policy.name, problem)

    def _failure(self, command: Decide, problem: str) -> PlanFailed:
        message = f"policy {self._policy.name}: {problem}"
        return PlanFailed(at=self._now(), seen=command.seen, message=message)

    def _report(self, pending: _PendingDecision, event: Event) -> bool:
        """Post the outcome of a decision unless it has one; return whether it was posted."""
        with self._lock:
            if pending.reported.is_set():
                return False
            pending.reported.set()
        self._post([event])
        return True
