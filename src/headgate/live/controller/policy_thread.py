"""The policy's thread: every `Decide` has exactly one outcome, even if the policy hangs.

A call of a policy cannot be interrupted. So one that misses its deadline is abandoned, with its
thread and its policy object, which no other thread uses: the engine gets a `PlanFailed`, a later
plan of that call is dropped, and a fresh object decides next, in a thread of its own. After
`MOST_HANGS` such calls in a row `STAND_IN` decides instead until the process ends, since abandoned
threads end with it at the latest.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.planning.rounds.decide import decide
from headgate.ports import Policy, capabilities
from headgate.protocol import Decide, Event, PlanFailed, PlanReady
from headgate.state import Snapshot

log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Seconds after which a decision has failed; rounds take milliseconds to a few seconds."""

MOST_HANGS = 3
"""Calls in a row that miss their deadline until another policy decides."""

STAND_IN = "fifo"
"""The policy that then decides."""


@dataclass(slots=True, kw_only=True, eq=False)
class _PendingDecision:
    """One outstanding `Decide`; `reported` is set by the thread that posts its outcome."""

    command: Decide
    snapshot: Snapshot
    started_s: float  # in monotonic seconds
    reported: threading.Event = field(default_factory=threading.Event)


class _Caller:
    """What one thread alone uses: a policy object, which it makes itself but for the first."""

    def __init__(self, policy: Policy | None, name: str | None) -> None:
        self.policy, self.name = policy, name  # None: that in force
        self.in_use = threading.Lock()  # while it is made, decides, or is copied
        self.requested: queue.SimpleQueue[_PendingDecision | None] = queue.SimpleQueue()


class PolicyThread:
    """Runs one policy at a time; `decide` is called by one thread, `post` is called from any."""

    def __init__(
        self,
        make: Callable[[str | None], Policy],
        *,
        seed: int,
        post: Callable[[Sequence[Event]], object],
        now: Callable[[], float],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`make(None)` returns a new object of the policy in force, `make(NAME)` of another."""
        self._make, self._seed, self._deadline_s = make, seed, deadline_s
        self._post, self._now = post, now
        self.stand_in: str | None = None
        """The policy that decides in place of the one in force, if any."""
        self.hung_calls = 0
        """Calls of policies that missed their deadline."""
        self._in_a_row = 0  # of these, without another outcome in between
        self._lock = threading.Lock()
        first = make(None)
        self._policy_name, self._caller = first.name, self._start_caller(first)
        self._watched: queue.SimpleQueue[_PendingDecision | None] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="policy-deadline", daemon=True).start()

    @property
    def policy(self) -> Policy | None:
        """The object that decides; None before the first decision of a fresh one."""
        return self._caller.policy

    def decide(self, command: Decide, snapshot: Snapshot) -> None:
        """Start a decision, whose outcome is posted later; returns immediately."""
        pending = _PendingDecision(command=command, snapshot=snapshot, started_s=time.monotonic())
        self._caller.requested.put(pending)
        self._watched.put(pending)

    def warm_copy(self) -> Policy | None:
        """Return a copy that continues from the last round; None if there is none, or right now.

        A decision that is requested meanwhile waits for it.
        """
        caller = self._caller
        if not caller.in_use.acquire(blocking=False):
            return None
        try:
            if caller.policy is None:
                return None
            warm_copy = capabilities(caller.policy).warm_copy
            return None if warm_copy is None else warm_copy()
        finally:
            caller.in_use.release()

    def close(self) -> None:
        """Make no further decision; a running call is abandoned."""
        self._caller.requested.put(None)
        self._watched.put(None)

    def _start_caller(self, policy: Policy | None = None) -> _Caller:
        caller = _Caller(policy, self.stand_in)
        # a daemon: a policy that hangs must not keep the process from ending
        threading.Thread(target=self._work, args=(caller,), name="policy", daemon=True).start()
        return caller

    def _work(self, caller: _Caller) -> None:
        for pending in iter(caller.requested.get, None):
            with caller.in_use:
                event = self._decide(caller, pending)
            if not self._report(pending, event):
                spent_s = time.monotonic() - pending.started_s
                log.warning(
                    "a call of a policy returned after %.0f s; its plan is dropped", spent_s
                )

    def _decide(self, caller: _Caller, pending: _PendingDecision) -> Event:
        command = pending.command
        try:
            if caller.policy is None:
                caller.policy = self._make(caller.name)
            plan = decide(caller.policy, self._seed, command, pending.snapshot)
            return PlanReady(at=self._now(), seen=command.seen, plan=plan)
        except BaseException as error:  # a policy may fail in any way, even exit
            log.exception("policy %s failed", caller.name or self._policy_name)
            return self._failure(caller, command, f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        """Fail decisions at their deadline; the engine has at most one outstanding."""
        for pending in iter(self._watched.get, None):
            if not pending.reported.wait(self._deadline_s):
                self._abandon(pending)

    def _abandon(self, pending: _PendingDecision) -> None:
        """Fail a decision, unless it has an outcome by now; let a fresh object decide the next."""
        with self._lock:
            if pending.reported.is_set():
                return
            pending.reported.set()
            caller = self._caller
            self.hung_calls += 1
            self._in_a_row += 1
            if self._in_a_row >= MOST_HANGS:
                self.stand_in = STAND_IN
            self._caller = self._start_caller()  # before the report, which may request a decision
        caller.requested.put(None)
        problem = f"it made no plan within {self._deadline_s:g} s"
        if self.stand_in is not None:
            problem += f"; {self.stand_in} decides until the controller restarts"
        failure = self._failure(caller, pending.command, problem)
        log.error("%s", failure.message)
        self._post([failure])

    def _failure(self, caller: _Caller, command: Decide, problem: str) -> PlanFailed:
        message = f"policy {caller.name or self._policy_name}: {problem}"
        return PlanFailed(at=self._now(), seen=command.seen, message=message)

    def _report(self, pending: _PendingDecision, event: Event) -> bool:
        """Post the outcome of a decision unless it has one; return whether it was posted."""
        with self._lock:
            if pending.reported.is_set():
                return False
            pending.reported.set()
            self._in_a_row = 0
        self._post([event])
        return True
