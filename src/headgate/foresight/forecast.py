"""The expected start of a task: a simulation from the current state."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass

from headgate.foresight.whatif import WhatIf
from headgate.ports import Policy
from headgate.protocol import Plan
from headgate.state import Snapshot, TaskState
from headgate.state.life import HOLDING

_ROUNDS_MOST = 300
_IDLE_MOST = 20  # consecutive rounds that a policy requested without an end in between


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected start if runs take their estimated times and no job arrives.

    `task` starts on `node` at `at` (seconds of the world's clock) after `ends` runs have ended,
    `after` the last of them. These are None without a result: no task starts before `until`, where
    the simulation ended after `rounds` rounds, or since no further end is known; `unknown_runs`
    counts runs without an expected end.
    """

    at: float | None
    task: str | None
    node: str | None
    after: str | None
    ends: int
    rounds: int
    until: float
    unknown_runs: int


def forecast(snapshot: Snapshot, policy: Policy, tasks: Collection[int], now: float) -> Forecast:
    """Return when the first of some tasks (rows) is expected to start under a policy.

    O(rounds x a decision), at most 300 of them.
    """
    return _Simulation(snapshot, policy, frozenset(tasks), now).run()


class _Simulation:
    def __init__(
        self, snapshot: Snapshot, policy: Policy, tasks: frozenset[int], now: float
    ) -> None:
        self._what_if = WhatIf(snapshot, policy, now)
        self._wanted = tasks
        self._ends: list[
            tuple[float, int, int]
        ] = []  # time, task (-1: a requested round), its attempt
        self._unknown: set[int] = set()
        self._ended, self._rounds, self._idle, self._after = 0, 0, 0, -1
        for task in snapshot.holding():
            self._expect(task)

    def _expect(self, task: int) -> None:
        """Record the expected end of a run, if known."""
        state = self._what_if.state
        stopping = state.tasks.state[task] == TaskState.STOPPING
        end = state.now if stopping else state.expected_end(task)
        if math.isnan(end):
            self._unknown.add(task)
        else:
            heapq.heappush(self._ends, (end, task, state.tasks.attempts[task]))

    def run(self) -> Forecast:
        """Simulate rounds and ends until one of the tasks is placed."""
        while self._rounds < _ROUNDS_MOST and self._idle < _IDLE_MOST:
            plan = self._what_if.round()
            self._rounds += 1
            for start in plan.starts:
                if start.task in self._wanted:
                    return self._found(start.task, start.node)
            self._note(plan)
            if not self._what_if.freed and not self._next():
                break
        return Forecast(
            at=None, task=None, node=None, after=None,
            ends=self._ended, rounds=self._rounds, until=self._what_if.state.now,
            unknown_runs=len(self._unknown),
        )  # fmt: skip

    def _note(self, plan: Plan) -> None:
        self._unknown.difference_update(plan.stops.task.tolist())
        for task in plan.starts.task.tolist():
            self._expect(task)
        if plan.again_at is not None and plan.again_at > self._what_if.state.now:
            heapq.heappush(self._ends, (plan.again_at, -1, 0))

    def _next(self) -> bool:
        """End the next runs, all those of one time; return whether there was one."""
        state, went = self._what_if.state, False
        while self._ends and not (went and self._ends[0][0] > state.now):
            at, task, attempt = heapq.heappop(self._ends)
            if task < 0:
                state.now, went = max(state.now, at), True
                self._idle += 1
            elif state.tasks.attempts[task] == attempt and state.tasks.state[task] in HOLDING:
                self._what_if.end_run(task, at)
                self._ended, self._idle, self._after, went = self._ended + 1, 0, task, True
        return went

    def _found(self, task: int, node: int) -> Forecast:
        state = self._what_if.state
        return Forecast(
            at=state.now,
            task=state.task_id(task),
            node=state.node(node).id,
            after=None if self._after < 0 else state.task_id(self._after),
            ends=self._ended,
            rounds=self._rounds,
            until=state.now,
            unknown_runs=len(self._unknown),
        )
