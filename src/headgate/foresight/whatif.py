"""What-if: a copy of a snapshot that may be changed, and simulated under a policy.

The copy shares no writable data with the state. The engine's machine and admission change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from headgate.base.errors import InvariantBroken
from headgate.base.rng import stream
from headgate.machine import admit, apply
from headgate.model import Node
from headgate.planning.rounds.decide import decided
from headgate.ports import Policy, capabilities
from headgate.protocol import (
    NodeJoined,
    Plan,
    PlanReady,
    PlanRejected,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    Timer,
    TimerFired,
    Usage,
)
from headgate.state import Snapshot, TaskState, thaw
from headgate.state.moves import moving_tasks


class WhatIf:
    """A hypothetical world: the caller ends runs, and a policy allocates what is free."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, at: float, *, learns: bool = False
    ) -> None:
        """Start at a time from a snapshot, which stays unchanged.

        Rounds of a policy with a `warm_copy` continue from its last one, on that; any other policy
        must be a copy already. If it `learns`, the ends of runs update the estimates that the
        policy sees.
        """
        self.state = thaw(snapshot)
        self.state.learns = learns
        self.state.now = max(self.state.now, at)
        self.stopped: list[int] = []
        self._requested = False  # the last round, for another one immediately
        self.moved: list[int] = []
        warm_copy = capabilities(policy).warm_copy
        self.policy = policy if warm_copy is None else warm_copy()
        self._rounds = 0
        states = self.state.tasks.state.array()
        self._report_starts(np.flatnonzero(states == TaskState.STARTING).tolist())

    @property
    def continues(self) -> bool:
        """Whether another round may start more now: this one stopped runs, or requested it."""
        return bool(self.stopped) or self._requested

    def join(self, node: Node) -> None:
        """Add a node."""
        apply(self.state, NodeJoined(at=self.state.now, node=node))

    def end_run(self, task: int, at: float, *, read_s: float = 0.0) -> None:
        """End a run at a time: with a result, or without one if it is being stopped.

        It has spent `read_s` seconds reading.
        """
        state = self.state
        at, run = max(state.now, at), state.run_id(task)
        if state.tasks.state[task] == TaskState.STOPPING:
            apply(state, TaskStopped(at=at, run=run))
        else:
            output_bytes = state.task(task).output_bytes
            usage = Usage(read_s=read_s)
            apply(state, TaskFinished(at=at, run=run, output_bytes=output_bytes, usage=usage))

    def requested_at(self) -> float:
        """Return when the policy has requested another round; `inf` if it has not."""
        return self.state.timers.get(Timer.ASK_AGAIN, math.inf)

    def wake(self) -> None:
        """Go to the time of the requested round."""
        at = max(self.state.now, self.requested_at())
        apply(self.state, TimerFired(at=at, timer=Timer.ASK_AGAIN))

    def _report_starts(self, tasks: Iterable[int]) -> None:
        """Report launched runs as started: processes start without delay."""
        state = self.state
        for task in tasks:
            apply(state, TaskStarted(at=state.now, run=state.run_id(task)))

    def round(self) -> Plan:
        """Run the policy, apply its plan, and return it.

        The runs that it launches start, and those that it preempts end, immediately, like those
        being stopped already: these are `stopped`. Those of them that move start again: `moved`.
        Raises InvariantBroken for a plan that admission rejects.
        """
        state = self.state
        snapshot = state.freeze()
        self._rounds += 1
        plan = decided(self.policy, snapshot, stream(0, "what if", self._rounds))
        ready = PlanReady(at=state.now, seen=snapshot.version, plan=plan)
        verdict = admit(state, snapshot, ready)
        if isinstance(verdict, PlanRejected):
            raise InvariantBroken(f"policy {self.policy.name}: {verdict.message}")
        state.refusals = plan.refusals
        self._requested = plan.again_at is not None and plan.again_at <= state.now
        apply(state, verdict)
        moving = moving_tasks(state)
        held = np.flatnonzero(state.tasks.state.array() == TaskState.STOPPING)
        self.stopped = held.tolist()
        for task in self.stopped:
            self.end_run(task, state.now)
        self.moved = [t for t in moving if state.tasks.state[t] == TaskState.STARTING]
        self._report_starts([*plan.starts.task.tolist(), *self.moved])
        return plan
