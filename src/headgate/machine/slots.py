"""Slots of executors whose owner needs no more of them."""

from __future__ import annotations

import numpy as np

from headgate.state import JobState, State, TaskState, moves
from headgate.state.view import View

_HAS_NO_RUN = (TaskState.HELD, TaskState.WAITING)


def has_unneeded(view: View, row: int) -> bool:
    """Return whether slots of a job have no run, so that they can be withdrawn; O(its tasks)."""
    job, rows = view.job(row), view.tasks_of(row)
    if view.jobs.state[row] not in (JobState.QUEUED, JobState.ACTIVE):
        return False
    if job.items is None or job.gang or any(task.after for task in job.tasks):
        return False
    return bool(np.isin(view.tasks.state.span(rows.start, rows.stop), _HAS_NO_RUN).any())


def withdraw(state: State, name: str) -> int | None:
    """Finish the slots of a job that have no run; return its row, None if it has no such slots.

    Those that run end when their owner hangs up.
    """
    row = state.names.job_rows.get(name)
    if row is None or not has_unneeded(state, row):
        return None
    for task in state.tasks_of(row):
        if state.tasks.state[task] in _HAS_NO_RUN:
            moves.give_up(state, task)
            state.move_task(task, TaskState.FINISHED)
    return row
