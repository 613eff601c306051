"""Requests to change the tree of queues, and to move jobs in it, checked on a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headgate.base.errors import Problem, SpecError, nearest
from headgate.model import WHOLE, Queue
from headgate.model.labels import selects
from headgate.model.queue import (
    DEFAULT,
    GPUS_KIND,
    above,
    amount_text,
    guaranteed_of,
    queue_fields,
)
from headgate.protocol import Event, JobAssigned, QueueChanged, QueueRemoved
from headgate.state import Snapshot
from headgate.state.ledger import capacity
from headgate.state.life import ENDED
from headgate.state.queues import children_of, queue_row, queues_of


def queue_events(view: Snapshot, wanted: Sequence[Queue], *, at: float) -> list[Event]:
    """Return the events after which there are these queues, parents first, and no others.

    `default` stays, also where it is not named. SpecError with all problems: of jobs in a queue
    that would be gone or divided, of labels that no node has, and of guarantees of more than the
    nodes have together that are known.
    """
    queues = {queue.name: queue for queue in wanted}
    known = {view.queue(row).name: view.queue(row) for row in queues_of(view)}
    queues.setdefault(DEFAULT, known.get(DEFAULT, Queue(name=DEFAULT)))
    problems = [*_of_jobs(view, queues), *_of_labels(view, queues), *_of_guarantees(view, queues)]
    if problems:
        raise SpecError(problems)
    gone = [name for name in known if name not in queues]
    depth = {name: sum(1 for _ in above(known, name)) for name in gone}
    changed: list[Event] = [
        QueueChanged(at=at, queue=queue)
        for name, queue in queues.items()
        if known.get(name) != queue
    ]
    removed = sorted(gone, key=lambda name: -depth[name])
    return changed + [QueueRemoved(at=at, name=name) for name in removed]


def difference(view: Snapshot, events: Sequence[Event]) -> dict[str, Any]:
    """Return what events of queues change: names `added` and `removed`, and keys `changed`.

    Of each key its value before and after.
    """
    found: dict[str, Any] = {"added": [], "changed": {}, "removed": []}
    for event in events:
        if isinstance(event, QueueRemoved):
            found["removed"].append(event.name)
        elif isinstance(event, QueueChanged):
            name, row = event.queue.name, queue_row(view, event.queue.name)
            if row is None:
                found["added"].append(name)
                continue
            before, after = queue_fields(view.queue(row)), queue_fields(event.queue)
            found["changed"][name] = {
                key: [before[key], after[key]] for key in after if before[key] != after[key]
            }
    return found


def assignment(view: Snapshot, job: str, queue: str, *, user: str, at: float) -> JobAssigned | None:
    """Return the event that moves a job to a queue, None if it is there; SpecError `not_found`.

    `bad_spec` for a job that has ended, and a queue that is divided or closed.
    """
    row = view.names.job_rows.get(job)
    names = [view.queue(each).name for each in queues_of(view)]
    if row is None or row >= len(view.jobs.state):
        raise SpecError([Problem(path=job, problem=f"there is no job {job}")], code="not_found")
    target = queue_row(view, queue)
    if target is None:
        text = f"there is no queue '{queue}'"
        problem = Problem(path=queue, problem=text, hint=nearest(queue, names))
        raise SpecError([problem], code="not_found")
    if view.jobs.state[row] in ENDED:
        raise SpecError([Problem(path=job, problem="has ended: it is in no queue any more")])
    if children_of(view, queue):
        raise SpecError([Problem(path=queue, problem="is divided, and takes no jobs")])
    if view.queue(target).state == "closed":
        raise SpecError([Problem(path=queue, problem="is closed, and takes no new jobs")])
    if view.jobs.queue[row] == target:
        return None
    return JobAssigned(at=at, job=job, queue=queue, by=user)


def _of_jobs(view: Snapshot, queues: Mapping[str, Queue]) -> list[Problem]:
    """Return the problems of queues with jobs that would take none."""
    unended = np.flatnonzero(~np.isin(view.jobs.state.array(), [int(state) for state in ENDED]))
    counts = np.bincount(view.jobs.queue.take(unended), minlength=len(view.queues.spec))
    divided = {queue.parent for queue in queues.values()}
    found = []
    for row in np.flatnonzero(counts).tolist():
        name, jobs = view.queue(row).name, int(counts[row])
        has = "a job that has" if jobs == 1 else f"{jobs} jobs that have"
        hint = "headgate queues assign JOB QUEUE moves one; state: closed lets no new ones in"
        if name not in queues:
            text = f"has {has} not ended, and would be removed"
            found.append(Problem(path=name, problem=text, hint=hint))
        elif name in divided:
            text = f"has {has} not ended, and would be divided"
            found.append(Problem(path=name, problem=text, hint=hint))
    return found


def _of_labels(view: Snapshot, queues: Mapping[str, Queue]) -> list[Problem]:
    """Return the problems of queues whose labels no node that is known has."""
    sets = {view.node(row).labels for row in range(len(view.nodes.spec))}
    known = sorted({label for labels in sets for label in labels})
    found = []
    for name, queue in queues.items():
        terms = [term for each in above(queues, name) for term in each.labels]
        if queue.labels and sets and not any(selects(terms, labels) for labels in sorted(sets)):
            text = f"no node has the labels {', '.join(dict.fromkeys(terms))}"
            hint = f"labels are {', '.join(known)}" if known else "headgate label NODE sets labels"
            found.append(Problem(path=name, problem=text, hint=hint))
    return found


def _of_guarantees(view: Snapshot, queues: Mapping[str, Queue]) -> list[Problem]:
    """Return the problems of guarantees that all nodes that are known cannot keep together."""
    nodes = [view.node(row) for row in range(len(view.nodes.spec))]
    specs, sums = [*queues.values()], dict[str, int]()
    for row, queue in enumerate(specs):
        for kind in {name: 0 for each in specs for name, _ in each.guaranteed}:
            if not queue.parent:
                sums[kind] = sums.get(kind, 0) + guaranteed_of(specs, row, kind)
    has = [capacity(view.names, node) for node in nodes]
    kinds = {name: kind for kind, name in enumerate(view.names.resources)}
    found = []
    for kind, amount in sorted(sums.items()) if nodes else ():
        total = sum(each[kinds[kind]] for each in has) if kind in kinds else 0
        if kind == GPUS_KIND:
            total = WHOLE * sum(len(node.gpus) for node in nodes)
        if amount > total:
            asked, most = amount_text(kind, amount), amount_text(kind, total)
            text = f"guarantees of {asked} together, and the cluster has {most}"
            found.append(Problem(path="queues", problem=text, hint="guarantee less"))
    return found
