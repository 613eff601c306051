"""Whose runs are cut short for jobs below their fair share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.flow import Ints
from headgate.planning.standing import Standing
from headgate.state import Snapshot, TaskState


def due(target: Ints, held: Ints, waiting: Ints) -> Ints:
    """Return the tasks that jobs are short of their shares, `[jobs, classes]`, smallest first."""
    short = np.clip(target - held, 0, waiting.sum(axis=1))
    counted = np.minimum(np.cumsum(waiting, axis=1), short[:, None])
    tasks: Ints = np.diff(counted, axis=1, prepend=0)
    return tasks


def victims(
    snapshot: Snapshot, now: Standing, *, target: Ints, slack: float, task: Ints, kind: Ints
) -> tuple[int, ...]:
    """Return the tasks to stop once `task` (indices) are placed on GPUs of class `kind`.

    A job that holds more than `(1 + slack)` of its target loses runs, down to its target but never
    its last one, least time run first. Each victim lets one more task run of a job that is below
    its own target, on top of all that is free or already being stopped, when what is freed is dealt
    out by shares. O(victims x deal).
    """
    cells = np.zeros_like(now.waiting)
    np.add.at(cells, (now.task_job[task], now.task_class[task]), 1)
    won = cells.sum(axis=1)
    if not (now.held + won > (1 + slack) * target).any():
        return ()
    runs = runs_now(snapshot, now)
    stops = np.bincount(runs.job[runs.stopping & (runs.job >= 0)], minlength=len(now.jobs))
    keeps = now.held - stops
    held = keeps + won
    short = due(target, held, now.waiting - cells)
    cut = np.where(held > (1 + slack) * target, np.minimum(held - target, keeps - 1), 0)
    supply = now.free.sum(axis=0)
    np.subtract.at(supply, kind, 1)
    np.add.at(supply, runs.kind[runs.stopping], 1)

    def served() -> int:
        return now.hierarchy.count_dealt(held=held, tasks=short, gpus=supply)

    chosen: list[int] = []
    useless: set[tuple[int, int]] = set()  # queue, class: what one more of them does not help
    helped, wanted = served(), int(short.sum())
    for run in runs.youngest_first(cut):
        job, size = int(runs.job[run]), int(runs.kind[run])
        if helped == wanted:
            break
        if not cut[job] or (int(now.queue[job]), size) in useless:
            continue
        held[job] -= 1
        supply[size] += 1
        if served() > helped:
            helped, cut[job] = helped + 1, cut[job] - 1
            chosen.append(int(runs.task[run]))
        else:
            held[job] += 1
            supply[size] -= 1
            useless.add((int(now.queue[job]), size))
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """GPUs that are held; one value per GPU."""

    gpu: Ints  # rows, ascending
    task: Ints  # rows
    job: Ints  # indices into `Standing.jobs`, -1 for jobs that are not there
    node: Ints  # rows
    kind: Ints  # class
    stopping: NDArray[np.bool_]
    launched_at: NDArray[np.float64]

    def youngest_first(self, cut: Ints) -> list[int]:
        """Return the runs of jobs to be cut, least time run first, ties by row, highest first."""
        found = np.flatnonzero((self.job >= 0) & ~self.stopping)
        found = found[cut[self.job[found]] > 0]
        order: list[int] = found[np.lexsort((-self.task[found], -self.launched_at[found]))].tolist()
        return order


def runs_now(snapshot: Snapshot, now: Standing) -> Runs:
    """Return the GPUs that are held, in the order of their rows."""
    holder = snapshot.gpus.task.array().astype(np.int64)
    gpu = np.flatnonzero(holder >= 0)
    task = holder[gpu]
    index = np.full(len(snapshot.jobs.state), -1)
    index[now.jobs] = np.arange(len(now.jobs))
    return Runs(
        gpu=gpu,
        task=task,
        node=snapshot.gpus.node.array()[gpu].astype(np.int64),
        job=index[snapshot.tasks.job.array()[task]],
        kind=np.searchsorted(now.class_bytes, snapshot.gpus.memory_bytes.array()[gpu]),
        stopping=snapshot.tasks.state.array()[task] == TaskState.STOPPING,
        launched_at=snapshot.tasks.launched_at.array()[task],
    )
