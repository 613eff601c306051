"""Elastic jobs (`model.Elastic`) in the tables of a state.

While none of its tasks runs, the first ones of such a job, its minimum, wait together like a gang.
Once some run, those that are missing wait one by one, like the tasks of any other job. Its surplus,
the last ones, is HELD while it does not run, so that no policy serves it, and no share counts it:
`planning.rounds.surplus` grants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.state.life import JobState, TaskState
from headgate.state.view import View

if TYPE_CHECKING:
    from headgate.state.snapshot import Snapshot


def unit_size(view: View, job: int) -> int:
    """Return how many tasks a gang has, or an elastic job that does not run waits with."""
    size: int = view.jobs.task_count[job] - view.jobs.surplus[job]
    return size


def is_surplus(view: View, task: int) -> bool:
    """Return whether a task is surplus of an elastic job."""
    job = view.tasks.job[task]
    surplus: int = view.jobs.surplus[job]
    return surplus > 0 and task - view.jobs.first_task[job] >= unit_size(view, job)


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


def elastic_jobs(view: View) -> list[int]:
    """Return the jobs (rows) in flight of which surplus runs, or may run; O(elastic jobs)."""
    jobs, known = view.jobs, len(view.jobs.state)
    return [
        row
        for row in view.names.elastic
        if row < known
        and jobs.surplus[row]
        and jobs.state[row] == JobState.ACTIVE
        and jobs.running[row] + jobs.running_cpu[row]
    ]
