"""Why a job waits: the binding reason with its numbers, from the last round's refusals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.protocol import Reason
from headgate.protocol.reasons import JobsInFlightLimit, NoFreeCpu, Undecided, WaitsForTasks
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


def explain(view: View, job: int, now: float, task: int | None = None) -> Explanation:
    """Return where a job stands at a time; O(its tasks + the last round's refusals).

    With `task`, the row of one of its tasks, the reason is why that one waits.
    """
    state = JobState(view.jobs.state[job])
    rows = view.tasks_of(job)
    states = view.tasks.state.span(rows.start, rows.stop).tolist()
    counts = {s.name.lower(): states.count(s) for s in TaskState if s in states}
    asked = states if task is None else [view.tasks.state[task]]
    waits = state not in ENDED and any(
        s in asked for s in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING)
    )
    return Explanation(
        job=view.job(job).id,
        state=state.name.lower(),
        counts=counts,
        waits_s=max(0.0, now - view.jobs.submitted_at[job]) if waits else 0.0,
        reason=_reason(view, job, state, states, task) if waits else None,
        message=view.jobs.message[job],
    )


def _reason(view: View, job: int, state: JobState, states: list[int], task: int | None) -> Reason:
    if state is JobState.QUEUED:
        return _held_back(view, job)
    if task is not None and view.tasks.state[task] == TaskState.BLOCKED:
        return WaitsForTasks(unfinished=view.tasks.blockers[task])
    if TaskState.WAITING not in states:
        before = sum(s in (TaskState.STARTING, TaskState.RUNNING) for s in states)
        return WaitsForTasks(unfinished=before)
    named = [r.reason for r in view.refusals if job in r.jobs]
    if task is not None:  # one without a GPU waits for other reasons than one with
        on_cpus = not view.tasks.gpus[task]
        named.sort(key=lambda reason: isinstance(reason, NoFreeCpu) != on_cpus)
    others = [r.reason for r in view.refusals if not r.jobs]
    return next(iter(named + others), Undecided())


def _held_back(view: View, job: int) -> JobsInFlightLimit:
    row = view.jobs.queue[job]
    queue = view.queue(row)
    return JobsInFlightLimit(
        queue=queue.name,
        in_flight=view.queues.in_flight[row],
        max_jobs_in_flight=queue.max_jobs_in_flight or 0,
        ahead=_ahead(view, job),
    )


def _ahead(view: View, job: int) -> int:
    """Return how many queued jobs come into flight before one, if no more arrive; O(jobs).

    The line is by arrival, but whoever stands first lets the best of the same user go before: by
    priority, then arrival. So all go whom the line reaches before it comes to the job itself, or
    to one of its user that lets it go before.
    """
    queue, user = view.jobs.queue[job], view.jobs.user[job]
    queued = (view.jobs.state.array() == JobState.QUEUED) & (view.jobs.queue.array() == queue)
    rows = np.flatnonzero(queued)
    users, priority = view.jobs.user.array()[rows], view.jobs.priority.array()[rows]
    mine, own = priority[rows == job][0], users == user
    before = (priority > mine) | ((priority == mine) & (rows < job))
    turn = rows[own & ~before].min()  # whose turn brings it in: its own, or one of less priority
    reached = ~own & (rows < turn)
    least = np.full(len(view.names.users), np.iinfo(np.int64).max)  # reached, per user
    np.minimum.at(least, users[reached], priority[reached])
    others = ~own & ((priority > least[users]) | reached & (priority == least[users]))
    return int((own & before).sum() + others.sum())
