"""Elastic jobs (`model.Elastic`), and training jobs (`model.Training`), in a state's tables.

While none of its tasks runs, the first ones of such a job, its minimum, wait together like a gang.
Once some run, those that are missing wait one by one, like the tasks of any other job. Its surplus,
the last ones, is HELD while it does not run, so that no policy serves it, and no share counts it:
`planning.rounds.surplus` grants it.

A training job is a gang of its first tasks, as many as its width; those beyond that are HELD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.column import Column
from headgate.model import Job
from headgate.state.life import EXECUTING, JobState, TaskState
from headgate.state.tables import NO_EXIT, JobTable
from headgate.state.view import View

if TYPE_CHECKING:
    from headgate.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCounts:
    """How many units of an elastic or a training job run, and how many of these are `surplus`.

    Of a training job, those beyond its smallest width.
    Of those that have finished, `unneeded` had no run that did: another one finished before.
    """

    min: int
    max: int
    running: int
    surplus: int
    unneeded: int


def unit_counts(view: View, job: int, states: Sequence[int]) -> UnitCounts | None:
    """Return the numbers of units of a job with tasks in these states.

    None if it neither is elastic nor trains. O(its tasks).
    """
    spec, rows = view.job(job), view.tasks_of(job)
    if spec.elastic is None and spec.training is None:
        return None
    size = spec.unit_tasks
    runs = [state in EXECUTING for state in states]
    return UnitCounts(
        min=size,
        max=len(rows),
        running=sum(runs),
        surplus=sum(runs[size:]),
        unneeded=sum(is_unneeded(view, task) for task in rows),
    )


def is_unneeded(view: View, task: int) -> bool:
    """Return whether a unit of an elastic or training job has finished without a run that did."""
    tasks = view.tasks
    if tasks.state[task] != TaskState.FINISHED:
        return False
    spec = view.job(tasks.job[task])
    if spec.elastic is None and spec.training is None:
        return False
    attempt, last = tasks.attempts[task], view.stops.get(task, ())[-1:]
    was_stopped = bool(last) and last[0].attempt == attempt
    return not attempt or was_stopped or tasks.exit_status[task] not in (0, NO_EXIT)


def set_unit(jobs: JobTable[Column], row: int, job: Job) -> None:
    """Write how many tasks of a new job start together, and how many it has beyond these."""
    jobs.gang[row] = job.unit_tasks > 1
    jobs.elastic[row] = _has_units(job)
    if job.elastic is not None or job.training is not None:
        jobs.beyond[row] = len(job.tasks) - job.unit_tasks


def _has_units(job: Job) -> bool:
    """Return whether a job is elastic or trains, and starts, or may start, several tasks at a time.

    They are served as units even while they have one task: a gang may grow from it.
    """
    if job.training is not None:
        return len(job.tasks) > 1
    return job.elastic is not None and job.unit_tasks > 1


def write_width(view: View, jobs: JobTable[Column], job: int, width: int) -> None:
    """Write in a writable table that the unit of a training job is so many of its tasks."""
    training = view.job(job).training
    assert training is not None, "only these have widths"
    jobs.beyond[job] = jobs.task_count[job] - width
    jobs.gang[job], jobs.speed[job] = width > 1, training.speed(width)
    jobs.unit_gpus_milli[job] = view.demand(jobs.first_task[job]).gpus_milli * width


def unit_size(view: View, job: int) -> int:
    """Return how many tasks a gang has, or an elastic job that does not run waits with.

    Of a training job, its width.
    """
    size: int = view.jobs.task_count[job] - view.jobs.beyond[job]
    return size


def unit_sizes(view: Snapshot, jobs: Ints) -> Ints:
    """Return the same of jobs (rows)."""
    sizes: Ints = view.jobs.task_count.take(jobs) - view.jobs.beyond.take(jobs)
    return sizes


def is_beyond(view: View, task: int) -> bool:
    """Return whether a task is not in the unit of its job: surplus, or beyond its width."""
    job = view.tasks.job[task]
    beyond: int = view.jobs.beyond[job]
    return beyond > 0 and task - view.jobs.first_task[job] >= unit_size(view, job)


def is_surplus(view: View, task: int) -> bool:
    """Return whether a task is surplus of an elastic job."""
    return is_beyond(view, task) and view.job(view.tasks.job[task]).elastic is not None


def surplus_of(view: View, job: int) -> range:
    """Return the tasks (rows) that are surplus of an elastic job; none of any other."""
    rows = view.tasks_of(job)
    return rows[unit_size(view, job) :]


def in_units(view: Snapshot, jobs: Ints) -> Bools:
    """Return which jobs (rows) are gangs, or elastic ones that start with several tasks."""
    some: Bools = (view.jobs.gang.take(jobs) > 0) | (view.jobs.elastic.take(jobs) > 0)
    return some


def regroup(view: View, job: int) -> None:
    """Let the minimum of an elastic job wait together while none of its tasks runs."""
    jobs = view.jobs
    if view.job(job).training is not None:
        return
    alone = int(not (jobs.running[job] or jobs.running_cpu[job]))
    if jobs.gang[job] != alone:
        jobs.gang[job] = alone
        one = view.demand(jobs.first_task[job]).gpus_milli
        jobs.unit_gpus_milli[job] = one * (unit_size(view, job) if alone else 1)


def may_start(view: View, task: int) -> bool:
    """Return whether a plan may start a task: one that waits, or surplus of a job that runs."""
    state, job, jobs = view.tasks.state[task], view.tasks.job[task], view.jobs
    if state != TaskState.HELD:
        return bool(state == TaskState.WAITING)
    return is_surplus(view, task) and bool(jobs.running[job] or jobs.running_cpu[job])


def may_all_start(view: Snapshot, tasks: Ints) -> Bools:
    """Return which tasks (rows) a plan may start (`may_start`)."""
    states = view.tasks.state.take(tasks)
    may: Bools = states == TaskState.WAITING
    for index in np.flatnonzero(states == TaskState.HELD).tolist():
        may[index] = may_start(view, int(tasks[index]))
    return may


def training_jobs(view: View) -> list[int]:
    """Return the jobs (rows) in flight whose width may change; O(training jobs)."""
    jobs, known = view.jobs, len(view.jobs.state)
    return [
        row
        for row in view.names.training
        if row < known and jobs.task_count[row] > 1 and jobs.state[row] == JobState.ACTIVE
    ]


def needs_rounds(view: View) -> bool:
    """Return whether there is something to decide while no task waits.

    A cluster that scales may need fewer nodes; elastic and training jobs may use more, or less.
    """
    return bool(view.fleet.scaling is not None or elastic_jobs(view) or training_jobs(view))


def elastic_jobs(view: View) -> list[int]:
    """Return the jobs (rows) in flight of which surplus runs, or may run; O(elastic jobs)."""
    jobs, known = view.jobs, len(view.jobs.state)
    return [
        row
        for row in view.names.elastic
        if row < known
        and jobs.beyond[row]
        and jobs.state[row] == JobState.ACTIVE
        and jobs.running[row] + jobs.running_cpu[row]
    ]
