"""Where things stand, as arrays: what each job holds and waits for, and which GPUs are free."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.base.column import FrozenColumn
from headgate.base.order import in_order
from headgate.model import Job
from headgate.planning.census import Bools, Census, Waits, index_of, moved_in, moved_since, nobody
from headgate.planning.shares import NO_CEILING, Hierarchy, Ints
from headgate.state import Changes, JobState, Snapshot
from headgate.state.tables import GPU_FREE, GPU_GONE


def unplaceable(job: Job) -> str | None:
    """Return what it is about a job that single whole GPUs cannot serve, or None."""
    if _is_gang(job):
        return "gangs"
    if any(t.gpus > 1 for t in job.tasks):
        return "tasks of several GPUs"
    return "tasks with part of a GPU" if any(t.demand.in_part for t in job.tasks) else None


def _is_gang(job: Job) -> bool:
    return job.gang and len(job.tasks) > 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hardware:
    """What GPUs there are; it stays as it is while no node comes or goes. int64 arrays.

    Memory classes are the distinct GPU memories of nodes that are up, ascending.
    """

    class_bytes: Ints  # [classes]
    gpus: Ints  # [classes] GPUs, held or free
    kind: Ints  # [GPU rows] class, -1 when its node is gone
    row: Ints  # rows of GPUs that are there, by node, class, row
    cell: Ints  # [GPUs that are there] node x classes + class, ascending


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A snapshot in int64 arrays; `jobs` are those in flight with unfinished tasks on one GPU.

    A task that needs more memory than any GPU has is of the class beyond the last one, which
    `unfinished` and `waiting` leave out.
    """

    snapshot: Snapshot
    changes: Changes | None  # since the standing that this one was made from
    hardware: Hardware
    census: Census
    jobs: Ints  # [jobs] rows, in order of arrival
    strangers: Ints  # rows of jobs in flight with gangs or tasks of several GPUs
    held: Ints  # [jobs] GPUs
    unfinished: Ints  # [jobs, classes] tasks
    waiting: Ints  # [jobs, classes] tasks
    task: Ints  # [tasks] rows of WAITING tasks of these jobs, ascending
    task_job: Ints  # [tasks] index into `jobs`
    task_class: Ints  # [tasks]
    free: Ints  # [nodes, classes] free GPUs
    free_gpu: Ints  # rows of free GPUs, by node, class, row
    queue: Ints  # [jobs] rows
    ceiling: Ints  # [queues] GPUs that these jobs may hold
    hierarchy: Hierarchy

    def changes_since(self, before: Snapshot) -> Changes | None:
        """Return what has changed since an earlier snapshot, None if it is of another line."""
        if self.changes is not None and self.changes.before is before:
            return self.changes
        return self.snapshot.changes(before)

    @property
    def class_bytes(self) -> Ints:
        """The GPU memory of each class."""
        return self.hardware.class_bytes

    @property
    def gpus(self) -> Ints:
        """The GPUs of each class, held or free."""
        return self.hardware.gpus

    def bytes_of(self, tasks: Ints) -> Ints:
        """Return the GPU memory that some tasks need: indices, or which of all."""
        return self.snapshot.tasks.memory_bytes.take(self.task[tasks])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    """Tasks of one GPU that wait, by row; the index of their job, and their class."""

    task: Ints
    job: Ints
    kind: Ints

    def only(self, chosen: Ints) -> _Waiting:
        """Return some of them, in this order."""
        return _Waiting(task=self.task[chosen], job=self.job[chosen], kind=self.kind[chosen])


def standing(snapshot: Snapshot, before: Standing | None = None) -> Standing:
    """Return where a snapshot stands; `before`, if known, is where an earlier one stood.

    O(GPUs + tasks since the first job in flight). After one of the same line, unless nodes have
    come or gone, O(GPUs + tasks that wait + changes x log), all but the changes in plain copies.
    """
    active = np.flatnonzero(snapshot.jobs.state.array() == JobState.ACTIVE)
    changes = None if before is None else snapshot.changes(before.snapshot)
    if before is None or changes is None or len(changes.nodes):
        before, hardware = None, _hardware(snapshot)
        census = nobody(len(hardware.class_bytes) + 1)
        moved = moved_in(snapshot, _since(snapshot, active))
    else:
        hardware, census = before.hardware, before.census
        moved = moved_since(before.snapshot, snapshot, changes.tasks)
    census, waits = census.after(moved, hardware.class_bytes, active)
    strange = (snapshot.jobs.gang.take(active) > 0) | (census.several > 0)
    if before is not None and _turned(before, active, strange):
        return standing(snapshot)  # all its tasks come in, or leave, and have not moved
    ours = ~strange & census.unfinished.any(axis=1)
    stands = _stands(snapshot, hardware, census, active[ours], active[strange], waits, before)
    return stands if changes is None else replace(stands, changes=changes)


def _since(snapshot: Snapshot, active: Ints) -> range:
    """Return the rows of all tasks since the first of some jobs."""
    end = len(snapshot.tasks.state)
    return range(snapshot.jobs.first_task[int(active[0])] if len(active) else end, end)


def _turned(before: Standing, active: Ints, strange: Bools) -> bool:
    """Say whether a job that was in flight already has become a stranger, or is none any more."""
    if not len(before.strangers) and not strange.any():
        return False
    known = np.isin(active, before.census.job)
    return bool((known & (np.isin(active, before.strangers) != strange)).any())


def _hardware(snapshot: Snapshot) -> Hardware:
    memory_bytes = snapshot.gpus.memory_bytes.array()
    there = snapshot.gpus.task.array() != GPU_GONE
    class_bytes, gpus = np.unique(memory_bytes[there], return_counts=True)
    kind = np.where(there, np.searchsorted(class_bytes, memory_bytes), -1)
    row = np.flatnonzero(there)
    cell = _ints(snapshot.gpus.node)[row] * len(class_bytes) + kind[row]
    order = in_order(cell)
    return Hardware(class_bytes=class_bytes, gpus=gpus, kind=kind, row=row[order], cell=cell[order])


def _stands(
    snapshot: Snapshot,
    hardware: Hardware,
    census: Census,
    jobs: Ints,
    strangers: Ints,
    waits: Waits,
    before: Standing | None,
) -> Standing:
    waiting = _waiting(jobs, len(snapshot.jobs.state), waits, before)
    classes, at = len(hardware.class_bytes), np.searchsorted(census.job, jobs)
    free = np.flatnonzero(snapshot.gpus.task.array()[hardware.row] == GPU_FREE)
    nodes = len(snapshot.nodes.alive)
    held, queue = snapshot.gpus_of_jobs().astype(np.int64)[jobs], _ints(snapshot.jobs.queue)[jobs]
    ceiling = _ceilings(snapshot, held, queue)
    return Standing(
        snapshot=snapshot,
        changes=None,
        hardware=hardware,
        census=census,
        jobs=jobs,
        strangers=strangers,
        held=held,
        unfinished=census.unfinished[at, :classes],
        waiting=census.waiting[at, :classes],
        task=waiting.task,
        task_job=waiting.job,
        task_class=waiting.kind,
        free=np.bincount(hardware.cell[free], minlength=nodes * classes).reshape(nodes, classes),
        free_gpu=hardware.row[free],
        queue=queue,
        ceiling=ceiling,
        hierarchy=_hierarchy(snapshot, jobs, queue, ceiling),
    )


def _waiting(jobs: Ints, count: int, waits: Waits, before: Standing | None) -> _Waiting:
    """Return who waits: of those who waited `before`, and have not moved, and those who came."""
    index = index_of(jobs, count)
    new = _Waiting(task=waits.row, job=index[waits.job], kind=waits.kind)
    if len(new.job) and new.job.min() < 0:  # strangers
        new = new.only(np.flatnonzero(new.job >= 0))
    if before is None or not len(before.task):
        return new
    gone = waits.waited
    place = np.searchsorted(before.task, gone)
    stays = np.ones(len(before.task), bool)
    stays[place[before.task.take(place, mode="clip") == gone]] = False
    old = np.flatnonzero(stays)
    job = before.task_job
    if not np.array_equal(jobs[: len(before.jobs)], before.jobs):
        job = index[before.jobs][job]  # who waited in jobs that are gone has moved

    def joined(then: Ints, more: Ints) -> Ints:
        values = np.empty(len(old) + len(more), np.int64)
        np.take(then, old, out=values[: len(old)], mode="clip")  # "raise" would copy once more
        values[len(old) :] = more
        return values

    both = _Waiting(
        task=joined(before.task, new.task),
        job=joined(job, new.job),
        kind=joined(before.task_class, new.kind),
    )
    if len(old) and len(new.task) and both.task[len(old) - 1] > new.task[0]:
        return both.only(in_order(both.task))
    return both


def _hierarchy(snapshot: Snapshot, jobs: Ints, queue: Ints, ceiling: Ints) -> Hierarchy:
    """Return who shares with whom."""
    return Hierarchy(
        queue=queue,
        user=_ints(snapshot.jobs.user)[jobs],
        priority=_ints(snapshot.jobs.priority)[jobs],
        weight=np.array([q.weight for q in snapshot.queues.spec.array()], np.float64),
        max_gpus=ceiling,
    )


def _ceilings(snapshot: Snapshot, held: Ints, queue: Ints) -> Ints:
    """Return what each queue leaves to jobs that hold so much, its other jobs' GPUs taken off."""
    specs = snapshot.queues.spec.array()
    limits = np.array([NO_CEILING if q.max_gpus is None else q.max_gpus for q in specs], np.int64)
    others = snapshot.gpus_of_queues().astype(np.int64)
    np.subtract.at(others, queue, held)
    left: Ints = np.maximum(limits - others, 0)
    return left


def _ints(column: FrozenColumn) -> Ints:
    return column.array().astype(np.int64)
