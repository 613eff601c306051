"""Where things stand, as arrays: what each job holds and waits for, and which GPUs are free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.column import FrozenColumn
from headgate.decision.shares import NO_CEILING, Hierarchy, Ints
from headgate.model import Job
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.tables import GPU_FREE, GPU_GONE

_UNFINISHED = (
    TaskState.BLOCKED,
    TaskState.WAITING,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.STOPPING,  # of a job in flight: it will wait again
)


def unplaceable(job: Job) -> str | None:
    """Return what it is about a job that single GPUs cannot serve, or None."""
    if _is_gang(job):
        return "gangs"
    return "tasks of several GPUs" if any(t.gpus > 1 for t in job.tasks) else None


def _is_gang(job: Job) -> bool:
    return job.gang and len(job.tasks) > 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A snapshot in int64 arrays; `jobs` are those in flight with unfinished tasks on one GPU.

    Memory classes are the distinct GPU memories of nodes that are up, `class_bytes`, ascending. A
    task that needs more than any GPU has is of the class beyond the last one, which `unfinished`
    and `waiting` leave out.
    """

    jobs: Ints  # [jobs] rows, in order of arrival
    strangers: Ints  # rows of jobs in flight with gangs or tasks of several GPUs
    held: Ints  # [jobs] GPUs
    unfinished: Ints  # [jobs, classes] tasks
    waiting: Ints  # [jobs, classes] tasks
    task: Ints  # [tasks] rows of WAITING tasks of these jobs, ascending
    task_job: Ints  # [tasks] index into `jobs`
    task_class: Ints  # [tasks]
    task_bytes: Ints  # [tasks] GPU memory that it needs
    class_bytes: Ints  # [classes]
    gpus: Ints  # [classes] GPUs, held or free
    free: Ints  # [nodes, classes] free GPUs
    free_gpu: Ints  # rows of free GPUs, by node, class, row
    queue: Ints  # [jobs] rows
    ceiling: Ints  # [queues] GPUs that these jobs may hold
    hierarchy: Hierarchy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tasks:
    """Unfinished tasks that need GPUs: rows, the jobs' rows, and what each one needs."""

    row: Ints
    job: Ints
    gpus: Ints
    need_bytes: Ints
    waits: Ints  # 1 when it is WAITING


def standing(snapshot: Snapshot) -> Standing:
    """Return where a snapshot stands; O((GPUs + tasks since the first job in flight) x log)."""
    active = np.flatnonzero(_ints(snapshot.jobs.state) == JobState.ACTIVE)
    tasks = _tasks(snapshot, active)
    strange = np.zeros(len(snapshot.jobs.state), bool)
    strange[[j for j in active.tolist() if _is_gang(snapshot.job(j))]] = True
    strange[tasks.job[tasks.gpus > 1]] = True
    ours = ~strange[tasks.job]
    row, job_row, waits = tasks.row[ours], tasks.job[ours], tasks.waits[ours]
    jobs, job = np.unique(job_row, return_inverse=True)

    memory, holder = _ints(snapshot.gpus.memory_bytes), _ints(snapshot.gpus.task)
    class_bytes, gpus = np.unique(memory[holder != GPU_GONE], return_counts=True)
    kinds = len(class_bytes)
    kind = np.searchsorted(class_bytes, tasks.need_bytes[ours])
    unfinished = _table(job, kind, len(jobs), kinds + 1)
    waiting = _table(job, kind, len(jobs), kinds + 1, waits)

    free_gpu = np.flatnonzero(holder == GPU_FREE)
    node, gpu_kind = (
        _ints(snapshot.gpus.node)[free_gpu],
        np.searchsorted(class_bytes, memory[free_gpu]),
    )
    held, queue = _ints(snapshot.jobs.held_gpus)[jobs], _ints(snapshot.jobs.queue)[jobs]
    ceiling = _ceilings(snapshot, held, queue)
    return Standing(
        jobs=jobs,
        strangers=np.flatnonzero(strange),
        held=held,
        unfinished=unfinished[:, :kinds],
        waiting=waiting[:, :kinds],
        task=row[waits > 0],
        task_job=job[waits > 0],
        task_class=kind[waits > 0],
        task_bytes=tasks.need_bytes[ours][waits > 0],
        class_bytes=class_bytes,
        gpus=gpus,
        free=_table(node, gpu_kind, len(snapshot.nodes.alive), kinds),
        free_gpu=free_gpu[np.lexsort((free_gpu, gpu_kind, node))],
        queue=queue,
        ceiling=ceiling,
        hierarchy=Hierarchy(
            queue=queue,
            user=_ints(snapshot.jobs.user)[jobs],
            priority=_ints(snapshot.jobs.priority)[jobs],
            weight=np.array([q.weight for q in snapshot.queues.spec.array()], np.float64),
            max_gpus=ceiling,
        ),
    )


def _tasks(snapshot: Snapshot, active: Ints) -> _Tasks:
    """Return the unfinished tasks that need GPUs of the jobs whose rows are `active`."""
    if not len(active):
        none = np.zeros(0, np.int64)
        return _Tasks(row=none, job=none, gpus=none, need_bytes=none, waits=none)
    table, first = snapshot.tasks, snapshot.jobs.first_task[int(active[0])]
    end = len(table.state)
    job, gpus = table.job.span(first, end), table.gpus.span(first, end)
    state = table.state.span(first, end)
    is_active = np.zeros(len(snapshot.jobs.state), bool)
    is_active[active] = True
    found = np.flatnonzero(is_active[job] & (gpus > 0) & np.isin(state, _UNFINISHED))
    return _Tasks(
        row=found + first,
        job=job[found].astype(np.int64),
        gpus=gpus[found].astype(np.int64),
        need_bytes=table.memory_bytes.span(first, end)[found],
        waits=(state[found] == TaskState.WAITING).astype(np.int64),
    )


def _ceilings(snapshot: Snapshot, held: Ints, queue: Ints) -> Ints:
    """Return what each queue leaves to jobs that hold so much, its other jobs' GPUs taken off."""
    specs = snapshot.queues.spec.array()
    limits = np.array([NO_CEILING if q.max_gpus is None else q.max_gpus for q in specs], np.int64)
    others = _ints(snapshot.queues.held_gpus)
    np.subtract.at(others, queue, held)
    left: Ints = np.maximum(limits - others, 0)
    return left


def _ints(column: FrozenColumn) -> Ints:
    return column.array().astype(np.int64)


def _table(row: Ints, kind: Ints, rows: int, kinds: int, count: Ints | int = 1) -> Ints:
    table = np.zeros((rows, kinds), np.int64)
    np.add.at(table, (row, kind), count)
    return table
