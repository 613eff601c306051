"""Why a job waits: the binding reason with its numbers, from the last round's refusals."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from headgate.base.column import Array
from headgate.protocol import Reason
from headgate.protocol.reasons import (
    JobsInFlightLimit,
    NoFittingNode,
    Shortage,
    Undecided,
    WaitsForTasks,
)
from headgate.state import JobState, TaskState
from headgate.state.life import ENDED
from headgate.state.view import View

_OTHER = (Shortage, NoFittingNode)
"""Reasons about other resources than GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A job's `counts` of tasks by state, and the reason why tasks wait.

    `preempted_tasks` of them wait after a preemption. `waits_s` is the time since submission.
    `reason` is None when no task waits; then `message` may be how the job ended.
    """

    job: str
    state: str
    counts: dict[str, int]
    waits_s: float
    reason: Reason | None
    message: str | None
    preempted_tasks: int = 0


class ExplanationContext:
    """The data behind the reasons of several jobs, looked up once.

    O(the last round's refusals), and O(jobs) when one of them is queued.
    """

    def __init__(self, view: View, jobs: Collection[int]) -> None:
        """`jobs` are the rows of the jobs to explain."""
        self._view, self._jobs = view, jobs
        self._queued: dict[int, tuple[Array, Array, Array]] = {}
        self._named: dict[int, list[Reason]] | None = None
        self._others: list[Reason] = []

    def refusals(self, job: int) -> tuple[list[Reason], list[Reason]]:
        """Return the reasons of refusals for a job, and of those for all jobs."""
        if self._named is None:  # refusals are computed only if a task waits
            self._named = {job: [] for job in self._jobs}
            self._others = [refusal.reason for refusal in self._view.refusals if not refusal.jobs]
            for refusal in self._view.refusals:
                for named in refusal.jobs:
                    if named in self._named:
                        self._named[named].append(refusal.reason)
        return self._named[job], self._others

    def queued(self, queue: int) -> tuple[Array, Array, Array]:
        """Return the rows of a queue's queued jobs, ascending, their users and priorities."""
        if queue not in self._queued:
            jobs = self._view.jobs
            in_queue = (jobs.state.array() == JobState.QUEUED) & (jobs.queue.array() == queue)
            rows = np.flatnonzero(in_queue)
            self._queued[queue] = rows, jobs.user.array()[rows], jobs.priority.array()[rows]
        return self._queued[queue]


def explain(
    view: View,
    job: int,
    now: float,
    task: int | None = None,
    context: ExplanationContext | None = None,
) -> Explanation:
    """Return the states of a job's tasks and why they wait; O(its tasks + last round's refusals).

    With `task`, the row of one of its tasks, the reason is why that one waits. To
    explain many jobs, pass one `context` for all.
    """
    state = JobState(view.jobs.state[job])
    rows = view.tasks_of(job)
    states = view.tasks.state.span(rows.start, rows.stop).tolist()
    counts = {s.name.lower(): states.count(s) for s in TaskState if s in states}
    relevant = states if task is None else [view.tasks.state[task]]
    waits = state not in ENDED and any(
        s in relevant for s in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING)
    )
    reason = None
    if waits:
        reason = _reason(view, job, states, task, context or ExplanationContext(view, (job,)))
    return Explanation(
        job=view.job(job).id,
        state=state.name.lower(),
        counts=counts,
        waits_s=max(0.0, now - view.jobs.submitted_at[job]) if waits else 0.0,
        reason=reason,
        message=view.jobs.message[job],
        preempted_tasks=_preempted(view, rows),
    )


def _preempted(view: View, rows: range) -> int:
    """Return how many of a job's tasks wait after a preemption; O(such tasks of all jobs)."""
    waits, state = (TaskState.WAITING, TaskState.BLOCKED), view.tasks.state
    return sum(task in rows and state[task] in waits for task in view.preempted)


def _reason(
    view: View, job: int, states: list[int], task: int | None, context: ExplanationContext
) -> Reason:
    if view.jobs.state[job] == JobState.QUEUED:
        return _held_back(view, job, context)
    if task is not None and view.tasks.state[task] == TaskState.BLOCKED:
        return WaitsForTasks(unfinished=view.tasks.blockers[task])
    if TaskState.WAITING not in states:
        before = sum(s in (TaskState.STARTING, TaskState.RUNNING) for s in states)
        return WaitsForTasks(unfinished=before)
    named, others = context.refusals(job)
    if task is not None:  # one without a GPU waits for other reasons than one with
        on_cpus = not view.tasks.gpus[task]
        named = sorted(named, key=lambda reason: isinstance(reason, _OTHER) != on_cpus)
    return next(itertools.chain(named, others), Undecided())


def _held_back(view: View, job: int, context: ExplanationContext) -> JobsInFlightLimit:
    row = view.jobs.queue[job]
    queue = view.queue(row)
    return JobsInFlightLimit(
        queue=queue.name,
        in_flight=view.queues.in_flight[row],
        max_jobs_in_flight=queue.max_jobs_in_flight or 0,
        ahead=_ahead(view, job, *context.queued(row)),
    )


def _ahead(view: View, job: int, rows: Array, users: Array, priority: Array) -> int:
    """Return how many queued jobs are activated before one, if no more arrive.

    O(`rows`, the queued jobs of its queue). The order is by arrival, but the first job is replaced
    by the best job of the same user: by priority, then arrival. So the jobs ahead are those that
    the order reaches before the job itself, or before one of its user that it replaces.
    """
    mine, own = priority[rows == job][0], users == view.jobs.user[job]
    before = (priority > mine) | ((priority == mine) & (rows < job))
    turn = rows[own & ~before].min()  # its own place in the order, or that of one of less priority
    reached = ~own & (rows < turn)
    least = np.full(len(view.names.users), np.iinfo(np.int64).max)  # reached, per user
    np.minimum.at(least, users[reached], priority[reached])
    others = ~own & ((priority > least[users]) | reached & (priority == least[users]))
    return int((own & before).sum() + others.sum())
