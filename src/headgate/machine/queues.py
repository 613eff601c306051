"""Transitions of the tree of queues: it changes, queues go, jobs move to other queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headgate.model import Queue
from headgate.protocol import StopCause, StopKind
from headgate.protocol.events import Preempted
from headgate.state import JobState, State
from headgate.state.life import ENDED
from headgate.state.queues import (
    REMOVED,
    children_of,
    labels_of,
    queue_row,
    queues_of,
    with_labels,
)


def change(state: State, queue: Queue) -> bool:
    """Add a queue, or change one; the jobs below it need its labels from now on.

    Return whether its parent, if any, is there and has no jobs: one may have been submitted since
    the change was checked.
    """
    if queue.parent:
        above = queue_row(state, queue.parent)
        if above is None or any(True for _ in _unended(state, above)):
            return False
    before = {row: labels_of(state, row) for row in queues_of(state)}
    state.set_queue(queue)
    for row in queues_of(state):
        if row in before and labels_of(state, row) != before[row]:
            for job in _unended(state, row):
                _relabel(state, job)
    return True


def remove(state: State, name: str) -> bool:
    """Remove a queue; return whether there was one without queues below it, and without jobs."""
    row = queue_row(state, name)
    if row is None or children_of(state, name) or any(True for _ in _unended(state, row)):
        return False
    state.set_queue(Queue(name=name, state=REMOVED))
    return True


def assign(state: State, job_id: str, name: str) -> tuple[int, ...]:
    """Move a job that has not ended to another queue; its runs continue.

    Return both queues (rows), none if there is no such job, or no such queue for jobs.
    """
    job, queue = state.names.job_rows.get(job_id), queue_row(state, name)
    if job is None or queue is None or state.jobs.state[job] in ENDED:
        return ()
    if children_of(state, name):
        return ()
    before, queues = state.jobs.queue[job], state.queues
    queued = state.jobs.state[job] == JobState.QUEUED
    state.names.jobs[job] = replace(state.job(job), queue=state.queue(queue).name)
    state.jobs.queue[job] = queue
    milli = state.jobs.held_gpus_milli[job]
    for row, sign in ((before, -1), (queue, 1)):
        queues.held_gpus_milli[row] += sign * milli
        (queues.queued if queued else queues.in_flight)[row] += sign
    if queued and not state.awaited_jobs(job):
        state.queued_jobs[before].remove(job)
        state.queued_jobs[queue].add(job, state.jobs.user[job], state.jobs.priority[job])
    _relabel(state, job)
    return before, queue


def _unended(state: State, queue: int) -> Iterator[int]:
    """Yield the jobs (rows) of a queue that have not ended."""
    rows = np.flatnonzero(state.jobs.queue.array() == queue)
    yield from (row for row in rows.tolist() if state.jobs.state[row] not in ENDED)


def _relabel(state: State, job: int) -> None:
    """Let the tasks of a job need the labels of its queue; what its runs hold stays the same."""
    labels = labels_of(state, state.jobs.queue[job])
    for row, task in zip(state.tasks_of(job), state.job(job).tasks, strict=True):
        demand = state.names.demand(with_labels(task.demand, labels))
        if demand == state.tasks.demand[row]:
            continue
        state.tasks.demand[row] = demand
        for grant in sorted({state.tasks.grant[row], state.tasks.target[row]} - {-1}):
            state.grants.demand[grant] = demand


def why_stopped(state: State, stop: Preempted) -> StopCause:
    """Return the cause of stops of a plan; note when a queue takes back what it has lent."""
    text = stop.reason or "preempted"
    if not stop.lender:
        return StopCause(StopKind.PREEMPTED, text, job=stop.job)
    state.queues.taken_back_at[state.names.queue_rows[stop.lender]] = state.now
    return StopCause(StopKind.RECLAIMED, text, job=stop.job, lender=stop.lender)
