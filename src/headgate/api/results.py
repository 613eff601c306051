"""Whether a job has results, and the errors where it has none."""

from __future__ import annotations

import math

from headgate.base.errors import Problem, SpecError
from headgate.base.states import JOB_WORDS, PENDING
from headgate.base.units import format_seconds, format_time
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.elastic import is_unneeded
from headgate.state.life import ENDED
from headgate.state.lookup import task_row


def are_kept(snapshot: Snapshot, job: int) -> bool:
    """Return whether the results and logs of a job have not expired."""
    return math.isnan(snapshot.jobs.expired_at[job])


def need_kept(snapshot: Snapshot, job: int) -> None:
    """Raise SpecError `expired` when the results and logs of a job have expired."""
    if not are_kept(snapshot, job):
        jobs = snapshot.jobs
        raise expired(snapshot.job(job).id, jobs.ended_at[job], jobs.expired_at[job])


def expired(name: str, ended_at: float, expired_at: float) -> SpecError:
    """Return the error that the results and logs of a job have expired."""
    kept = format_seconds(expired_at - ended_at)
    when = f"on {format_time(expired_at)}, {kept} after its end"
    text = f"the results and logs of job {name} expired {when}"
    hint = "submit it again, with 'keep' in the job file to keep them longer"
    return SpecError([Problem(path=name, problem=text, hint=hint)], code="expired")


def need_result(snapshot: Snapshot, job: int, ordinal: int | None) -> None:
    """Raise SpecError when a job (or its task) has no result.

    The code is `expired`, `failed`, `cancelled` or `not_finished`.
    """
    need_kept(snapshot, job)
    state, alone = JobState(snapshot.jobs.state[job]), False
    done = state is JobState.FINISHED
    if ordinal is not None:
        row = task_row(snapshot, job, ordinal)
        if is_unneeded(snapshot, row):
            raise not_needed(snapshot.job(job).id, ordinal)
        task = TaskState(snapshot.tasks.state[row])
        alone = (task, state) == (TaskState.CANCELLED, JobState.ACTIVE)
        done = task is TaskState.FINISHED
        state = JobState.CANCELLED if alone else state
    if not done:
        message = snapshot.jobs.message[job]
        raise no_result(snapshot.job(job).id, ordinal, state, message, alone=alone)


def not_needed(name: str, ordinal: int) -> SpecError:
    """Return the error that a unit of an elastic job has no result, since others did the work."""
    text = f"task {ordinal} of job {name} has no result: it was not needed"
    return SpecError([Problem(path=name, problem=text)], code="not_finished")


def no_result(
    name: str, ordinal: int | None, state: JobState, message: str | None, *, alone: bool = False
) -> SpecError:
    """Return the error that a job in `state` has no result, or its task, which ended `alone`."""
    what = f"job {name}" if ordinal is None else f"task {ordinal} of job {name}"
    code = state.name.lower() if state in ENDED and state != JobState.FINISHED else "not_finished"
    word = JOB_WORDS[state.name.lower()]
    shown = "has not ended" if word == PENDING else f"is {word}"
    text = f"{what} has no result: {'it' if alone else 'the job'} {shown}"
    hint = message or ("" if state in ENDED else f"headgate why {name}")
    return SpecError([Problem(path=name, problem=text, hint=hint)], code=code)
