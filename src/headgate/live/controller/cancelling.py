"""Cancellations: what a user may cancel, and whether it had ended before that was handled."""

from __future__ import annotations

from collections.abc import Collection

from headgate.base.errors import Problem, SpecError
from headgate.base.states import JOB_WORDS, TASK_WORDS
from headgate.journal import Archive
from headgate.machine.task_cancel import CancelFault, awaiting, fault_of
from headgate.model import result_id
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.life import ENDED
from headgate.state.lookup import job_row, known_row, no_task
from headgate.state.stops import is_cancelled

_MOST_NAMED = 8


def need_cancellable(
    view: Snapshot,
    archive: Archive,
    job: str,
    task: int | None,
    *,
    user: str,
    admins: Collection[str],
    now: bool,
) -> None:
    """Raise SpecError where a user cannot cancel a job, or a task of it alone.

    The code is `not_found`, `forbidden`, `already_ended` or, of a task, `not_cancellable`.
    """
    past = None if known_row(view, job) is not None else archive.find(job)
    owner = past.job.user if past is not None else view.job(job_row(view, job)).user
    if user not in (owner, *admins):
        text = f"permission denied: job {job} belongs to {owner}"
        raise SpecError([Problem(path=job, problem=text)], code="forbidden")
    if past is not None:
        ended = JOB_WORDS[past.state]
        if task is not None:
            ended = TASK_WORDS[archive.task(past, task).view["state"]]
        raise _ended_already(job, task, ended)
    row = job_row(view, job)
    if task is not None:
        fault = fault_of(view, row, task, now=now)
        if fault is not None:
            raise _not_alone(view, row, task, fault)
        return
    state = JobState(view.jobs.state[row])
    if state in ENDED or (state == JobState.STOPPING and not now):
        raise _ended_already(job, None, JOB_WORDS[state.name.lower()])


def need_cancelled(
    before: Snapshot, after: Snapshot, job: str, task: int | None, *, user: str
) -> None:
    """Raise SpecError `already_ended` for what ended before its cancellation was handled."""
    row = job_row(after, job)
    if task is not None:
        if not is_cancelled(after, task_row := after.tasks_of(row)[task]):
            word = TASK_WORDS[TaskState(after.tasks.state[task_row]).name.lower()]
            raise _ended_already(job, task, word)
        return
    state = JobState(after.jobs.state[row])
    was_stopping = before.jobs.state[job_row(before, job)] == JobState.STOPPING
    if not was_stopping and state in ENDED and after.jobs.message[row] != f"cancelled by {user}":
        raise _ended_already(job, None, JOB_WORDS[state.name.lower()])


def _ended_already(job: str, task: int | None, word: str) -> SpecError:
    name = job if task is None else result_id(job, task)
    text = f"{'job' if task is None else 'task'} {name} is already {word}"
    runs = "its runs" if task is None else "its run"
    stopping = word == JOB_WORDS["stopping"]
    hint = f"headgate cancel {name} --now kills {runs} without notice" if stopping else ""
    return SpecError([Problem(path=name, problem=text, hint=hint)], code="already_ended")


def _not_alone(view: Snapshot, job: int, task: int, fault: CancelFault) -> SpecError:
    """Return the error that a task cannot be cancelled alone."""
    spec, rows = view.job(job), view.tasks_of(job)
    name, hint = result_id(spec.id, task), f"headgate cancel {spec.id} ends the whole job"
    if fault is CancelFault.UNKNOWN:
        return no_task(spec.id, task, len(rows))
    if fault is CancelFault.OVER:
        word = TASK_WORDS[TaskState(view.tasks.state[rows[task]]).name.lower()]
        return _ended_already(spec.id, task, word)
    if fault is CancelFault.STOPPING:
        alone = view.jobs.state[job] == JobState.ACTIVE
        return _ended_already(spec.id, task if alone else None, JOB_WORDS["stopping"])
    if fault is CancelFault.GANG:
        text = f"{name} is a task of a gang, which ends as a whole"
    elif fault is CancelFault.UNIT:
        text = f"{name} is a unit of an elastic job, of which as many run as there is room for"
    elif fault is CancelFault.SLOT:
        text = f"{name} is a slot, which any call of its job may use"
    else:
        later = awaiting(view, job, task)
        more = f" and {len(later) - _MOST_NAMED} more" if len(later) > _MOST_NAMED else ""
        named = ", ".join(result_id(spec.id, number) for number in later[:_MOST_NAMED])
        text = f"other tasks of its job come after {name}: {named}{more}"
        hint = f"cancel these before it; {hint}"
    return SpecError([Problem(path=name, problem=text, hint=hint)], code="not_cancellable")
