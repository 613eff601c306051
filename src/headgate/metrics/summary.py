"""The figures of a finished run, from the records of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.column import Array
from headgate.base.units import SAME_INSTANT_S
from headgate.metrics.records import JobRecords
from headgate.state import JobState


def summary(
    jobs: JobRecords, *, busy_gpu_s: float, gpus: int, tasks_finished: int
) -> dict[str, Any]:
    """Return makespan, completion and waiting times and utilisation; None where undefined.

    Makespan runs from the first submission to the last end; quantiles interpolate linearly;
    completion times (end - submission) are those of finished jobs; waiting is submission to first
    start, of jobs that started. `tasks_per_s` is `tasks_finished` over the makespan.
    """
    submitted, started, ended = jobs.submitted_at, jobs.started_at, jobs.ended_at
    finished = jobs.state == JobState.FINISHED
    jct_s = (ended - submitted)[finished]
    wait_s = (started - submitted)[~np.isnan(started)]
    over = ~np.isnan(ended)
    makespan_s = float(ended[over].max() - submitted.min()) if over.any() else 0.0
    return {
        "makespan_s": makespan_s,
        "tasks_per_s": tasks_finished / makespan_s if makespan_s else None,
        "jobs_finished": int(finished.sum()),
        "jobs_failed": int((jobs.state == JobState.FAILED).sum()),
        "jobs_cancelled": int((jobs.state == JobState.CANCELLED).sum()),
        "jobs_unfinished": int((~over).sum()),
        "mean_jct_s": _or_none(np.mean, jct_s),
        "median_jct_s": _or_none(np.median, jct_s),
        "p99_jct_s": _or_none(lambda a: np.quantile(a, 0.99), jct_s),
        "mean_wait_s": _or_none(np.mean, wait_s),
        "lost_gpu_s": float(jobs.lost_gpu_s.sum()),
        "migrations": jobs.migrations,
        "gpu_utilisation": busy_gpu_s / (gpus * makespan_s) if gpus and makespan_s else 0.0,
    }


SIZES = (1, 2, 4, 8, 16, 32, 64)
"""The numbers of GPUs from which on waits are reported."""


def wait_by_size(jobs: JobRecords, gpus: Ints) -> list[dict[str, Any]]:
    """Return number, mean and p99 wait of jobs of at least 1, 2, 4, ... 64 GPUs that started.

    `gpus` is the width of each job. None where there are no such jobs.
    """
    wait_s = jobs.started_at - jobs.submitted_at
    rows = []
    for size in SIZES:
        waits_s = wait_s[(gpus >= size) & ~np.isnan(wait_s)]
        row = {
            "gpus_at_least": size,
            "jobs": len(waits_s),
            "mean_wait_s": _or_none(np.mean, waits_s),
            "p99_wait_s": _or_none(lambda a: np.quantile(a, 0.99), waits_s),
        }
        rows.append(row)
    return rows


def finish_time_fairness(jobs: JobRecords, fluid_ends_at: Array) -> dict[str, float | None]:
    """Return mean, p95 and worst of rho = (end - submission) / (the same under fluid sharing).

    Over finished jobs; those that fluid sharing ends as they arrive have no rho. `fluid_ends_at`
    is by job, see `headgate.metrics.fluid_sharing`.
    """
    fluid_s = fluid_ends_at - jobs.submitted_at
    counts = (jobs.state == JobState.FINISHED) & (fluid_s > 0)
    rho = (jobs.ended_at - jobs.submitted_at)[counts] / fluid_s[counts]
    return {
        "mean": _or_none(np.mean, rho),
        "p95": _or_none(lambda a: np.quantile(a, 0.95), rho),
        "worst": _or_none(np.max, rho),
    }


def reservations(jobs: JobRecords) -> dict[str, Any]:
    """Return how many jobs got a reservation, how many started later than their first one began.

    `mean_delay_s` is by how much these did; None where none did.
    """
    delay_s = jobs.started_at - jobs.reserved_at
    late_s = delay_s[delay_s > SAME_INSTANT_S]
    return {
        "made": int((~np.isnan(jobs.reserved_at)).sum()),
        "broken": len(late_s),
        "mean_delay_s": _or_none(np.mean, late_s),
    }


def _or_none(of: Any, values: Array) -> float | None:
    return float(of(values)) if len(values) else None


def fairness(run_s: Mapping[str, float], ideal_s: Mapping[str, float]) -> dict[str, float | None]:
    """Return mean and deviation of s_j = ideal / actual run time over jobs that have both.

    Flow paper, section 5.1: S = mean s_j, deviation = sqrt(mean (s_j - S)^2). A job that takes no
    time counts as 1.
    """
    both = [job for job in run_s if job in ideal_s]
    s = np.array([ideal_s[j] / run_s[j] if run_s[j] > 0 else 1.0 for j in both])
    if not len(s):
        return {"mean": None, "deviation": None}
    return {"mean": float(s.mean()), "deviation": float(np.sqrt(np.mean((s - s.mean()) ** 2)))}


def mean_active_jobs(jobs: JobRecords) -> float:
    """Return the time-mean number of jobs submitted and not ended, over the makespan."""
    submitted, ended = jobs.submitted_at, jobs.ended_at
    over = ~np.isnan(ended)
    if not over.any():
        return 0.0
    span_s = ended[over].max() - submitted.min()
    return float((ended - submitted)[over].sum() / span_s) if span_s > 0 else float(over.sum())
