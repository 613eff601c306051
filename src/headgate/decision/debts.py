"""Shares kept over time: what each job still has to do, and what it is owed.

A job is owed the GPU seconds that it has had less than its share while it had use for them; one
that has had more owes them. Debts fade exponentially.
"""

from __future__ import annotations

import numpy as np

from headgate.decision.shares import Floats, Ints
from headgate.decision.standing import Standing
from headgate.state import Snapshot, TaskState
from headgate.state.life import HOLDING

_UNFINISHED = (TaskState.BLOCKED, TaskState.WAITING, *HOLDING)
_RUNS = (TaskState.STARTING, TaskState.RUNNING)  # one that is being stopped starts anew


def missed_gpu_s(snapshot: Snapshot, now: Standing, *, memory_s: float) -> Floats:
    """Return the GPU seconds that each job of `now.jobs` is owed, negative where it owes them.

    Since it was counted last, a debt d grows by the n GPUs missing and fades: d' = n - d / memory.
    """
    jobs = snapshot.jobs
    counted_at = jobs.missed_at.array()[now.jobs]
    passed_s = np.where(np.isnan(counted_at), 0.0, snapshot.now - counted_at)
    kept = np.exp(-passed_s / memory_s)
    since = jobs.missing_gpus.array()[now.jobs] * memory_s * (1 - kept)
    owed: Floats = jobs.missed_gpu_s.array()[now.jobs] * kept + since
    return owed


def changed_debts(
    snapshot: Snapshot, now: Standing, owed: Floats, paid: Floats, missing: Ints
) -> tuple[tuple[int, float, int], ...]:
    """Return what a plan says of debts: of each job that paid, or now misses other GPUs."""
    before = snapshot.jobs.missing_gpus.array()[now.jobs]
    new = np.isnan(snapshot.jobs.missed_at.array()[now.jobs])
    changed = np.flatnonzero((before != missing) | (paid > 0) | new)
    columns = (now.jobs[changed], (owed - paid)[changed], missing[changed])
    return tuple(zip(*(column.tolist() for column in columns), strict=True))


def remaining_gpu_s(snapshot: Snapshot, now: Standing) -> Floats:
    """Return the GPU seconds that the unfinished tasks of each job of `now.jobs` will still take.

    Each as long as runs of its kind took so far, less what it has saved and what it has run
    already; one of a kind without any, as long as the others in the mean. O(tasks since the first
    job in flight).
    """
    if not len(now.jobs):
        return np.zeros(0)
    tasks = snapshot.tasks
    first, end = snapshot.jobs.first_task[int(now.jobs[0])], len(tasks.state)
    state, job = tasks.state.span(first, end), tasks.job.span(first, end)
    ours = np.isin(job, now.jobs) & (tasks.gpus.span(first, end) > 0)
    found = np.flatnonzero(ours & np.isin(state, _UNFINISHED))
    takes_s = snapshot.kinds.held_s.array()[tasks.kind.span(first, end)[found]]
    known = takes_s[~np.isnan(takes_s)]
    takes_s = np.where(np.isnan(takes_s), known.mean() if len(known) else 1.0, takes_s)
    takes_s = np.maximum(takes_s - tasks.progress_s.span(first, end)[found], 0.0)
    run_s = snapshot.now - tasks.launched_at.span(first, end)[found]
    runs = np.isin(state[found], _RUNS)
    left_s = np.where(runs, np.maximum(takes_s - run_s, 0.0), takes_s)
    per_job = np.bincount(job[found], left_s, len(snapshot.jobs.state)).astype(np.float64)
    return per_job[now.jobs]
