"""What ran where, and how it ended: parts of the views of jobs and tasks."""

from __future__ import annotations

import shlex
import signal
from typing import Any

import numpy as np

from headgate.model import Program
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.elastic import is_surplus, is_unneeded
from headgate.state.tables import NO_EXIT

View = dict[str, Any]


def command_of(program: Program) -> str | None:
    """Return what a job runs, a line per stage: commands as they were given, names of functions."""
    args = () if program.ray is None else program.ray.args
    runs = [shlex.join((stage.run, *args)) if args else stage.run for stage in program.stages]
    return "\n".join(run.removeprefix("exec ") for run in dict.fromkeys(runs)) or None


def exit_of(status: int) -> int | str | None:
    """Return how a program ended: its exit code, or the name of the signal that ended it."""
    if status == NO_EXIT:
        return None
    if status >= 0:
        return status
    try:
        return signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        return f"signal {-status}"


def task_exit(snapshot: Snapshot, task: int) -> int | str | None:
    """Return how the last run of a task ended, None while that is not known."""
    if snapshot.tasks.state[task] == TaskState.FINISHED and not is_unneeded(snapshot, task):
        return 0
    return exit_of(snapshot.tasks.exit_status[task])


def job_exit(snapshot: Snapshot, job: int) -> int | str | None:
    """Return how the program of a job ended: of its task that failed, or its only one."""
    if snapshot.jobs.state[job] == JobState.FINISHED:
        return 0
    tasks = snapshot.tasks_of(job)
    states = snapshot.tasks.state.span(tasks.start, tasks.stop)
    failed = np.flatnonzero(states == TaskState.FAILED)
    if len(failed):
        return task_exit(snapshot, tasks.start + int(failed[0]))
    return task_exit(snapshot, tasks.start) if len(tasks) == 1 else None


def nodes_of(snapshot: Snapshot, job: int) -> list[str]:
    """Return the nodes of the last runs of a job's tasks, in the order in which they joined."""
    tasks = snapshot.tasks_of(job)
    rows = np.unique(snapshot.tasks.node.span(tasks.start, tasks.stop))
    return [snapshot.node(row).id for row in rows.tolist() if row >= 0]


def gpus_of(snapshot: Snapshot, job: int) -> dict[str, list[int]]:
    """Return the indices of the GPUs of the last runs of a job's tasks, by node; O(its tasks)."""
    tasks = snapshot.tasks_of(job)
    nodes = snapshot.tasks.node.span(tasks.start, tasks.stop).tolist()
    gpus = snapshot.tasks.run_gpus.span(tasks.start, tasks.stop).tolist()
    found: dict[int, set[int]] = {}
    for node, held in dict.fromkeys(zip(nodes, gpus, strict=True)):
        if held:
            found.setdefault(node, set()).update(held)
    return {snapshot.node(node).id: sorted(found[node]) for node in sorted(found)}


def unit_view(snapshot: Snapshot, task: int) -> View:
    """Return what a task is in an elastic job; of any other it is needed, and no surplus."""
    return {"surplus": is_surplus(snapshot, task), "needed": not is_unneeded(snapshot, task)}


def whole_view(snapshot: Snapshot, job: int, view: View) -> View:
    """Return the view of a job with how it ended, and with its GPUs by node; O(its tasks)."""
    gpus = {**view["gpus"], "by_node": gpus_of(snapshot, job)}
    return {**view, "gpus": gpus, "exit": job_exit(snapshot, job)}
