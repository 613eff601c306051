"""Which jobs end by their deadlines, and how often training jobs change their width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.base.units import SAME_INSTANT_S
from headgate.protocol import Command, Event, JobSubmitted, PlanAdmitted, TaskFinished
from headgate.state import JobState, State


class DeadlineFigures:
    """An observer of an engine with this state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs, self._in_time, self._resizes = 0, 0, 0
        self._open: dict[str, float] = {}  # jobs in flight: their deadlines

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Take note of the submissions, ends and plans of a batch; O(its events)."""
        del commands
        state = self._state
        for event in batch:
            if isinstance(event, JobSubmitted) and event.job.deadline_s is not None:
                self._open[event.job.id] = event.at + event.job.deadline_s
                self._jobs += 1
            elif isinstance(event, TaskFinished) and event.run.job in self._open:
                row = state.names.job_rows[event.run.job]
                if state.jobs.state[row] == JobState.FINISHED:
                    by = self._open.pop(event.run.job) + SAME_INSTANT_S
                    self._in_time += state.jobs.ended_at[row] <= by
            elif isinstance(event, PlanAdmitted):
                rows = (state.names.job_rows[width.job] for width in event.widths)
                self._resizes += sum(state.jobs.next_width[row] > 0 for row in rows)

    def figures(self) -> dict[str, Any]:
        """Return the part of the jobs with deadlines that ended in time, and runs for new widths.

        None where no job has one.
        """
        return {
            "deadline_ratio": self._in_time / self._jobs if self._jobs else None,
            "resizes": self._resizes,
        }
