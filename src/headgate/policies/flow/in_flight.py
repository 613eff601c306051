"""The work in flight: the runs on GPUs, and when each GPU is expected to be free."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.shares.debts import estimated_gpu_s, remaining_gpu_s
from headgate.planning.shares.standing import Standing
from headgate.planning.shares.task_counts import index_of
from headgate.planning.shares.work import IdleTasks, RunsByGpu
from headgate.planning.units.costs import PRICE_LIMIT
from headgate.policies.flow.times import Times
from headgate.state import Changes, Snapshot, TaskState, saved_s
from headgate.state.moves import gpus_of, grants_of_moves

_SOONEST_S = 0.001  # least wait for a held GPU: above that for a free one


class Work:
    """The work in flight, updated from round to round."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; O(GPUs x log + tasks since the first job in flight)."""
        self.runs, self.idle = RunsByGpu(snapshot), IdleTasks(snapshot)

    def update(self, snapshot: Snapshot, changes: Changes) -> None:
        """Update to a snapshot that differs by `changes` from the last one.

        No node has joined or was lost in between. O(GPUs + jobs x classes + changes x log).
        """
        self.runs.update(snapshot, changes)
        self.idle.update(snapshot, changes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuRuns:
    """The held GPUs and their runs, `[GPUs]`."""

    gpu: Ints  # rows, ascending
    task: Ints  # rows
    job: Ints  # indices into `Standing.jobs`, -1 for other jobs and for tasks that move
    node: Ints  # rows
    gpu_class: Ints
    stopping: Bools
    launched_at: Floats

    def only(self, some: Ints) -> GpuRuns:
        """Return those at some indices."""
        return GpuRuns(**{field.name: getattr(self, field.name)[some] for field in fields(GpuRuns)})


def runs_now(standing: Standing) -> GpuRuns:
    """Return the held GPUs, by row."""
    snapshot = standing.snapshot
    holder = snapshot.gpus.task.array().astype(np.int64)
    gpu = np.flatnonzero(holder >= 0)
    task = holder[gpu]
    kept, left = (gpus_of(snapshot, grants) for grants in grants_of_moves(snapshot))
    job = index_of(standing.jobs, len(snapshot.jobs.state))[snapshot.tasks.job.array()[task]]
    job[np.isin(gpu, [*kept, *left])] = -1
    stopping = snapshot.tasks.state.array()[task] == TaskState.STOPPING
    return GpuRuns(
        gpu=gpu,
        task=task,
        node=snapshot.gpus.node.array()[gpu].astype(np.int64),
        job=job,
        gpu_class=standing.hardware.gpu_class[gpu],
        stopping=stopping & ~np.isin(gpu, kept),
        launched_at=snapshot.tasks.launched_at.array()[task],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InFlight:
    """The held GPUs, when each is expected to be free, and the remaining work of each job."""

    runs: GpuRuns
    all_runs: GpuRuns  # also on GPUs that are reserved for later: not slots of the flow
    wait_s: Floats  # [GPUs] seconds until the run is expected to end
    price: Ints  # [GPUs] the wait in whole microseconds
    left_s: Floats  # [jobs] GPU seconds that the job will still take

    def lost_s(self, snapshot: Snapshot, runs: GpuRuns) -> Floats:
        """Return the seconds lost if runs end now: reading, and work since the checkpoint."""
        task, tasks = runs.task, snapshot.tasks
        computed_s = snapshot.now - tasks.started_at.take(task) - tasks.read_s.take(task)
        speed = tasks.speed.take(task)
        kept_s = saved_s(computed_s * speed, tasks.checkpoint_s.take(task)) / speed
        lost_s: Floats = snapshot.now - runs.launched_at - kept_s
        return lost_s

    def only(self, slots: Bools) -> InFlight:
        """Return the work in flight with some of the held GPUs, a mask."""
        chosen = np.flatnonzero(slots)
        runs = self.runs.only(chosen)
        return replace(self, runs=runs, wait_s=self.wait_s[chosen], price=self.price[chosen])


def in_flight(standing: Standing, work: Work, times: Times | None = None) -> InFlight:
    """Return the work in flight; `View.expected_end` defines when a GPU is expected to be free.

    A run of a runtime class without an ended run is expected to compute as long as it reads. Work
    in a checkpoint is not computed again. The GPUs to which a task moves are held as though its
    next run started now. `times`, if given, has the times of some jobs instead.
    The work left of these is what suffices with probability `BACKFILL_P`: it is compared between
    jobs, and the mean time, which counts for that, is far above the median if times vary much.
    """
    snapshot, held = standing.snapshot, work.runs
    gpu = np.flatnonzero(held.task >= 0)
    kept, left = held.kept[gpu], held.left[gpu]
    read_s, launched_at = held.read_s[gpu], held.launched_at[gpu]
    stopping = held.stopping[gpu] & ~kept
    compute_s = snapshot.runtime_classes.compute_s.array()[held.runtime_class[gpu]]
    left_s = np.maximum(compute_s - held.progress_s[gpu], 0.0)
    takes_s = read_s + np.where(np.isnan(compute_s), read_s, left_s)
    run_s = np.where(kept, 0.0, snapshot.now - launched_at)
    wait_s = np.maximum(np.where(stopping, 0.0, np.abs(takes_s - run_s)), _SOONEST_S)
    task, job = held.task[gpu], index_of(standing.jobs, len(snapshot.jobs.state))[held.job[gpu]]
    left_gpu_s = remaining_gpu_s(standing, held, work.idle)
    if times is not None:
        other = np.flatnonzero(np.isnan(compute_s) | (job < 0) | times.learnt[job])
        wait_s[other] = np.maximum(times.end_at(task[other]) - snapshot.now, _SOONEST_S)
        wait_s[left] = _SOONEST_S
        ours = np.flatnonzero((job >= 0) & ~left)
        ends_s = times.surely_ended_at(task[ours]) - snapshot.now
        estimated = estimated_gpu_s(standing, times.surely_s, job[ours], ends_s)
        left_gpu_s = np.where(times.learnt, estimated, left_gpu_s)
    runs = GpuRuns(
        gpu=gpu,
        task=task,
        job=np.where(kept | left, -1, job),
        node=snapshot.gpus.node.array()[gpu].astype(np.int64),
        gpu_class=standing.hardware.gpu_class[gpu],
        stopping=stopping,
        launched_at=launched_at,
    )
    return InFlight(
        runs=runs,
        all_runs=runs,
        wait_s=wait_s,
        price=np.rint(np.minimum(wait_s * 1e6, PRICE_LIMIT)).astype(np.int64),
        left_s=left_gpu_s,
    )
