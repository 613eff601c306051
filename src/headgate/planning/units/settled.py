"""Which runs may be stopped for others: not soon again, and none that others would not gain by."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.protocol import Hardened, Plan
from headgate.state import Snapshot
from headgate.state.hardened import kept_gpus
from headgate.state.life import EXECUTING
from headgate.state.queues import least_runs_s

LEAST_S = 60.0
"""A run that takes the place of a stopped one may be stopped after so long, at the earliest."""


def may_stop(snapshot: Snapshot, tasks: Ints) -> Bools:
    """Return which runs (of tasks, rows) may be stopped for others.

    Not those whose task was stopped before, for `LEAST_S` and the period of its checkpoints, the
    longer of both: a task that others stop again and again would do the same work each time. Nor
    before the `min_run_s` of their queues, nor those on places that are kept for a hardened unit,
    which only that gets.
    """
    may: Bools = settled_at(snapshot, tasks) <= snapshot.now
    return may & ~holds_kept(snapshot, tasks)


def holds_kept(snapshot: Snapshot, tasks: Ints) -> Bools:
    """Return which runs (of tasks, rows) are on places that are kept for a hardened unit."""
    if snapshot.hardened is None:
        return np.zeros(len(tasks), bool)
    return np.isin(tasks, _on_kept(snapshot, snapshot.hardened))


def _on_kept(snapshot: Snapshot, hardened: Hardened) -> Ints:
    """Return the tasks (rows) that hold GPUs which are kept for a unit; of gangs all."""
    holder = snapshot.gpus.task.take(kept_gpus(snapshot, hardened)).astype(np.int64)
    tasks = np.unique(holder[holder >= 0])
    jobs = np.unique(snapshot.tasks.job.take(tasks))
    gangs = jobs[snapshot.jobs.gang.take(jobs) > 0].tolist()
    members = [task for job in gangs for task in snapshot.tasks_of(job)]
    return np.concatenate([tasks, np.array(members, np.int64)])


def settled_at(snapshot: Snapshot, tasks: Ints) -> Floats:
    """Return from when on the runs of tasks (rows) may be stopped for others; -inf: at any time."""
    columns = snapshot.tasks
    ended = columns.attempts.take(tasks).astype(np.int64) - 1
    stopped = ended > columns.failures.take(tasks) + columns.crashes.take(tasks)
    least_s = np.maximum(LEAST_S, columns.checkpoint_s.take(tasks))
    at = np.where(stopped, columns.launched_at.take(tasks) + least_s, -np.inf)
    return np.maximum(at, least_end_at(snapshot, tasks))


def least_end_at(snapshot: Snapshot, tasks: Ints) -> Floats:
    """Return from when on the queues of runs (of tasks, rows) let them be stopped, or -inf."""
    columns, least_s = snapshot.tasks, least_runs_s(snapshot)
    if not least_s.any():
        return np.full(len(tasks), -np.inf)
    least_s = least_s[snapshot.jobs.queue.take(columns.job.take(tasks))]
    return np.where(least_s > 0, columns.launched_at.take(tasks) + least_s, -np.inf)


def next_settled_at(snapshot: Snapshot, plan: Plan) -> float | None:
    """Return when the next run may be stopped that may not yet, while units wait for GPUs.

    A plan that did not stop it, since it may not, has to be made again then. O(tasks).
    """
    if not (snapshot.jobs.waiting.array() > 0).any():
        return plan.again_at
    may_be_settled = snapshot.tasks.attempts.array() > (0 if least_runs_s(snapshot).any() else 1)
    again = np.flatnonzero(may_be_settled)  # few or none
    runs = again[np.isin(snapshot.tasks.state.take(again), EXECUTING)]
    at = settled_at(snapshot, runs)
    next_at = float(at[at > snapshot.now].min(initial=np.inf))
    if plan.again_at is not None:
        next_at = min(next_at, plan.again_at)
    return next_at if np.isfinite(next_at) else plan.again_at
