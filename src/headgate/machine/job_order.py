"""Jobs that come after other jobs: which may be activated, and which can never start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.machine.running_limit import release_held, unblock
from headgate.state import JobState, State, TaskState
from headgate.state.queues import children_of, queue_row

_FAILED = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}


def never_starts(state: State, job: int) -> str | None:
    """Return why a new job can never start, None if it can; O(the jobs that it comes after).

    Its queue may have been removed or divided since the job was checked.
    """
    queue = state.job(job).queue
    if queue_row(state, queue) is None:
        return f"queue {queue} was removed: this job can never start"
    if children_of(state, queue):
        return f"queue {queue} was divided, and has no jobs: this job can never start"
    for name in state.job(job).after:
        row = state.names.job_rows.get(name, job)
        if row >= job:
            return f"there is no job {name}: this job can never start"
        if (reason := _prevents(state, row)) is not None:
            return reason
    return None


def cancel_queued(state: State, job: int, message: str) -> None:
    """Cancel a queued job and all its tasks."""
    for task in state.tasks_of(job):
        if state.tasks.state[task] != TaskState.CANCELLED:
            state.move_task(task, TaskState.CANCELLED)
    state.move_job(job, JobState.CANCELLED, message)


def activate(state: State, job: int) -> None:
    """Let the tasks of a queued job wait, but those that were cancelled; O(its tasks)."""
    state.move_job(job, JobState.ACTIVE)
    for task in state.tasks_of(job):
        if state.tasks.state[task] == TaskState.CANCELLED:
            continue
        if state.tasks.blockers[task] > 0:
            state.move_task(task, TaskState.BLOCKED)
        else:
            unblock(state, task)
    release_held(state, job)


def release_followers(state: State, job: int) -> Iterable[int]:
    """Enqueue the jobs that waited for an ended one alone, or cancel those that can never start.

    Return the queues in which jobs may be activated now.
    """
    ended, queues = [job], {state.jobs.queue[job]: None}
    for before in ended:  # grows
        reason = _prevents(state, before)
        for row in _pop_followers(state, before):
            if reason is not None:
                cancel_queued(state, row, reason)
                ended.append(row)
            elif not state.awaited_jobs(row):
                state.enqueue(row)
                queues[state.jobs.queue[row]] = None
    return queues


def _prevents(state: State, job: int) -> str | None:
    """Return why the jobs after one can never start, None if they can."""
    how = _FAILED.get(JobState(state.jobs.state[job]))
    return None if how is None else f"{state.job(job).id} {how}: this job can never start"


def _pop_followers(state: State, job: int) -> Iterator[int]:
    """Remove an ended job from those that others wait for; yield these, in order of arrival."""
    for row in sorted(set(state.followers.pop(job, ()))):
        if state.jobs.state[row] == JobState.QUEUED:
            yield row
