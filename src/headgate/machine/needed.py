"""Tasks that are needed no more: slots whose owner withdraws them, and units of elastic jobs.

And those that run only while there is room for them, the surplus of elastic jobs.
"""

from __future__ import annotations

import numpy as np

from headgate.state import JobState, State, TaskState, moves
from headgate.state.elastic import is_surplus
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
    _finish_without_run(state, row)
    return row


def finish_others(state: State, job: int) -> None:
    """Finish the tasks of a job that are not needed any more; O(its tasks).

    Units of an elastic job without a run, as one has finished; tasks beyond the width of a training
    job, of which all others have.
    """
    spec, jobs = state.job(job), state.jobs
    whole = spec.training is not None and jobs.unfinished[job] == jobs.beyond[job] > 0
    if (whole or spec.elastic is not None) and jobs.state[job] == JobState.ACTIVE:
        _finish_without_run(state, job)


def wait_again(state: State, task: int) -> None:
    """End a run without a result whose task waits again, is surplus again, or is not needed."""
    blocked = state.unfinished_before(task)
    state.tasks.blockers[task] = blocked
    state.release(task, TaskState.BLOCKED if blocked else TaskState.WAITING)
    job = state.tasks.job[task]
    if state.job(job).elastic is None:
        return
    if state.jobs.unfinished[job] < state.jobs.task_count[job]:
        state.move_task(task, TaskState.FINISHED)
    elif is_surplus(state, task):
        state.move_task(task, TaskState.HELD)


def grant(state: State, task: int) -> None:
    """Let surplus that is to start wait for that instant."""
    if state.tasks.state[task] == TaskState.HELD:
        state.move_task(task, TaskState.WAITING)


def _finish_without_run(state: State, job: int) -> None:
    for task in state.tasks_of(job):
        if state.tasks.state[task] in _HAS_NO_RUN:
            moves.give_up(state, task)
            state.move_task(task, TaskState.FINISHED)
