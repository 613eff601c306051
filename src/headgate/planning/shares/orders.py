"""Orders of jobs: who is next, apart from where and how many.

An order ranks jobs that wait; one that preempts also those that run, and what comes later in it
gives way.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model import WHOLE, Job
from headgate.planning.shares.fair_shares import Hierarchy, fair_shares
from headgate.planning.shares.queue_tree import queue_tree
from headgate.planning.times.estimates import Estimates
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.life import DONE, HOLDING
from headgate.state.quota_rows import quota_rows
from headgate.state.tables import GPU_GONE

_SAME_GPU_S = 1e-3  # the error of sums of GPU seconds
_SOONEST_S = 1e-3


class JobOrder(Protocol):
    """Sorts jobs in the order in which they are served."""

    @property
    def name(self) -> str:
        """The name in files."""
        ...

    def rank(self, snapshot: Snapshot, jobs: Ints) -> Ints:
        """Return jobs (rows, ascending) in their order."""
        ...

    def changes_at(self, snapshot: Snapshot, jobs: Ints, held_milli: Ints) -> float | None:
        """Return when the order of jobs changes, if that is without an event; None if never.

        `held_milli`, `[jobs]`, are the thousandths of GPUs that they hold from now on.
        """
        ...


class Arrival:
    """The order of arrival."""

    name = "arrival"

    def rank(self, snapshot: Snapshot, jobs: Ints) -> Ints:
        """Return the jobs: rows are in order of arrival."""
        del snapshot
        return jobs

    def changes_at(self, snapshot: Snapshot, jobs: Ints, held_milli: Ints) -> None:
        """Return None: it never changes."""
        del snapshot, jobs, held_milli


class FairFinish:
    """The order in which fair sharing would end jobs: by the GPU seconds left / the fair share.

    The shares are those of all jobs in flight (`planning.shares.fair_shares`), counted in GPUs; the
    time left is as expected (`planning.times.estimates`), that of tasks of unknown length the mean
    of the others. Friedman and Henderson, Fairness and efficiency in web server protocols,
    SIGMETRICS 2003.
    """

    name = "fair"

    def rank(self, snapshot: Snapshot, jobs: Ints) -> Ints:
        """Return the jobs in that order, ties by arrival; O(unfinished tasks)."""
        rows = snapshot.jobs
        if not len(jobs):
            return jobs
        unfinished = rows.unfinished.array() > 0
        active = np.flatnonzero(unfinished & (rows.state.array() == JobState.ACTIVE))
        job, gpus, left_s, eligible = _unfinished(snapshot, active)
        wanted = np.ceil(np.bincount(job, gpus * eligible, len(active))).astype(np.int64)
        share = self._shares(snapshot, active, wanted)
        left_gpu_s = np.bincount(job, gpus * left_s, len(active))
        key = np.full(len(rows.state), np.inf)
        key[active] = left_gpu_s / np.maximum(share, 1)
        return jobs[np.argsort(key[jobs], kind="stable")]

    def _shares(self, snapshot: Snapshot, jobs: Ints, wanted: Ints) -> Ints:
        """Return the fair shares of jobs that can use `wanted` GPUs."""
        rows = quota_rows(snapshot)
        queue = rows.of_jobs(jobs)
        by_queue = np.bincount(queue, wanted, len(rows.parent)).astype(np.int64)
        hierarchy = Hierarchy(
            queue=queue,
            user=snapshot.jobs.user.take(jobs).astype(np.int64),
            priority=snapshot.jobs.priority.take(jobs).astype(np.int64),
            tree=queue_tree(rows, by_queue),
        )
        total = np.array([(snapshot.gpus.task.array() != GPU_GONE).sum()], np.int64)
        return fair_shares(hierarchy, unfinished=wanted[:, None], gpus=total)

    def changes_at(self, snapshot: Snapshot, jobs: Ints, held_milli: Ints) -> None:
        """Return None: every end of a run changes it, too, and is an event."""
        del snapshot, jobs, held_milli


class LeastAttainedService:
    """Two queues, as Tiresias' discretised 2D-LAS; in each, order of arrival.

    A job is in the second one from an attained service of `threshold_gpu_s` on: the GPU seconds of
    all its runs, whether their work was lost or not. Gu et al., Tiresias: A GPU cluster manager for
    distributed deep learning, NSDI 2019.
    """

    name = "least-attained-service"

    def __init__(self, *, threshold_gpu_s: float = 3250.0) -> None:
        self._threshold_gpu_s = threshold_gpu_s

    def rank(self, snapshot: Snapshot, jobs: Ints) -> Ints:
        """Return the jobs of the first queue, then those of the second one; O(their tasks)."""
        left = self._left_gpu_s(snapshot, jobs)
        return jobs[np.argsort(left <= 0, kind="stable")]

    def changes_at(self, snapshot: Snapshot, jobs: Ints, held_milli: Ints) -> float | None:
        """Return when the first of the jobs that run moves to the second queue."""
        left, gpus = self._left_gpu_s(snapshot, jobs), held_milli / WHOLE
        moves = np.flatnonzero((left > 0) & (gpus > 0))
        if not len(moves):
            return None
        return snapshot.now + max(float((left[moves] / gpus[moves]).min()), _SOONEST_S)

    def _left_gpu_s(self, snapshot: Snapshot, jobs: Ints) -> Floats:
        left = self._threshold_gpu_s - attained_gpu_s(snapshot, jobs)
        return np.where(left < _SAME_GPU_S, 0.0, left)


class ShortestRemaining:
    """The order of remaining GPU seconds by exact durations: an oracle, for simulations alone."""

    name = "srtf"

    def __init__(self) -> None:
        self._known: dict[str, tuple[Job, float]] = {}  # GPU seconds of jobs in flight, by id

    def rank(self, snapshot: Snapshot, jobs: Ints) -> Ints:
        """Return the jobs with the least GPU seconds left first, ties by arrival."""
        before, self._known = self._known, {}
        for row in jobs.tolist():
            job = snapshot.job(row)
            known = before.get(job.id)
            same = known is not None and known[0] is job
            self._known[job.id] = known if known and same else (job, _exact_gpu_s(job))
        left = np.array([gpu_s for _, gpu_s in self._known.values()])
        return jobs[np.argsort(left - _computed_gpu_s(snapshot, jobs), kind="stable")]

    def changes_at(self, snapshot: Snapshot, jobs: Ints, held_milli: Ints) -> None:
        """Return None: while nothing happens, what runs only comes nearer to its end."""
        del snapshot, jobs, held_milli


def _exact_gpu_s(job: Job) -> float:
    return sum(task.compute_s * task.demand.gpus_milli for task in job.tasks) / WHOLE


def attained_gpu_s(snapshot: Snapshot, jobs: Ints) -> Floats:
    """Return the GPU seconds of all runs of jobs (rows) so far, `[jobs]`; O(their tasks)."""
    lost: Floats = snapshot.jobs.lost_gpu_s.take(jobs)
    return lost + _sum_gpu_s(snapshot, jobs, reading=True)


def _computed_gpu_s(snapshot: Snapshot, jobs: Ints) -> Floats:
    """Return the GPU seconds of computing of jobs that count for their results."""
    return _sum_gpu_s(snapshot, jobs, reading=False)


def _unfinished(snapshot: Snapshot, jobs: Ints) -> tuple[Ints, Floats, Floats, Bools]:
    """Return the unfinished tasks on GPUs: indices of their jobs, GPUs, expected seconds left.

    And whether each counts for its job's share: all but those that `max_running` holds back.
    """
    every, job = _tasks_of(snapshot, jobs)
    state = snapshot.tasks.state.take(every)
    over = np.isin(state, DONE)
    some = np.flatnonzero(~over & (snapshot.tasks.gpus.take(every) > 0))
    task, held = every[some], np.isin(state[some], HOLDING)
    estimates, left_s = Estimates(snapshot), np.empty(len(some))
    left_s[held] = estimates.end_at(task[held]) - snapshot.now
    left_s[~held] = estimates.run_s(task[~held])
    known = np.isfinite(left_s)
    left_s[~known] = left_s[known].mean() if known.any() else 1.0
    return job[some], _gpus_of(snapshot, task), left_s, state[some] != TaskState.HELD


def _tasks_of(snapshot: Snapshot, jobs: Ints) -> tuple[Ints, Ints]:
    """Return the tasks (rows) of jobs, without surplus, and the index in `jobs` of each one's."""
    count = snapshot.jobs.task_count.take(jobs).astype(np.int64)
    count -= snapshot.jobs.beyond.take(jobs)
    begin = np.cumsum(count) - count
    first = np.repeat(snapshot.jobs.first_task.take(jobs) - begin, count)
    return first + np.arange(count.sum()), np.repeat(np.arange(len(jobs)), count)


def _gpus_of(snapshot: Snapshot, tasks: Ints) -> Floats:
    milli = np.array([demand.gpus_milli for demand in snapshot.names.demands], np.int64)
    gpus: Floats = milli[snapshot.tasks.demand.take(tasks)] / WHOLE
    return gpus


def _sum_gpu_s(snapshot: Snapshot, jobs: Ints, *, reading: bool) -> Floats:
    """Return the GPU seconds of current and finished runs of jobs, and of saved progress."""
    tasks = snapshot.tasks
    every, job = _tasks_of(snapshot, jobs)
    spent = tasks.progress_s.take(every)
    state = tasks.state.take(every)
    held, done = np.isin(state, HOLDING), state == TaskState.FINISHED
    run = np.flatnonzero(held | done)
    ran = every[run]
    until = np.where(held[run], snapshot.now, tasks.ended_at.take(ran))
    if reading:
        since = tasks.launched_at.take(ran)
    else:
        since = tasks.started_at.take(ran) + tasks.read_s.take(ran)
    spent[run] += np.fmax(until - since, 0.0)
    spent *= _gpus_of(snapshot, every)
    return np.bincount(job, spent, len(jobs)).astype(np.float64)
