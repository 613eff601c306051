"""Tasks that `max_running` holds back: no policy can start them, yet their work is to be done."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.state import Snapshot, TaskState


def held_back(snapshot: Snapshot, jobs: Ints) -> Ints:
    """Return the rows of the HELD tasks on GPUs of some jobs in flight (rows).

    O(jobs), and O(its tasks) for each job that holds tasks back.
    """
    columns = snapshot.jobs
    begun = sum(
        column.take(jobs)
        for column in (columns.waiting, columns.waiting_cpu, columns.running, columns.running_cpu)
    )
    others = jobs[columns.unfinished.take(jobs) > begun]
    rows = [_held(snapshot, job) for job in others.tolist() if snapshot.job(job).max_running]
    held = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    on_gpus: Ints = held[snapshot.tasks.gpus.take(held) > 0]
    return on_gpus


def _held(snapshot: Snapshot, job: int) -> Ints:
    rows = snapshot.tasks_of(job)
    states = snapshot.tasks.state.span(rows.start, rows.stop)
    held: Ints = (states == TaskState.HELD).nonzero()[0] + rows.start
    return held
