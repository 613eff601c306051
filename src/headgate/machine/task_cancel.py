"""Cancelling one task of a job while its others continue: for which tasks that is possible, how.

Not for what exists only with the rest of its job: a member of a gang, a unit of an elastic job, a
slot of an executor, and a task whose result later tasks of the job wait for.
"""

from __future__ import annotations

from enum import Enum, auto

from headgate.machine.outstanding import stop_of
from headgate.protocol import Command, StopCause, StopKind, TaskCancelled
from headgate.state import JobState, State, TaskState, moves
from headgate.state.life import DONE, ENDED, PENDING
from headgate.state.stops import is_cancelled
from headgate.state.view import View

_OVER = (*DONE, TaskState.FAILED)


class CancelFault(Enum):
    """Why a task cannot be cancelled alone."""

    UNKNOWN = auto()  # its job has no such task
    OVER = auto()  # it, or its job, has ended
    STOPPING = auto()  # it, or its job, is being cancelled already, or its job has failed
    GANG = auto()
    UNIT = auto()  # of an elastic job
    SLOT = auto()
    AWAITED = auto()  # tasks of its job that were not cancelled come after it


def fault_of(view: View, job: int, ordinal: int, *, now: bool) -> CancelFault | None:
    """Return why a task of a job (row) cannot be cancelled alone, None if it can; O(its tasks).

    One that is being cancelled already can be cancelled again `now`.
    """
    rows, spec = view.tasks_of(job), view.job(job)
    if not 0 <= ordinal < len(rows):
        return CancelFault.UNKNOWN
    task, job_state = rows[ordinal], view.jobs.state[job]
    if job_state in ENDED or view.tasks.state[task] in _OVER:
        return CancelFault.OVER
    if spec.gang:
        return CancelFault.GANG
    if spec.elastic is not None:
        return CancelFault.UNIT
    if spec.items is not None:
        return CancelFault.SLOT
    if job_state == JobState.STOPPING or (is_cancelled(view, task) and not now):
        return CancelFault.STOPPING
    return CancelFault.AWAITED if awaiting(view, job, ordinal) else None


def awaiting(view: View, job: int, ordinal: int) -> list[int]:
    """Return the ordinals of the tasks that come after a task and were not cancelled."""
    rows, tasks = view.tasks_of(job), view.job(job).tasks
    later = (number for number, task in enumerate(tasks) if ordinal in task.after)
    return [number for number in later if not is_cancelled(view, rows[number])]


def cancel_task(state: State, event: TaskCancelled) -> list[Command] | None:
    """Cancel a task, or stop its run first; return the stops, None where that is impossible."""
    job = state.names.job_rows.get(event.job)
    if job is None or fault_of(state, job, event.ordinal, now=event.now) is not None:
        return None
    task = state.tasks_of(job)[event.ordinal]
    moves.give_up(state, task)
    if state.tasks.state[task] in PENDING:
        state.move_task(task, TaskState.CANCELLED)
        commands = []
    else:
        commands = _stop(state, task, event)
    state.jobs.message[job] = _message(state, job, event)
    return commands


def _stop(state: State, task: int, event: TaskCancelled) -> list[Command]:
    """Stop the run of a task, or let one that is being stopped end for good, perhaps `now`."""
    cause = StopCause(StopKind.CANCELLED, f"cancelled by {event.by}", by=event.by)
    stopping = state.tasks.state[task] == TaskState.STOPPING
    before = state.stops.of_run(task, state.tasks.attempts[task]) if stopping else None
    now = event.now or (before is not None and before.now)
    state.record_stop(task, cause, now=now)
    if not stopping:
        state.move_task(task, TaskState.STOPPING)
    return [stop_of(state, task)] if event.now or not stopping else []


def _message(state: State, job: int, event: TaskCancelled) -> str:
    """Return the message of a job of which tasks were cancelled, the last one by this event."""
    rows = state.tasks_of(job)
    count = sum(is_cancelled(state, task) for task in rows)
    if count == len(rows):
        return f"cancelled by {event.by}"
    if count == 1:
        return f"task {event.ordinal} was cancelled by {event.by}"
    last = f"the last one, task {event.ordinal}, by {event.by}"
    return f"{count} of {len(rows)} tasks were cancelled, {last}"
