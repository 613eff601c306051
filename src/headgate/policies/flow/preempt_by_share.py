"""Preemption by shares (`fsp`): the runs that are stopped for jobs below their fair share."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.shares.standing import Standing
from headgate.planning.units.settled import may_stop
from headgate.policies.flow.in_flight import GpuRuns, runs_now
from headgate.policies.flow.placed import Placed


def victims(standing: Standing, *, target: Ints, slack: float, starts: Placed) -> tuple[int, ...]:
    """Return the tasks to stop once the tasks `starts` have started.

    A job that holds more than `(1 + slack)` of its target loses runs, down to its target but never
    its last one, the latest started first; gangs lose none. Each victim allows at least one more
    task of a job below its own target to run, beyond the GPUs that are free or being freed, when
    these are allocated by shares. O(victims x allocation).
    """
    cells = np.zeros_like(standing.waiting)
    np.add.at(cells, (standing.task_job[starts.task], standing.task_type[starts.task]), 1)
    won = cells.sum(axis=1)
    if not (standing.held + won > (1 + slack) * target).any():
        return ()
    runs = runs_now(standing)
    stops = np.bincount(runs.job[runs.stopping & (runs.job >= 0)], minlength=len(standing.jobs))
    keeps = standing.held - stops
    held = keeps + won
    left = standing.waiting - cells
    short = np.clip(target - held, 0, left.sum(axis=1))
    spare = np.where(held > (1 + slack) * target, np.minimum(held - target, keeps - 1), 0)
    supply = standing.free.sum(axis=0)
    np.subtract.at(supply, starts.gpu_class, 1)
    np.add.at(supply, runs.gpu_class[runs.stopping], 1)

    def served() -> int:
        return standing.hierarchy.count_allocated(
            held=held, tasks=left, gpus=supply, accepts=standing.accepts, most=short
        )

    chosen: list[int] = []
    useless: set[tuple[int, int]] = set()  # queue, class: another victim of these helps no task
    helped, wanted = served(), int(short.sum())
    for gpus in _youngest_first(standing, runs, spare):
        job, size = int(runs.job[gpus[0]]), int(runs.gpu_class[gpus[0]])
        if helped == wanted:
            break
        if spare[job] < len(gpus) or (int(standing.queue[job]), size) in useless:
            continue
        held[job] -= len(gpus)
        np.add.at(supply, runs.gpu_class[gpus], 1)
        if served() > helped:
            helped, spare[job] = served(), spare[job] - len(gpus)
            chosen.append(int(runs.task[gpus[0]]))
        else:
            held[job] += len(gpus)
            np.subtract.at(supply, runs.gpu_class[gpus], 1)
            useless.add((int(standing.queue[job]), size))
    return tuple(chosen)


def _youngest_first(standing: Standing, runs: GpuRuns, spare: Ints) -> list[Ints]:
    """Return the GPUs (indices into `GpuRuns`) of each run of jobs that have some to spare.

    The latest launch first, then the highest row; without gangs.
    """
    gang = standing.snapshot.jobs.gang.take(standing.jobs) > 0
    gpus = np.flatnonzero((runs.job >= 0) & ~runs.stopping)
    gpus = gpus[(spare[runs.job[gpus]] > 0) & ~gang[runs.job[gpus]]]
    gpus = gpus[may_stop(standing.snapshot, runs.task[gpus])]
    order = gpus[np.lexsort((-runs.task[gpus], -runs.launched_at[gpus]))]
    return np.split(order, np.flatnonzero(np.diff(runs.task[order])) + 1) if len(order) else []
