"""Why a job waits: the binding reason with its numbers, from the last round's refusals."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.protocol import Reason
from headgate.protocol.reasons import JobsInFlightLimit, Undecided, WaitsForTasks
from headgate.state import JobState, TaskState
from headgate.state.life import ENDED
from headgate.state.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a job stands: `counts` of its tasks by state, and why what waits, waits.

    `reason` is None when nothing of the job waits; then `message` may say how it ended.
    """

    job: str
    state: str
    counts: dict[str, int]
    waits_s: float
    reason: Reason | None
    message: str | None


def explain(view: View, job: int, now: float) -> Explanation:
    """Return where a job stands at a time; O(its tasks + the last round's refusals)."""
    state = JobState(view.jobs.state[job])
    rows = view.tasks_of(job)
    states = view.tasks.state.span(rows.start, rows.stop).tolist()
    counts = {s.name.lower(): states.count(s) for s in TaskState if s in states}
    waits = state not in ENDED and any(
        s in states for s in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING)
    )
    return Explanation(
        job=view.job(job).id,
        state=state.name.lower(),
        counts=counts,
        waits_s=max(0.0, now - view.jobs.submitted_at[job]) if waits else 0.0,
        reason=_reason(view, job, state, states) if waits else None,
        message=view.jobs.message[job],
    )


def _reason(view: View, job: int, state: JobState, states: list[int]) -> Reason:
    if state is JobState.QUEUED:
        return _held_back(view, job)
    if TaskState.WAITING not in states:
        before = sum(s in (TaskState.STARTING, TaskState.RUNNING) for s in states)
        return WaitsForTasks(unfinished=before)
    for refusal in view.refusals:
        if job in refusal.jobs:
            return refusal.reason
    for refusal in view.refusals:
        if not refusal.jobs:
            return refusal.reason
    return Undecided()


def _held_back(view: View, job: int) -> JobsInFlightLimit:
    row = view.jobs.queue[job]
    queue = view.queue(row)
    states, queues = view.jobs.state.span(0, job), view.jobs.queue.span(0, job)
    ahead = int(((states == JobState.QUEUED) & (queues == row)).sum())
    return JobsInFlightLimit(
        queue=queue.name,
        in_flight=view.queues.in_flight[row],
        max_jobs_in_flight=queue.max_jobs_in_flight or 0,
        ahead=ahead,
    )
