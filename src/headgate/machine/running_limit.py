"""`Job.max_running`: how many tasks of a job are in flight; the others are HELD.

In flight are tasks that wait for a placement, or hold one. A task keeps its place when its run ends
without a result: only a task that finished, or that earlier tasks block again, makes room.
"""

from __future__ import annotations

import numpy as np

from headgate.state import JobState, State, TaskState
from headgate.state.elastic import is_beyond


def unblock(state: State, task: int) -> None:
    """Let a task wait that no earlier task blocks; hold it back if `max_running` applies to it.

    `release_held` then moves on as many as there is room for. What is beyond the unit of its job
    stays held.
    """
    job = state.job(state.tasks.job[task])
    held = job.max_running is not None and job.is_limited(state.ordinal(task))
    to = TaskState.HELD if held or is_beyond(state, task) else TaskState.WAITING
    if state.tasks.state[task] != to:
        state.move_task(task, to)


def release_held(state: State, job: int) -> None:
    """Let held tasks of a job in flight wait while `max_running` allows, by their ordinals.

    O(1) without room, else O(its tasks).
    """
    limit = state.job(job).max_running
    if limit is None or state.jobs.state[job] != JobState.ACTIVE:
        return
    room = limit - _in_flight(state, job)
    if room <= 0:
        return
    rows = state.tasks_of(job)
    held = state.tasks.state.span(rows.start, rows.stop) == TaskState.HELD
    for task in np.flatnonzero(held)[:room].tolist():
        state.move_task(rows.start + task, TaskState.WAITING)


def _in_flight(state: State, job: int) -> int:
    """Return how many tasks of a job wait for a placement or hold one."""
    jobs = state.jobs
    columns = (jobs.waiting, jobs.waiting_cpu, jobs.running, jobs.running_cpu)
    return sum(column[job] for column in columns)
