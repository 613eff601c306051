"""`Resize` in admission: the runs of leases that are stopped."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.model import Job
from headgate.protocol import Group, Resize, Steps, Stop
from headgate.state import Snapshot, State
from headgate.state.life import EXECUTING
from headgate.state.view import View


def with_resizes(view: State | Snapshot, steps: Steps, resizes: Sequence[Resize]) -> Steps:
    """Return steps, and the stops that resizes require in a view: of each a group, if any.

    ValueError for one that names no lease. O(tasks of the jobs).
    """
    if not resizes:
        return steps
    return steps + Steps.of(_group(view, resize) for resize in resizes)


def _group(view: View, resize: Resize) -> Group:
    job, node, slots, reason, first = resize
    if not 0 <= job < len(view.jobs.state) or not _is_lease(view.job(job)):
        raise ValueError(f"there is no job {job} with items to resize")
    if not 0 <= node < len(view.nodes.alive) or slots < 0:
        raise ValueError(f"lease of {view.job(job).id}: no {slots} slots on node {node}")
    tasks = view.tasks
    runs = [t for t in view.tasks_of(job) if tasks.state[t] in EXECUTING and tasks.node[t] == node]
    runs.sort(key=lambda task: (task in first, tasks.launched_at[task], task), reverse=True)
    return Group(tuple(Stop(task) for task in runs[: max(0, len(runs) - slots)]), reason)


def _is_lease(job: Job) -> bool:
    return job.items is not None and not job.gang
