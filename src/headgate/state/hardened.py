"""When the places of a hardened unit are kept: while it waits, and they exist."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Ints
from headgate.protocol import Hardened
from headgate.state.elastic import unit_size
from headgate.state.life import JobState, TaskState
from headgate.state.queues import is_stopped
from headgate.state.tables import GPU_GONE
from headgate.state.view import View


def kept(view: View, hardened: Hardened | None) -> Hardened | None:
    """Return a hardened unit of a plan, None if it no longer waits or its places are lost."""
    lost = hardened is None or next(faults_of(view, hardened), None) is not None
    return None if lost else hardened


def kept_gpus(view: View, hardened: Hardened) -> Ints:
    """Return the GPUs (rows) that are kept for a unit."""
    first, rows = view.nodes.first_gpu, view.names.node_rows
    gpus = [first[rows[node]] + gpu for _, node, indices in hardened.places for gpu in indices]
    return np.array(gpus, np.int64)


def faults_of(view: View, hardened: Hardened) -> Iterator[str]:
    """Yield why the places of a unit can be kept no longer."""
    job = view.names.job_rows.get(hardened.job)
    if job is None or view.jobs.state[job] != JobState.ACTIVE:
        yield f"{hardened.job} is not in flight"
        return
    if is_stopped(view, view.jobs.queue[job]):
        yield f"the queue of {hardened.job} is stopped"
        return
    tasks = view.tasks_of(job)
    is_resized = len(hardened.places) != unit_size(view, job)  # its tasks are equal
    if is_resized and view.job(job).training is not None:
        yield f"the width of {hardened.job} has changed"
    for ordinal, name, gpus in hardened.places:
        if ordinal >= len(tasks) or view.tasks.state[tasks[ordinal]] != TaskState.WAITING:
            yield f"{hardened.job}/{ordinal} does not wait"
            continue
        node = view.names.node_rows.get(name)
        if node is None or not view.nodes.alive[node] or view.nodes.draining[node]:
            yield f"{name} takes no runs"
            continue
        if not view.demand(tasks[ordinal]).accepts_node(view.node(node)):
            yield f"{name} has other labels now"
            continue
        first = view.nodes.first_gpu[node]
        if any(gpu >= view.nodes.gpu_count[node] for gpu in gpus):
            yield f"{name} has no such GPU"
        elif any(view.gpus.task[first + gpu] == GPU_GONE for gpu in gpus):
            yield f"a GPU of {name} takes no runs"
