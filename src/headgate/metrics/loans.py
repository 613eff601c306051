"""What queues borrow of each other, and what is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.model import WHOLE
from headgate.planning.units.price import lost_gpu_s
from headgate.protocol import Command, Event, PlanAdmitted
from headgate.state import State
from headgate.state.lending import loans
from headgate.state.queues import any_guaranteed


class LoanFigures:
    """An observer of an engine with this state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._at = self._borrowed_gpus = self._borrowed_gpu_s = 0.0
        self._runs, self._lost_gpu_s, self._longest_s = 0, 0.0, 0.0
        self._since: dict[str, float] = {}  # by job, for which runs are being stopped

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Take note of the plans of a batch, and what is borrowed after it; O(queues)."""
        del commands
        state, at = self._state, batch[-1].at
        self._borrowed_gpu_s += self._borrowed_gpus * (at - self._at)
        self._at = at
        if not any_guaranteed(state):
            return
        self._borrowed_gpus = sum(loan.gpus_milli for loan in loans(state)) / WHOLE
        for event in batch:
            if isinstance(event, PlanAdmitted):
                self._take_note(event)

    def _take_note(self, plan: PlanAdmitted) -> None:
        for job in dict.fromkeys(start.run.job for start in plan.starts):
            since = self._since.pop(job, plan.at)
            self._longest_s = max(self._longest_s, plan.at - since)
        for stop in plan.stops:
            if stop.lender:
                self._since.setdefault(stop.job, plan.at)
                self._runs += len(stop.runs)
                for run in stop.runs:
                    task = self._state.jobs.first_task[self._state.names.job_rows[run.job]]
                    self._lost_gpu_s += lost_gpu_s(self._state, task + run.ordinal)

    def figures(self) -> dict[str, Any]:
        """Return what was borrowed in all, and the runs that were stopped to take it back.

        `longest_wait_s` is from a decision that stops runs for a job to the next start of that job;
        None where none was stopped.
        """
        return {
            "borrowed_gpu_s": self._borrowed_gpu_s,
            "reclaimed": {
                "count": self._runs,
                "lost_gpu_s": self._lost_gpu_s,
                "longest_wait_s": self._longest_s if self._runs else None,
            },
        }
