"""The expected start of a task: a simulation from the current state, and how certain it is."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Ints
from headgate.foresight.explain import explain
from headgate.foresight.run_ends import RunEnds
from headgate.foresight.start_interval import RunAhead, start_interval
from headgate.foresight.whatif import WhatIf
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.state import Snapshot

ROUNDS_MOST = 1000
_IDLE_MOST = 20  # consecutive rounds that a policy requested without an end in between
_IDLE_IN = 0.5  # the part of the rounds in which it gets any


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected start if runs take their estimated times and no job arrives.

    `task` starts on `node` at `at` (seconds of the world's clock) after `ends` runs have ended,
    `after` the last of them; with a probability of 80 % from `earliest` to `latest`. These are None
    without a result: no task starts before `until`, where the simulation ended after `rounds`
    rounds, or since all runs have ended: then `still` is why it waits. `unknown_runs` counts runs
    under way whose times are a guess, as none has ended before.
    """

    at: float | None
    earliest: float | None
    latest: float | None
    task: str | None
    node: str | None
    after: str | None
    ends: int
    rounds: int
    until: float
    unknown_runs: int
    still: Reason | None = None


def forecast(snapshot: Snapshot, policy: Policy, tasks: Collection[int], now: float) -> Forecast:
    """Return when the first of some tasks (rows) is expected to start under a policy.

    O(rounds x a decision), at most 1000 of them.
    """
    return _Simulation(snapshot, policy, frozenset(tasks), now).run()


class _Simulation:
    def __init__(
        self, snapshot: Snapshot, policy: Policy, tasks: frozenset[int], now: float
    ) -> None:
        self._what_if = WhatIf(snapshot, policy, now, learns=True)
        self._snapshot, self._now, self._wanted = snapshot, now, tasks
        self._runs = RunEnds(self._what_if.state, snapshot)
        self._ahead = [RunAhead(run=run) for run in self._runs.under_way()]
        self._unknown = sum(each.run.guessed for each in self._ahead)
        self._ended, self._rounds, self._idle, self._after = 0, 0, 0, -1
        self._ended_at = self._what_if.state.now  # the last run
        self._ended_before = 0  # when the last but one round began

    def run(self) -> Forecast:
        """Simulate rounds and ends until one of the tasks is placed."""
        what_if = self._what_if
        while self._rounds < ROUNDS_MOST:
            plan = what_if.round()
            self._rounds += 1
            tasks = plan.starts.task
            wanted = [n for n, task in enumerate(tasks.tolist()) if task in self._wanted]
            if wanted:
                return self._found(tasks, wanted[0], int(plan.starts.node[wanted[0]]))
            self._runs.stop(what_if.stopped)
            begun = np.append(tasks, np.array(what_if.moved, np.int64))
            runs = self._runs.begin(begun)
            order = self._order_of_starts(begun).tolist()
            lag_s = what_if.state.now - self._ended_at
            self._ahead += (
                RunAhead(run=run, ends_before=ends, lag_s=lag_s)
                for run, ends in zip(runs, order, strict=True)
            )
            if not what_if.continues and not self._next():
                break
        return Forecast(
            at=None, earliest=None, latest=None, task=None, node=None, after=None,
            ends=self._ended, rounds=self._rounds, until=what_if.state.now,
            unknown_runs=self._unknown, still=self._still(),
        )  # fmt: skip

    def _still(self) -> Reason | None:
        """Return why the first of the tasks waits at the end of the simulation."""
        state, task = self._what_if.state, min(self._wanted)
        return explain(state, state.tasks.job[task], state.now, task).reason

    def _order_of_starts(self, tasks: Ints) -> Ints:
        """Return how many runs have ended when each task of a round starts.

        Where runs end one after the other, not at the same time, the tasks that follow them on
        single GPUs start one after the other, too.
        """
        one_by_one = np.minimum(self._ended_before + 1 + np.arange(len(tasks)), self._ended)
        rows, gangs = self._snapshot.tasks, self._snapshot.jobs.gang
        alone = (rows.gpus.take(tasks) == 1) & (gangs.take(rows.job.take(tasks)) == 0)
        return np.where(alone, one_by_one, self._ended)

    def _next(self) -> bool:
        """End the next runs, or go to the requested round; return whether there was either."""
        what_if, runs, state = self._what_if, self._runs, self._what_if.state
        self._ended_before = self._ended
        idles = self._idle < _IDLE_MOST and self._rounds < _IDLE_IN * ROUNDS_MOST
        requested_at = what_if.requested_at() if idles else math.inf
        at = runs.next_at(requested_at)
        if requested_at < at:
            what_if.wake()
            self._idle += 1
            return True
        if math.isinf(at):
            return False
        for run in runs.ended(at):
            what_if.end_run(run.task, at, read_s=run.read_s)
            self._ended, self._after = self._ended + 1, run.task
        self._idle, self._ended_at = 0, state.now
        return True

    def _found(self, tasks: Ints, start: int, node: int) -> Forecast:
        state = self._what_if.state
        ends = int(self._order_of_starts(tasks)[start])
        lag_s = state.now - self._ended_at
        self._runs.read_so_far()
        earliest, latest = start_interval(
            self._snapshot, self._ahead, ends, lag_s=lag_s, at=state.now, now=self._now
        )
        return Forecast(
            at=state.now,
            earliest=earliest,
            latest=latest,
            task=state.task_id(int(tasks[start])),
            node=state.node(node).id,
            after=None if self._after < 0 else state.task_id(self._after),
            ends=self._ended,
            rounds=self._rounds,
            until=state.now,
            unknown_runs=self._unknown,
        )
