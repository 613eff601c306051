"""The tree of queues: which there are, and which labels count for the jobs in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from headgate.base.arrays import Floats
from headgate.model import Demand, Job, Queue
from headgate.state.view import View

REMOVED: Final = "removed"
"""The state of a queue that is gone: its row stays for the jobs that ended in it."""


def queues_of(view: View) -> list[int]:
    """Return the rows of the queues that there are."""
    return [row for row in range(len(view.queues.spec)) if view.queue(row).state != REMOVED]


def queue_row(view: View, name: str) -> int | None:
    """Return the row of a queue, None if there is none of this name."""
    row = view.names.queue_rows.get(name)
    known = row is not None and row < len(view.queues.spec)
    return row if known and view.queue(row or 0).state != REMOVED else None


def children_of(view: View, name: str) -> list[int]:
    """Return the rows of the queues directly below one."""
    return [row for row in queues_of(view) if view.queue(row).parent == name]


def in_tree(view: View) -> list[int]:
    """Return the rows of the queues, each followed by those below it."""
    below: dict[str, list[int]] = {}
    for row in queues_of(view):
        below.setdefault(view.queue(row).parent, []).append(row)
    found: list[int] = []
    left = below.get("", [])[::-1]
    while left:
        found.append(left.pop())
        left += below.get(view.queue(found[-1]).name, [])[::-1]
    return found


def is_stopped(view: View, row: int) -> bool:
    """Return whether nothing starts in a queue: it, or one above it, is stopped."""
    return any(queue.state == "stopped" for queue in _chain(view, view.queue(row).name))


def labels_of(view: View, row: int) -> tuple[str, ...]:
    """Return the labels that jobs of a queue need: its own, and those of the queues above it."""
    chain = _chain(view, view.queue(row).name)
    return tuple(dict.fromkeys(label for queue in chain for label in queue.labels))


def chain_of(view: View, row: int) -> Iterator[Queue]:
    """Yield a queue (row) and those above it."""
    yield from _chain(view, view.queue(row).name)


def with_labels_of(job: Job, labels: Iterable[str]) -> Job:
    """Return a job whose tasks also select some labels."""
    labels = tuple(labels)
    tasks = [replace(task, demand=with_labels(task.demand, labels)) for task in job.tasks]
    return replace(job, tasks=tuple(tasks)) if labels else job


def as_needed(view: View, job: int) -> Job:
    """Return a job (row) whose tasks also select the labels of its queue, as in the state."""
    return with_labels_of(view.job(job), labels_of(view, view.jobs.queue[job]))


def with_labels(demand: Demand, labels: Iterable[str]) -> Demand:
    """Return a demand that also selects some labels."""
    both = tuple(dict.fromkeys((*demand.selector, *labels)))
    return demand if both == demand.selector else replace(demand, selector=both)


def _chain(view: View, name: str) -> Iterator[Queue]:
    while name:
        yield (queue := view.queue(view.names.queue_rows[name]))
        name = queue.parent


def least_runs_s(view: View) -> Floats:
    """Return how long the runs of each queue last before others may stop them, `[queues]`."""
    rows = range(len(view.queues.spec))
    if not any(view.queue(row).min_run_s for row in rows):
        return np.zeros(len(rows))
    least = [max(q.min_run_s for q in _chain(view, view.queue(row).name)) for row in rows]
    return np.array(least, np.float64)


def any_guaranteed(view: View) -> bool:
    """Return whether some queue is guaranteed anything; O(queues)."""
    return any(view.queue(row).guaranteed for row in range(len(view.queues.spec)))


def admins_of(view: View, name: str) -> list[str]:
    """Return who may cancel and move jobs of a queue, beside their owners."""
    return [admin for queue in _chain(view, name) for admin in queue.admins]


def users_of(view: View, name: str) -> list[str] | None:
    """Return who may have jobs in a queue, None if all users may."""
    found: list[str] | None = None
    for queue in _chain(view, name):
        if queue.users:
            own = [*queue.users, *queue.admins]
            found = own if found is None else [user for user in found if user in own]
    return found


def job_admins(view: View, job: str) -> list[str]:
    """Return who may cancel and move a job by its queue; none for a job that is not known."""
    row = view.names.job_rows.get(job)
    known = row is not None and row < len(view.jobs.state)
    return admins_of(view, view.job(row or 0).queue) if known else []
