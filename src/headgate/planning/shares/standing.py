"""A snapshot as arrays for policies: what each job holds and waits for, and the free GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.column import FrozenColumn
from headgate.base.order import in_order
from headgate.model import WHOLE
from headgate.planning.shares.fair_shares import Hierarchy
from headgate.planning.shares.gpu_kinds import GpuKinds, gpu_kinds
from headgate.planning.shares.queue_tree import QueueTree, queue_tree
from headgate.planning.shares.task_counts import (
    TaskCounts,
    WaitingChange,
    any_of_class,
    index_of,
    new_tasks,
    no_task_counts,
    task_changes,
)
from headgate.state import Changes, JobState, Scratch, Snapshot
from headgate.state.quota_rows import QuotaRows, quota_rows
from headgate.state.tables import GPU_FREE, GPU_GONE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hardware:
    """The GPUs of the cluster by class (`GpuClasses`); int64 arrays.

    Unchanged while no node joins or is lost, and no task names models as none did before.
    """

    class_bytes: Ints  # [classes] memory of a GPU
    gpu_class: Ints  # [GPU rows] -1 if its node is lost
    row: Ints  # [GPUs up] rows, by node, class, row
    cell: Ints  # [GPUs up] node x classes + class, ascending

    def divides_as(self, other: Hardware) -> bool:
        """Return whether the same classes have the same GPUs; the nodes that are up are the same.

        O(GPUs) if the tasks that name models have been counted again.
        """
        return self is other or np.array_equal(self.gpu_class, other.gpu_class)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A snapshot in int64 arrays; `jobs` are those in flight with unfinished tasks on GPUs.

    Shares count GPUs: `held`, `unfinished`, `multi_gpu`, parts of one rounded up. `waiting` counts
    tasks that are not multi-GPU, each on one whole GPU of any node: only these are in `task`.
    Multi-GPU are the tasks of gangs, on several GPUs or parts of GPUs, and those that name or
    exclude nodes. Types are those of `kinds`; `accepts` are the classes of GPUs that tasks which
    are not multi-GPU accept. A task that no GPU suits is of the type after the last one;
    `unfinished`, `waiting` and `multi_gpu` exclude it.
    """

    snapshot: Snapshot
    hardware: Hardware
    kinds: GpuKinds
    task_counts: TaskCounts
    jobs: Ints  # [jobs] rows, in order of arrival
    held: Ints  # [jobs] GPUs
    unfinished: Ints  # [jobs, types] GPUs
    waiting: Ints  # [jobs, types] tasks on one whole GPU
    multi_gpu: Ints  # [jobs, types] GPUs that waiting multi-GPU tasks need
    multi_gpu_jobs: Ints  # indices of the jobs with waiting multi-GPU tasks, of any class
    has_multi_gpu: Bools  # [jobs] whether it has unfinished multi-GPU tasks
    task: Ints  # [tasks] rows of the `waiting` tasks of these jobs, ascending
    task_job: Ints  # [tasks] index into `jobs`
    task_type: Ints  # [tasks]
    free: Ints  # [nodes, classes] free GPUs
    free_gpu: Ints  # rows of free GPUs, by node, class, row
    rows: QuotaRows
    queue: Ints  # [jobs] of these rows: the queue, or its user in that
    tree: QueueTree  # of these rows, less what other jobs hold
    hierarchy: Hierarchy

    @property
    def class_bytes(self) -> Ints:
        """The GPU memory of each class."""
        return self.hardware.class_bytes

    @property
    def accepts(self) -> Bools:
        """Which classes of GPUs the tasks of each type accept, `[types, classes]`."""
        return self.kinds.classes.accepts

    @property
    def gpus(self) -> Ints:
        """The GPUs of each kind, held or free."""
        return self.kinds.gpus

    @property
    def needed(self) -> Ints:
        """GPUs that waiting tasks of each job need, `[jobs]`, where there are large enough ones."""
        needed: Ints = self.waiting.sum(axis=1) + self.multi_gpu.sum(axis=1)
        return needed

    @property
    def every_waiting(self) -> Ints:
        """Waiting tasks that are not multi-GPU, `[jobs, types + 1]`: at last those no GPU suits."""
        rows = np.searchsorted(self.task_counts.job, self.jobs)
        waiting: Ints = self.task_counts.waiting[rows]
        return waiting

    @property
    def free_of_kind(self) -> Ints:
        """The free GPUs of each kind."""
        return self.kinds.counted(self.free_gpu)

    def types_on(self, gpus: Ints) -> Bools:
        """Return the types whose tasks accept some of these GPUs, numbers by class; `[types]`."""
        fits: Bools = self.accepts @ (gpus > 0)
        return fits

    def fair_shares(self) -> Ints:
        """Return every job's fair share of all GPUs, `[jobs]`; see `fair_shares`."""
        return self.hierarchy.fair_shares(self.unfinished, self.gpus, self.kinds.accepts)

    def without_free(self, some: Bools) -> Standing:
        """Return the standing without some of the GPUs in `free_gpu`, a mask, in `free`."""
        cells = np.repeat(np.arange(self.free.size), self.free.ravel())
        free = self.free - np.bincount(cells[some], minlength=self.free.size).reshape(
            self.free.shape
        )
        return replace(self, free=free, free_gpu=self.free_gpu[~some])

    def memory_bytes_of(self, tasks: Ints) -> Ints:
        """Return the bytes of GPU memory that tasks need: indices into `task`, or a mask of it."""
        return self.snapshot.tasks.memory_bytes.take(self.task[tasks])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    """Waiting tasks that are not multi-GPU: rows, the index of their job, their type; `[tasks]`."""

    task: Ints
    job: Ints
    type: Ints

    def only(self, chosen: Ints) -> _Waiting:
        """Return the tasks at the indices `chosen`, in that order."""
        return _Waiting(task=self.task[chosen], job=self.job[chosen], type=self.type[chosen])


def standing_of(snapshot: Snapshot) -> Standing:
    """Return the standing of a snapshot; O(GPUs + tasks since the first job in flight)."""
    active = _active(snapshot)
    rows = _task_range(snapshot, active)
    is_up = snapshot.gpus.task.array() != GPU_GONE
    demands = np.unique(snapshot.tasks.demand.span(rows.start, rows.stop)).tolist()
    kinds = gpu_kinds(snapshot, is_up, demands)
    empty = no_task_counts(len(kinds.accepts) + 1)
    task_counts, waiting = empty.after(new_tasks(snapshot, rows), kinds, active)
    return _build(snapshot, _hardware(snapshot, kinds), kinds, task_counts, waiting, active, None)


def standing_after(before: Standing, snapshot: Snapshot, changes: Changes) -> Standing:
    """Return the standing of a snapshot that differs by `changes` from that of `before`.

    No node has joined or was lost in between. O(GPUs + waiting tasks + changes x log), of which
    only the changes cost more than copying arrays; as `standing_of` for tasks of a new type.
    """
    active, kinds = _active(snapshot), before.kinds.after(snapshot.names.demands)
    if not kinds.know(snapshot.tasks.demand.take(changes.tasks)):
        return standing_of(snapshot)
    changed = task_changes(before.snapshot, snapshot, changes.tasks)
    task_counts, waiting = before.task_counts.after(changed, kinds, active)
    return _build(snapshot, before.hardware, kinds, task_counts, waiting, active, before)


def standing_less(standing: Standing, scratch: Scratch) -> Standing:
    """Return a standing in which the placements of a scratch hold their GPUs.

    Their tasks do not wait any more: none of them is in `task`. O(GPUs + placements).
    """
    starts = [start for start in scratch.starts if start.gpus]
    if not starts:
        return standing
    snapshot, hardware, classes = standing.snapshot, standing.hardware, len(standing.class_bytes)
    task = np.array([start.task for start in starts])
    demand, job = snapshot.tasks.demand.take(task), snapshot.tasks.job.take(task)
    index = np.searchsorted(standing.jobs, job)
    held_milli = snapshot.jobs.held_gpus_milli.take(standing.jobs).astype(np.int64)
    np.add.at(held_milli, index, standing.task_counts.sizes.gpus_milli[demand])
    held: Ints = -(-held_milli // WHOLE)
    fits = standing.kinds.of_demand[demand]
    multi_gpu = standing.multi_gpu.copy()
    np.subtract.at(
        multi_gpu, (index, fits), -(-standing.task_counts.sizes.gpus_milli[demand] // WHOLE)
    )
    free = np.flatnonzero(scratch.ledger.gpus.task.array()[hardware.row] == GPU_FREE)
    by_cell = np.bincount(hardware.cell[free], minlength=standing.free.size)
    return replace(
        standing,
        held=held,
        multi_gpu=np.maximum(multi_gpu, 0),
        free=by_cell.reshape(-1, classes),
        free_gpu=hardware.row[free],
    )


def _active(snapshot: Snapshot) -> Ints:
    """Return the rows of the jobs in flight."""
    return np.flatnonzero(snapshot.jobs.state.array() == JobState.ACTIVE)


def _task_range(snapshot: Snapshot, active: Ints) -> range:
    """Return the rows of all tasks from the first one of the jobs in flight."""
    end = len(snapshot.tasks.state)
    return range(snapshot.jobs.first_task[int(active[0])] if len(active) else end, end)


def _hardware(snapshot: Snapshot, kinds: GpuKinds) -> Hardware:
    classes = kinds.classes
    row = np.flatnonzero(classes.of_gpu >= 0)
    cell = _ints(snapshot.gpus.node)[row] * len(classes.memory_bytes) + classes.of_gpu[row]
    order = in_order(cell)
    return Hardware(
        class_bytes=classes.memory_bytes,
        gpu_class=classes.of_gpu,
        row=row[order],
        cell=cell[order],
    )


def _build(
    snapshot: Snapshot,
    hardware: Hardware,
    kinds: GpuKinds,
    task_counts: TaskCounts,
    changed: WaitingChange,
    active: Ints,
    before: Standing | None,
) -> Standing:
    unfinished, multi_gpu, classes = (
        task_counts.unfinished,
        task_counts.multi_gpu,
        len(hardware.class_bytes),
    )
    types = len(kinds.accepts)
    index = np.flatnonzero(any_of_class(unfinished))
    jobs = active[index]
    waiting = _waiting(jobs, len(snapshot.jobs.state), changed, before)
    free = np.flatnonzero(snapshot.gpus.task.array()[hardware.row] == GPU_FREE)
    nodes = len(snapshot.nodes.alive)
    held_milli = snapshot.jobs.held_gpus_milli.take(jobs).astype(np.int64)
    held, rows = -(-held_milli // WHOLE), quota_rows(snapshot)
    queue = rows.of_jobs(jobs)
    tree = _tree(rows, held, queue, unfinished[index].sum(axis=1))
    return Standing(
        snapshot=snapshot,
        hardware=hardware,
        kinds=kinds,
        task_counts=task_counts,
        jobs=jobs,
        held=held,
        unfinished=unfinished[index, :types],
        waiting=task_counts.waiting[index, :types],
        multi_gpu=multi_gpu[index, :types],
        multi_gpu_jobs=np.flatnonzero(any_of_class(multi_gpu)[index]),
        has_multi_gpu=task_counts.has_multi_gpu[index],
        task=waiting.task,
        task_job=waiting.job,
        task_type=waiting.type,
        free=np.bincount(hardware.cell[free], minlength=nodes * classes).reshape(nodes, classes),
        free_gpu=hardware.row[free],
        rows=rows,
        queue=queue,
        tree=tree,
        hierarchy=_hierarchy(snapshot, jobs, queue, tree),
    )


def _waiting(jobs: Ints, count: int, changed: WaitingChange, before: Standing | None) -> _Waiting:
    """Return the waiting tasks: those of `before` that are unchanged, and those that wait standing.

    `count` is the number of rows of jobs.
    """
    index = index_of(jobs, count)
    new = _Waiting(task=changed.row, job=index[changed.job], type=changed.type)
    if before is None or not len(before.task):
        return new
    waited = changed.waited
    place = np.searchsorted(before.task, waited)
    is_kept = np.ones(len(before.task), bool)
    is_kept[place[before.task.take(place, mode="clip") == waited]] = False
    kept = np.flatnonzero(is_kept)
    job = before.task_job
    if not np.array_equal(jobs[: len(before.jobs)], before.jobs):
        job = index[before.jobs][job]  # tasks of jobs that left have changed: none of them is kept

    def joined(old: Ints, more: Ints) -> Ints:
        values = np.empty(len(kept) + len(more), np.int64)
        np.take(old, kept, out=values[: len(kept)], mode="clip")  # "raise" would copy once more
        values[len(kept) :] = more
        return values

    both = _Waiting(
        task=joined(before.task, new.task),
        job=joined(job, new.job),
        type=joined(before.task_type, new.type),
    )
    if len(kept) and len(new.task) and both.task[len(kept) - 1] > new.task[0]:
        return both.only(in_order(both.task))
    return both


def _hierarchy(snapshot: Snapshot, jobs: Ints, queue: Ints, tree: QueueTree) -> Hierarchy:
    """Return the hierarchy of queues, users and jobs."""
    return Hierarchy(
        queue=queue,
        user=snapshot.jobs.user.take(jobs).astype(np.int64),
        priority=snapshot.jobs.priority.take(jobs).astype(np.int64),
        tree=tree,
    )


def _tree(rows: QuotaRows, held: Ints, queue: Ints, unfinished: Ints) -> QueueTree:
    """Return the tree of queues for jobs that hold GPUs: less what other jobs hold."""
    others = -(-rows.own_gpus_milli() // WHOLE)
    np.subtract.at(others, queue, held)
    wanted = others.copy()
    np.add.at(wanted, queue, unfinished)
    return queue_tree(rows, wanted).beside(others)


def _ints(column: FrozenColumn) -> Ints:
    return column.array().astype(np.int64)
