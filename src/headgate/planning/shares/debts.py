"""Fair shares over time: the debt to each job, and its remaining work.

A job is owed the GPU seconds that it held less than its fair share while it had tasks for them; one
that held more owes them. Debts decay exponentially.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.order import floats_in_order
from headgate.model import WHOLE
from headgate.planning.shares.standing import Standing
from headgate.planning.shares.task_counts import index_of
from headgate.planning.shares.work import IdleTasks, RunsByGpu
from headgate.planning.units.held_back import held_back
from headgate.protocol import Memo

MISSED_GPU_S, MISSING_GPUS, COUNTED_AT = "missed_gpu_s", "missing_gpus", "counted_at"
"""Columns of the memo, by job: its debt, the GPUs that it misses since, and the time of both."""


_UNKNOWN_S = 1e200
"""Above every known time."""


def debts_gpu_s(standing: Standing, *, memory_s: float) -> Floats:
    """Return the GPU seconds that each job of `now.jobs` is owed, below 0 if it owes them.

    From its time in the memo on, a debt d grows by n, the GPUs missing, and decays: d' = n - d /
    memory_s. That to a job with multi-GPU units does not decay: such a unit is owed what it waits
    for until it starts.
    """
    snapshot = standing.snapshot
    counted_at = _memo(COUNTED_AT, standing)
    missed, missing = _memo_or_0(MISSED_GPU_S, standing), _memo_or_0(MISSING_GPUS, standing)
    passed_s = np.where(np.isnan(counted_at), 0.0, snapshot.now - counted_at)
    kept = np.exp(-passed_s / memory_s)
    owed: Floats = missed * kept + missing * memory_s * (1 - kept)
    if standing.has_multi_gpu.any():
        lasting = missed + missing * passed_s
        owed = np.where(standing.has_multi_gpu, lasting, owed)
    return owed


def updated_debts(standing: Standing, owed: Floats, paid: Floats, missing: Ints) -> Memo:
    """Return the changed rows of the memo: jobs that paid, or now miss another number of GPUs.

    `owed` and `paid` are GPU seconds, `[jobs]`, `missing` GPUs, `[jobs]`.
    """
    before = _memo_or_0(MISSING_GPUS, standing)
    new = np.isnan(_memo(COUNTED_AT, standing))
    changed = np.flatnonzero((before != missing) | (paid > 0) | new)
    jobs = standing.jobs[changed].tolist()
    return {
        MISSED_GPU_S: dict(zip(jobs, (owed - paid)[changed].tolist(), strict=True)),
        MISSING_GPUS: dict(zip(jobs, missing[changed].tolist(), strict=True)),
        COUNTED_AT: dict.fromkeys(jobs, standing.snapshot.now),
    }


def _memo(memo: str, standing: Standing) -> Floats:
    """Return a column of the memo for each job of `now.jobs`, NaN if it has no value."""
    column = standing.snapshot.memos.get(memo)
    values: Floats = (
        np.full(len(standing.jobs), np.nan) if column is None else column.take(standing.jobs)
    )
    return values


def _memo_or_0(memo: str, standing: Standing) -> Floats:
    """Return a column of the memo for each job of `now.jobs`, 0 if it has no value."""
    values = _memo(memo, standing)
    return np.where(np.isnan(values), 0.0, values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishOrder:
    """The debts of a round, and the order in which fair sharing would finish the jobs."""

    owed: Floats  # [jobs] GPU seconds
    order: Ints  # indices of jobs, by (remaining GPU seconds - debt) / share

    @classmethod
    def of(cls, target: Ints, left_s: Floats, owed: Floats) -> FinishOrder:
        """Return the order of jobs with these fair shares and remaining GPU seconds, `[jobs]`."""
        return cls(owed=owed, order=floats_in_order((left_s - owed) / np.maximum(target, 1)))


def remaining_gpu_s(standing: Standing, runs: RunsByGpu, idle: IdleTasks) -> Floats:
    """Return the GPU seconds that each job of `now.jobs` will still take, `[jobs]`.

    Each unfinished task, one that `max_running` holds back too, is expected to take as long as
    earlier runs of its runtime class, or the mean of the other tasks if that has none, less its
    checkpointed work and the time of its current run, on as many GPUs as it needs.
    O(GPUs + jobs x runtime classes + tasks held back).
    """
    snapshot, tasks = standing.snapshot, standing.snapshot.tasks
    gpus = np.flatnonzero((runs.task >= 0) & ~runs.stopping)
    run_s = snapshot.now - runs.launched_at[gpus] + runs.progress_s[gpus]
    later = np.concatenate([idle.begun, held_back(snapshot, standing.jobs)])
    saved_s, begun = tasks.progress_s.take(later), idle.gpus_of(snapshot, later)
    job = np.concatenate([idle.job, tasks.job.take(later), runs.job[gpus]])
    begun_class, run_class = tasks.runtime_class.take(later), runs.runtime_class[gpus]
    runtime_class = np.concatenate([idle.runtime_class, begun_class, run_class])
    count = np.concatenate([idle.gpus, begun, np.ones(len(gpus))])
    done_s = np.concatenate([np.zeros(len(idle.job)), saved_s, run_s])

    index = index_of(standing.jobs, len(snapshot.jobs.state))[job]
    if (index < 0).any():  # of a job that ended
        ours = np.flatnonzero(index >= 0)
        index, runtime_class = index[ours], runtime_class[ours]
        count, done_s = count[ours], done_s[ours]
    takes_s = snapshot.runtime_classes.held_s.array()
    known = ~np.isnan(takes_s)
    tasks_known = np.bincount(runtime_class, count, len(takes_s))[known]
    known_s, learnt = (takes_s[known] * tasks_known).sum(), tasks_known.sum()
    mean_s = known_s / learnt if learnt else 1.0
    left_s = np.maximum(np.where(known, takes_s, mean_s)[runtime_class] - done_s, 0.0)
    return np.bincount(index, left_s * count, len(standing.jobs)).astype(np.float64)


def estimated_gpu_s(standing: Standing, run_s: Floats, running: Ints, left_s: Floats) -> Floats:
    """Return the GPU seconds that each job will still take, `[jobs]`, from estimated times.

    `run_s`, `[jobs]`, is the time of its next run, `left_s` those left of the runs on GPUs, of the
    jobs `running`. A time that is unknown is the mean of the known ones of `run_s`.
    """
    known = run_s[np.isfinite(run_s)]
    mean_s = known.mean() if len(known) else 1.0
    some_s = np.where(np.isfinite(run_s), run_s, mean_s)
    left_s = np.where(left_s < _UNKNOWN_S, left_s, mean_s)
    idle = np.maximum(standing.unfinished.sum(axis=1) - standing.held, 0) + _held_gpus(standing)
    gpu_s: Floats = np.bincount(running, left_s, len(run_s)) + idle * some_s
    return gpu_s


def _held_gpus(standing: Standing) -> Floats:
    """Return the GPUs that the tasks need which `max_running` holds back, `[jobs]`."""
    snapshot, held = standing.snapshot, held_back(standing.snapshot, standing.jobs)
    index = index_of(standing.jobs, len(snapshot.jobs.state))[snapshot.tasks.job.take(held)]
    milli = np.array([demand.gpus_milli for demand in snapshot.names.demands], np.int64)
    weights = milli[snapshot.tasks.demand.take(held)] / WHOLE
    gpus: Floats = np.bincount(index, weights, len(standing.jobs)).astype(np.float64)
    return gpus
