"""Jobs that come after other jobs: which may be activated, and which can never start."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.state import JobState, State

_FAILED = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}


def never_starts(state: State, job: int) -> str | None:
    """Return why a new job can never start, None if it can; O(the jobs that it comes after)."""
    for name in state.job(job).after:
        row = state.names.job_rows.get(name, job)
        if row >= job:
            return f"there is no job {name}: this job can never start"
        if (reason := prevents(state, row)) is not None:
            return reason
    return None


def prevents(state: State, job: int) -> str | None:
    """Return why the jobs after one can never start, None if they can."""
    how = _FAILED.get(JobState(state.jobs.state[job]))
    return None if how is None else f"{state.job(job).id} {how}: this job can never start"


def pop_followers(state: State, job: int) -> Iterator[int]:
    """Remove an ended job from those that others wait for; yield these, in order of arrival."""
    for row in sorted(set(state.followers.pop(job, ()))):
        if state.jobs.state[row] == JobState.QUEUED:
            yield row
