"""Why a job waits: the binding reason with its numbers, from the last round's refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from headgate.base.column import Array
from headgate.foresight.nodes import node_reason
from headgate.foresight.outside import BusyNodes, is_used_outside
from headgate.foresight.renewed import at_time, renewed
from headgate.model import Node
from headgate.planning.times.estimates import Estimates
from headgate.planning.units.fit import infeasible_demand, infeasible_gang
from headgate.protocol import Reason
from headgate.protocol.node_reasons import NodeBusyOutside
from headgate.protocol.order_reasons import MaxRunning, SurplusHeld, WaitsForJobs, WaitsForTasks
from headgate.protocol.reasons import (
    UNDECIDED,
    JobsInFlightLimit,
    NoFittingNode,
    NothingFits,
    Short,
    Shortage,
    Undecided,
    UsedElsewhere,
)
from headgate.state import JobState, Snapshot, State, TaskState
from headgate.state.elastic import UnitCounts, unit_counts
from headgate.state.life import DONE, ENDED, HOLDING, PENDING
from headgate.state.queues import as_needed
from headgate.state.stops import waits_preempted
from headgate.state.view import View

_OTHER = (Shortage, NoFittingNode)
"""Reasons about other resources than GPUs."""

_NO_ROOM = (NothingFits, Short)
"""Reasons that nodes have no room."""

_NODES = (NothingFits, Short, Undecided)
"""Reasons of a job that may need other nodes than those that are up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A job's `counts` of tasks by state, and the reason why tasks wait.

    `preempted_tasks` of them wait after a preemption. `waits_s` is the time since submission.
    `reason` is None when no task waits; then `message` may be how the job ended. `elastic` is None
    for other jobs.
    """

    job: str
    state: str
    counts: dict[str, int]
    waits_s: float
    reason: Reason | None
    message: str | None
    preempted_tasks: int = 0
    elastic: UnitCounts | None = None


class ExplanationContext:
    """The data behind the reasons of several jobs, looked up once.

    O(the last round's refusals), and O(jobs) when one of them is queued.
    """

    def __init__(self, view: State | Snapshot, jobs: Collection[int]) -> None:
        """`jobs` are the rows of the jobs to explain."""
        self._view, self._jobs = view, jobs
        self._queued: dict[int, tuple[Array, Array, Array]] = {}
        self._named: dict[int, list[Reason]] | None = None
        self._others: list[Reason] = []
        self._estimates: Estimates | None = None
        self._now: Snapshot | None = None
        self._ends: dict[int, float] = {}  # by job
        self._unavailable: dict[int, tuple[int, ...]] | None = None
        self._is_used_outside = is_used_outside(view)
        self._busy: BusyNodes | None = None

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

    def unavailable(self) -> dict[int, tuple[int, ...]]:
        """Return the GPUs that other programs use, by node; O(GPUs) the first time."""
        if self._unavailable is None:
            up = [row for row in self._view.live_nodes() if not self._view.nodes.draining[row]]
            found = {row: self._view.unavailable_gpus_of(row) for row in up}
            self._unavailable = {row: gpus for row, gpus in found.items() if gpus}
        return self._unavailable

    def busy_outside(
        self, job: int, task: int | None, chosen: Reason, now: float
    ) -> NodeBusyOutside | None:
        """Return that a job, or its task (row), would fit but for use outside Headgate, if so."""
        if not self._is_used_outside or not isinstance(chosen, _NO_ROOM):
            return None
        if self._busy is None:
            self._busy = BusyNodes(self.at_time(now))
        return self._busy.reason(job, task, chosen)

    def expected_end(self, job: int, now: float) -> float:
        """Return when a job is expected to end if all that is left of it runs, else `inf`.

        O(its tasks), the first time.
        """
        if job not in self._ends:
            self._ends[job] = self._end_of_runs(job, now)
        return self._ends[job]

    def at_time(self, now: float) -> Snapshot:
        """Return the state at a time; O(its tables) the first time, if it is no snapshot."""
        if self._now is None or self._now.now < now:
            self._now = at_time(self._view, now)
        return self._now

    def _end_of_runs(self, job: int, now: float) -> float:
        view, rows = self._view, self._view.tasks_of(job)
        states = view.tasks.state.span(rows.start, rows.stop)
        held = np.isin(states, HOLDING)
        over = np.isin(states, DONE)
        if view.jobs.state[job] != JobState.ACTIVE or not (held | over).all():
            return math.inf
        if self._estimates is None:
            self._estimates = Estimates(self.at_time(now))
        return float(self._estimates.end_at(np.flatnonzero(held) + rows.start).max())

    def queued(self, queue: int) -> tuple[Array, Array, Array]:
        """Return the rows of a queue's queued jobs, ascending, their users and priorities.

        Without those that wait for other jobs.
        """
        if queue not in self._queued:
            view, jobs = self._view, self._view.jobs
            in_queue = (jobs.state.array() == JobState.QUEUED) & (jobs.queue.array() == queue)
            rows = np.flatnonzero(in_queue)
            rows = rows[[not view.awaited_jobs(row) for row in rows.tolist()]]
            self._queued[queue] = rows, jobs.user.array()[rows], jobs.priority.array()[rows]
        return self._queued[queue]


def explain(
    view: State | Snapshot,
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
    waits = state not in ENDED and any(s in relevant for s in PENDING)
    reason = None
    if waits:
        context = context or ExplanationContext(view, (job,))
        reason = _reason(view, job, states, task, context, now)
    return Explanation(
        job=view.job(job).id,
        state=state.name.lower(),
        counts=counts,
        waits_s=max(0.0, now - view.jobs.submitted_at[job]) if waits else 0.0,
        reason=reason,
        message=view.jobs.message[job],
        preempted_tasks=_preempted(view, rows),
        elastic=unit_counts(view, job, states),
    )


def _preempted(view: View, rows: range) -> int:
    """Return how many of a job's tasks wait after a preemption; O(its tasks)."""
    some = rows if len(rows) < len(view.stops) else view.stops
    return sum(task in rows and waits_preempted(view, task) for task in some)


def _reason(
    view: View,
    job: int,
    states: list[int],
    task: int | None,
    context: ExplanationContext,
    now: float,
) -> Reason:
    if view.jobs.state[job] == JobState.QUEUED:
        awaited = view.awaited_jobs(job)
        return _awaited(view, awaited, context, now) if awaited else _held_back(view, job, context)
    task_state = None if task is None else view.tasks.state[task]
    if task is not None and task_state == TaskState.BLOCKED:
        return WaitsForTasks(unfinished=view.tasks.blockers[task])
    if task_state == TaskState.HELD or (
        TaskState.WAITING not in states and TaskState.HELD in states  # also surplus
    ):
        return held_by_limit(view, job)
    if TaskState.WAITING not in states:
        before = sum(s in (TaskState.STARTING, TaskState.RUNNING) for s in states)
        return WaitsForTasks(unfinished=before)
    named, others = context.refusals(job)
    if task is not None:  # one without a GPU waits for other reasons than one with
        on_cpus = not view.tasks.gpus[task]
        named = sorted(named, key=lambda reason: isinstance(reason, _OTHER) != on_cpus)
    chosen = next(itertools.chain(named, others), UNDECIDED)
    if isinstance(chosen, _NODES) or view.fleet.drains:
        chosen = node_reason(view, job, now, task) or chosen
    if chosen.holds_until() <= now:
        chosen = renewed(context.at_time(now), chosen)
    chosen = context.busy_outside(job, task, chosen, now) or chosen
    return _used_elsewhere(view, job, context.unavailable()) or chosen


def _used_elsewhere(
    view: View, job: int, unavailable: dict[int, tuple[int, ...]]
) -> UsedElsewhere | None:
    """Return that a job needs GPUs that other programs use, if so; O(nodes + its tasks)."""
    if not unavailable:
        return None
    used = {view.node(row).id: len(gpus) for row, gpus in unavailable.items()}
    available = [_without(view.node(row), unavailable.get(row, ())) for row in view.live_nodes()]
    spec = as_needed(view, job)
    tasks = [spec.tasks[view.ordinal(row)] for row in view.waiting_of(job).tolist()]
    demands = {task.demand for task in tasks if task.demand.gpus}
    if not any(infeasible_demand(demand, available) for demand in demands):
        distinct = spec.distinct_nodes
        if not view.jobs.gang[job] or not infeasible_gang(
            tasks, available, distinct_nodes=distinct
        ):
            return None
    return UsedElsewhere(gpus=sum(used.values()), nodes=tuple(used))


def _without(node: Node, gpus: Collection[int]) -> Node:
    return replace(node, gpus=tuple(gpu for n, gpu in enumerate(node.gpus) if n not in gpus))


def held_by_limit(view: View, job: int) -> MaxRunning | SurplusHeld:
    """Return the reason why HELD tasks of a job in flight wait."""
    running = view.jobs.running[job] + view.jobs.running_cpu[job]
    if view.jobs.beyond[job]:
        return SurplusHeld(running=running, most=view.jobs.task_count[job])
    return MaxRunning(running=running, max_running=view.job(job).max_running or 0)


def _awaited(
    view: View, awaited: list[int], context: ExplanationContext, now: float
) -> WaitsForJobs:
    """Return the reason of a job that waits for others: the one that is expected to end last.

    One of which no end is known comes first.
    """
    jobs, ends = view.jobs, [context.expected_end(job, now) for job in awaited]
    end, job = max(zip(ends, [-job for job in awaited], strict=True))
    runs = jobs.running[-job] + jobs.running_cpu[-job] > 0
    state = "RUNNING" if runs else "PENDING"
    if jobs.state[-job] == JobState.STOPPING:
        state = "STOPPING"
    known = math.isfinite(end)
    return WaitsForJobs(
        job=view.job(-job).id,
        state=state,
        ends_at=end if known else None,
        ahead_s=max(0.0, end - now) if known else None,
        others=len(awaited) - 1,
    )


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
