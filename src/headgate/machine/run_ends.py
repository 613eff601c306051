"""How the end of a run counts for its task, for the gang of that, and for its job."""

from __future__ import annotations

import numpy as np

from headgate.protocol import FailureKind
from headgate.state import JobState, State, TaskState
from headgate.state.life import DONE, ENDED
from headgate.state.moves import unit_of
from headgate.state.stops import is_cancelled

CRASHES_MOST = 3
"""Runs lost on nodes that stayed up, mostly with their executor, after which a task fails."""


def counts_as_finished(state: State, task: int) -> bool:
    """Return whether a run that finished before its stop arrived counts as finished.

    One that was cancelled, or of a job that is ending, does not; nor does one of a gang of which
    another member waits or moves already, so that the gang starts again as a whole.
    """
    jobs, job = state.jobs, state.tasks.job[task]
    if jobs.state[job] != JobState.ACTIVE or not state.job(job).gang:
        return bool(jobs.state[job] == JobState.ACTIVE) and not is_cancelled(state, task)
    waits = jobs.waiting[job] + jobs.waiting_cpu[job] > 0
    moving = (state.tasks.state[member] == TaskState.MOVING for member in unit_of(state, task))
    return not (waits or any(moving))


def end_of_job(state: State, job: int) -> JobState | None:
    """Return how a job ends as none of its tasks waits or runs any more, None before.

    O(1) while one waits for a placement or runs; else O(its tasks).
    """
    jobs, job_state = state.jobs, JobState(state.jobs.state[job])
    if job_state in ENDED or jobs.running[job] or jobs.running_cpu[job]:
        return None
    if not jobs.unfinished[job]:
        return JobState.FINISHED
    if jobs.waiting[job] or jobs.waiting_cpu[job]:
        return None
    rows = state.tasks_of(job)
    states = state.tasks.state.span(rows.start, rows.stop)
    if job_state is JobState.STOPPING:
        return JobState.FAILED if (states == TaskState.FAILED).any() else JobState.CANCELLED
    ended = np.isin(states, DONE).all()
    return JobState.CANCELLED if ended else None


def failed_for_good(state: State, task: int, kind: FailureKind) -> str | None:
    """Count a failure; return in words what makes the job fail, None if the task runs again."""
    job = state.tasks.job[task]
    if kind is FailureKind.CRASHED:
        counter, most = state.tasks.crashes, CRASHES_MOST - 1
        what = "was lost, on nodes that stayed up,"
    else:
        counter, most, what = state.tasks.failures, state.job(job).retries, "failed"
    gang = state.job(job).gang  # it restarts as a whole: so its failures count together
    counter[task] += 1
    count = sum(counter[t] for t in state.tasks_of(job)) if gang else counter[task]
    if count <= most:
        return None
    times = f"{count} times" if count > 1 else "once"
    name = f"task {state.ordinal(task)}"
    if gang and count > 1:
        return f"the gang {what} {times}, last {name}"
    return f"{name} {what} {times}"
