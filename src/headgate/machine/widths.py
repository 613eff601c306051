"""The width of a training job: how many of its tasks, its first ones, are its gang."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Ints
from headgate.protocol import Plan, Steps, StopCause, StopKind, WidthSet
from headgate.state import JobState, State, TaskState, moves
from headgate.state.elastic import unit_size, write_width
from headgate.state.life import HOLDING
from headgate.state.view import View


def width_fault(view: View, plan: Plan) -> str | None:
    """Return what is wrong with the widths of a plan on its own snapshot."""
    if not plan.widths:
        return None
    stopped = np.concatenate((plan.stops.task, plan.moves.task))
    others, starts = _jobs(view, stopped), _jobs(view, plan.starts.task)
    for job, tasks, _ in plan.widths:
        training = view.job(job).training if 0 <= job < len(view.jobs.state) else None
        if training is None:
            return f"there is no training job {job}"
        if tasks not in training.speeds.widths:
            return f"{tasks} is no width of {view.job(job).id}"
        if job in others or (job in starts and view.jobs.running[job] + view.jobs.running_cpu[job]):
            return f"{view.job(job).id} has steps beside its new width"
        others.add(job)
    return None


def _jobs(view: View, tasks: Ints) -> set[int]:
    known = range(len(view.tasks.state))
    return {view.tasks.job[task] for task in tasks.tolist() if task in known}


def widths_of(view: View, plan: Plan, admitted: Steps) -> tuple[WidthSet, ...]:
    """Return the widths of a plan that training jobs in flight do not have, or get, already.

    Without those of jobs whose starts have become infeasible.
    """
    if not plan.widths:
        return ()
    dropped = _jobs(view, plan.starts.task) - _jobs(view, admitted.starts.task)
    return tuple(
        WidthSet(view.job(job).id, tasks, "" if reason is None else reason.cause())
        for job, tasks, reason in plan.widths
        if view.jobs.state[job] == JobState.ACTIVE
        and job not in dropped
        and tasks != (view.jobs.next_width[job] or unit_size(view, job))
    )


def request(state: State, change: WidthSet) -> Iterator[tuple[int, StopCause]]:
    """Give a training job a width; yield it if its runs are to be stopped before, and why.

    It keeps its present one until these have ended.
    """
    job = state.names.job_rows[change.job]
    moves.give_up(state, state.jobs.first_task[job])
    state.jobs.next_width[job] = change.tasks
    if not settle(state, job):
        text = f"its width changes from {unit_size(state, job)} to {change.tasks}"
        text = f"{text}: {change.reason}" if change.reason else text
        yield job, StopCause(StopKind.RESIZED, text)


def settle(state: State, job: int) -> bool:
    """Change the width of a training job if it is to, and none of its tasks runs; O(its tasks).

    Return whether it has.
    """
    jobs, width = state.jobs, state.jobs.next_width[job]
    if not width or jobs.state[job] != JobState.ACTIVE:
        return False
    rows, states = state.tasks_of(job), state.tasks.state
    if any(states[task] in (*HOLDING, TaskState.FINISHED) for task in rows):
        return False
    saved_s = min(state.tasks.progress_s[task] for task in rows[: unit_size(state, job)])
    jobs.next_width[job] = 0
    write_width(state, jobs, job, width)
    for ordinal, task in enumerate(rows):
        state.tasks.progress_s[task] = saved_s
        if ordinal < width and states[task] == TaskState.HELD:
            state.move_task(task, TaskState.WAITING)
        elif ordinal >= width and states[task] == TaskState.WAITING:
            state.move_task(task, TaskState.HELD)
    return True
