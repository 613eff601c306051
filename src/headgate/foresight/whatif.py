"""What-if: a copy of a snapshot that may be changed, and simulated under a policy.

The copy shares nothing that is written to; whatever is tried on it, the state stays as it is. It is
moved by the same machine and the same admission as the engine's.
"""

from __future__ import annotations

from headgate.base.errors import InvariantBroken
from headgate.base.rng import stream
from headgate.machine import apply
from headgate.machine.admission import admit
from headgate.model import Node
from headgate.ports import Policy
from headgate.protocol import NodeJoined, Plan, PlanReady, PlanRejected, TaskFinished, TaskStopped
from headgate.state import Snapshot, TaskState, thaw


class WhatIf:
    """A hypothetical world: the caller ends runs, and a policy allocates what is free."""

    def __init__(self, snapshot: Snapshot, policy: Policy, at: float) -> None:
        """Start at a time from a snapshot, which stays as it is."""
        self.state = thaw(snapshot)
        self.state.now = max(self.state.now, at)
        self.freed = False
        self._policy = policy
        self._rounds = 0

    def join(self, node: Node) -> None:
        """Add a node."""
        apply(self.state, NodeJoined(at=self.state.now, node=node))

    def end_run(self, task: int, at: float) -> None:
        """Let a run end at a time: well, or, where it is being stopped, without a result."""
        state = self.state
        at, run = max(state.now, at), state.run_id(task)
        if state.tasks.state[task] == TaskState.STOPPING:
            apply(state, TaskStopped(at=at, run=run))
        else:
            output_bytes = state.task(task).output_bytes
            apply(state, TaskFinished(at=at, run=run, output_bytes=output_bytes))

    def round(self) -> Plan:
        """Let the policy decide, and carry out what it decides.

        Runs that it preempts have ended for the next round, like those being stopped already;
        `freed` says whether there were any, so that the policy is asked again. Raises
        InvariantBroken where its plan is rejected.
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
