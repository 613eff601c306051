"""Shares kept over time: what each job still has to do, and what it is owed.

A job is owed the GPU seconds that it has had less than its share while it had use for them; one
that has had more owes them. Debts fade exponentially.
"""

from __future__ import annotations

import numpy as np

from headgate.planning.census import index_of
from headgate.planning.shares import Floats, Ints
from headgate.planning.standing import Standing
from headgate.planning.work import Backlog, Holders
from headgate.protocol import Memo
from headgate.state import Snapshot

MISSED_GPU_S, MISSING_GPUS, COUNTED_AT = "missed_gpu_s", "missing_gpus", "counted_at"
"""What is remembered of a job: its debt, the GPUs that it misses since, and when that was so."""


def missed_gpu_s(snapshot: Snapshot, now: Standing, *, memory_s: float) -> Floats:
    """Return the GPU seconds that each job of `now.jobs` is owed, negative where it owes them.

    Since it was counted last, a debt d grows by the n GPUs missing and fades: d' = n - d / memory.
    """
    counted_at = snapshot.memo(COUNTED_AT)[now.jobs]
    passed_s = np.where(np.isnan(counted_at), 0.0, snapshot.now - counted_at)
    kept = np.exp(-passed_s / memory_s)
    since = _known(snapshot, MISSING_GPUS, now) * memory_s * (1 - kept)
    owed: Floats = _known(snapshot, MISSED_GPU_S, now) * kept + since
    return owed


def changed_debts(
    snapshot: Snapshot, now: Standing, owed: Floats, paid: Floats, missing: Ints
) -> Memo:
    """Return what to remember of debts: of each job that paid, or now misses other GPUs."""
    before = _known(snapshot, MISSING_GPUS, now)
    new = np.isnan(snapshot.memo(COUNTED_AT)[now.jobs])
    changed = np.flatnonzero((before != missing) | (paid > 0) | new)
    jobs = now.jobs[changed].tolist()
    return {
        MISSED_GPU_S: dict(zip(jobs, (owed - paid)[changed].tolist(), strict=True)),
        MISSING_GPUS: dict(zip(jobs, missing[changed].tolist(), strict=True)),
        COUNTED_AT: dict.fromkeys(jobs, snapshot.now),
    }


def _known(snapshot: Snapshot, memo: str, now: Standing) -> Floats:
    """Return what is remembered of each job of `now.jobs`, 0 where that is nothing."""
    values = snapshot.memo(memo)[now.jobs]
    return np.where(np.isnan(values), 0.0, values)


def remaining_gpu_s(now: Standing, holders: Holders, backlog: Backlog) -> Floats:
    """Return the GPU seconds that the unfinished tasks of each job of `now.jobs` will still take.

    Each as long as runs of its kind took so far, less what it has saved and what it has run
    already; one of a kind without any, as long as the others in the mean. O(GPUs + jobs x kinds).
    """
    snapshot, tasks = now.snapshot, now.snapshot.tasks
    runs = np.flatnonzero((holders.task >= 0) & ~holders.stopping)
    runs_s = snapshot.now - holders.launched_at[runs] + holders.progress_s[runs]
    saved_s, begun = tasks.progress_s.take(backlog.begun), np.ones(len(backlog.begun), np.int64)
    job = np.concatenate([backlog.job, tasks.job.take(backlog.begun), holders.job[runs]])
    kind = np.concatenate([backlog.kind, tasks.kind.take(backlog.begun), holders.kind[runs]])
    count = np.concatenate([backlog.count, begun, np.ones_like(runs)])
    done_s = np.concatenate([np.zeros(len(backlog.count)), saved_s, runs_s])

    at = index_of(now.jobs, len(snapshot.jobs.state))[job]
    if (at < 0).any():  # of a job that is no longer in flight, or a stranger
        ours = np.flatnonzero(at >= 0)
        at, kind, count, done_s = at[ours], kind[ours], count[ours], done_s[ours]
    takes_s = snapshot.kinds.held_s.array()
    known = ~np.isnan(takes_s)
    tasks_known = np.bincount(kind, count, len(takes_s))[known]
    known_s, learnt = (takes_s[known] * tasks_known).sum(), tasks_known.sum()
    mean_s = known_s / learnt if learnt else 1.0
    left_s = np.maximum(np.where(known, takes_s, mean_s)[kind] - done_s, 0.0)
    return np.bincount(at, left_s * count, len(now.jobs)).astype(np.float64)
