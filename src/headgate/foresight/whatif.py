"""What-if: a copy of a snapshot that may be changed, and simulated under a policy.

The copy shares no writable data with the state. The engine's machine and admission change it.
"""

from __future__ import annotations

from headgate.base.errors import InvariantBroken
from headgate.base.rng import stream
from headgate.machine import admit, apply
from headgate.model import Node
from headgate.ports import Policy
from headgate.protocol import NodeJoined, Plan, PlanReady, PlanRejected, TaskFinished, TaskStopped
from headgate.state import Snapshot, TaskState, thaw


class WhatIf:
    """A hypothetical world: the caller ends runs, and a policy allocates what is free."""

    def __init__(self, snapshot: Snapshot, policy: Policy, at: float) -> None:
        """Start at a time from a snapshot, which stays unchanged."""
        self.state = thaw(snapshot)
        self.state.now = max(self.state.now, at)
        self.freed = False
        self._policy = policy
        self._rounds = 0

    def join(self, node: Node) -> None:
        """Add a node."""
        apply(self.state, NodeJoined(at=self.state.now, node=node))

    def end_run(self, task: int, at: float) -> None:
        """End a run at a time: with a result, or without one if it is being stopped."""
        state = self.state
        at, run = max(state.now, at), state.run_id(task)
        if state.tasks.state[task] == TaskState.STOPPING:
            apply(state, TaskStopped(at=at, run=run))
        else:
            output_bytes = state.task(task).output_bytes
            apply(state, TaskFinished(at=at, run=run, output_bytes=output_bytes))

    def round(self) -> Plan:
        """Run the policy, apply its plan, and return it.

        Runs that it preempts end immediately, like those being stopped already; `freed` is set if
        there were any, so that another round may start more. Raises InvariantBroken for a plan
        that admission rejects.
        """
        state = self.state
        snapshot = state.freeze()
        self._rounds += 1
        plan = self._policy.decide(snapshot, stream(0, "what if", self._rounds))
        ready = PlanReady(at=state.now, seen=snapshot.version, plan=plan)
        verdict = admit(state, snapshot, ready)
        if isinstance(verdict, PlanRejected):
            raise InvariantBroken(f"policy {self._policy.name}: {verdict.message}")
        state.refusals = plan.refusals
        apply(state, verdict)
        stopping = [t for t in state.holding() if state.tasks.state[t] == TaskState.STOPPING]
        for task in stopping:
            self.end_run(task, state.now)
        self.freed = bool(stopping)
        return plan
