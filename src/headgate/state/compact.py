"""Compaction: the tables without archived jobs and the rows that only those referred to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from headgate.base.column import Array
from headgate.model import result_ids
from headgate.protocol import OnDemand, Refusal
from headgate.state.ledger import Ledger
from headgate.state.snapshot import Snapshot
from headgate.state.state import LogEntry, State
from headgate.state.stops import StopLog
from headgate.state.tables import NAMES
from headgate.state.thaw import rebuild_indexes
from headgate.state.view import Names

_CLASSES_KEPT = 4096
"""How many runtime classes shared by name are kept without a task, the latest ones."""


def compact(state: State) -> None:
    """Drop the rows of archived jobs; all others keep their order, and get new numbers. O(rows).

    Plans, warm caches and earlier snapshots name the old rows: it begins a new history of states
    (see `Snapshot.changes`), and must not run while a decision is outstanding.
    """
    view = state.freeze()
    kept = _Kept(view)
    state.names = kept.names()
    state.tasks = _selected(view.tasks, kept.tasks)
    state.jobs = _selected(view.jobs, kept.jobs)
    state.gpus = _selected(view.gpus, kept.gpus)
    state.grants = _selected(view.grants, kept.grants)
    state.shards = _selected(view.shards, kept.shards)
    state.inputs = _selected(view.inputs, kept.inputs)
    state.runtime_classes = _selected(view.runtime_classes, kept.classes)
    for column, numbers in (
        (state.tasks.job, kept.job_at), (state.tasks.task_group, kept.task_at),
        (state.tasks.demand, kept.demand_at), (state.tasks.grant, kept.grant_at),
        (state.tasks.target, kept.grant_at),
        (state.tasks.input, kept.input_at), (state.tasks.runtime_class, kept.class_at),
        (state.tasks.estimate_class, kept.class_at), (state.runtime_classes.parent, kept.class_at),
        (state.grants.task, kept.task_at), (state.grants.demand, kept.demand_at),
        (state.gpus.task, kept.task_at),
        (state.nodes.first_gpu, _kept_before(kept.gpus, len(view.gpus.node))),
        (state.jobs.first_task, _kept_before(kept.tasks, len(view.tasks.state))),
        (state.inputs.shards, kept.shard_at),
    ):  # fmt: skip
        column.renumber(numbers)
    state.ledger = Ledger(state.names, state.nodes, state.gpus, state.grants)
    state.memos = {name: column.select(kept.jobs) for name, column in view.memos.items()}
    state.refusals = OnDemand(partial(_renamed, view.refusals, kept.job_at))  # not all of `view`
    state.log = deque(_moves_kept(state.log, kept), maxlen=state.log.maxlen)
    numbers = kept.task_at
    state.stops = StopLog({int(numbers[t]): s for t, s in view.stops.items() if numbers[t] >= 0})
    state.archived_rows = state.first_waiting_job = 0
    rebuild_indexes(state)


class _Kept:
    """The rows kept, by table, ascending; and by old row the new one, -1 for a dropped row."""

    def __init__(self, view: Snapshot) -> None:
        self._view = view
        tasks = view.tasks
        self.jobs = np.flatnonzero(view.jobs.archived.array() == 0)
        self.job_at = _renumbering(self.jobs, len(view.jobs.state))
        self.tasks = np.flatnonzero(self.job_at[tasks.job.array()] >= 0)
        self.task_at = _renumbering(self.tasks, len(tasks.state))
        self.grants = np.flatnonzero(view.grants.task.array() >= 0)
        self.grant_at = _renumbering(self.grants, len(view.grants.task))
        self.inputs = np.unique(tasks.input.take(self.tasks))
        self.input_at = _renumbering(self.inputs, len(view.inputs.shards))
        self.demands = np.unique(tasks.demand.take(self.tasks))
        self.demand_at = _renumbering(self.demands, len(view.names.demands))
        self.classes = self._classes()
        self.class_at = _renumbering(self.classes, len(view.runtime_classes.compute_s))
        self.gpus = self._current_gpus()
        self.shards = self._shards()
        self.shard_at = _renumbering(self.shards, len(view.shards.size_bytes))

    def _shared_classes(self) -> Array:
        """Return the latest classes that later jobs may share by name."""
        rows = self._view.names.runtime_class_rows.items()
        shared = [row for (name, *_), row in rows if isinstance(name, str)]
        return np.array(shared[-_CLASSES_KEPT:], np.int64)

    def _classes(self) -> Array:
        """Return the classes of kept tasks, those that later jobs may share, and wider ones."""
        tasks, parent = self._view.tasks, self._view.runtime_classes.parent
        kept = [tasks.runtime_class.take(self.tasks), tasks.estimate_class.take(self.tasks)]
        wider = np.unique(np.concatenate([*kept, self._shared_classes()]))
        classes = [wider]
        while len(wider):
            wider = np.unique(parent.take(wider))
            wider = wider[wider >= 0]
            classes.append(wider)
        return np.unique(np.concatenate(classes))

    def _current_gpus(self) -> Array:
        """Return the GPUs that nodes have, or had last, not those of earlier incarnations."""
        nodes = self._view.nodes
        current = np.zeros(len(self._view.gpus.node), bool)
        for first, count in zip(
            nodes.first_gpu.array().tolist(), nodes.gpu_count.array().tolist(), strict=True
        ):
            current[first : first + count] = True
        return np.flatnonzero(current)

    def _shards(self) -> Array:
        """Return the shards that are stored or read, or may be recomputed."""
        view = self._view
        rows, shards = view.names.shard_rows, view.shards
        keep: Array = shards.shared.array() > 0
        for copies in (shards.replicas, shards.away):
            keep = keep | (np.diff(copies.flat(np.arange(len(shards.size_bytes)))[0]) > 0)
        keep[self._results(np.flatnonzero(self.job_at < 0))] = False
        keep[self._results(self.jobs)] = True
        keep[view.inputs.shards.flat(self.inputs)[1]] = True
        for dataset in view.datasets.values():
            keep[[rows[shard.id] for shard in dataset.shards]] = True
        return np.flatnonzero(keep)

    def _results(self, jobs: Array) -> list[int]:
        """Return the shards that are results of some jobs."""
        rows = self._view.names.shard_rows
        return [
            rows[name]
            for job in map(self._view.job, jobs.tolist() if rows else ())
            for ordinal, task in enumerate(job.tasks)
            for name in result_ids(job.id, ordinal, task.parts)
            if name in rows
        ]

    def names(self) -> Names:
        """Return the names of the rows kept; append-only lists are shared with the old names."""
        names = self._view.names
        jobs = [names.jobs[row] for row in self.jobs.tolist()]
        shards = [names.shards[row] for row in self.shards.tolist()]
        demands = [names.demands[row] for row in self.demands.tolist()]
        reads = self.shard_at
        inputs = (self._view.inputs.shards[row] for row in self.inputs.tolist())
        classes = {row: key for key, row in names.runtime_class_rows.items()}
        return replace(
            names,
            jobs=jobs,
            job_rows={job.id: row for row, job in enumerate(jobs)},
            shards=shards,
            shard_rows={shard: row for row, shard in enumerate(shards)},
            input_rows={tuple(reads[list(i)].tolist()): row for row, i in enumerate(inputs)},
            runtime_class_rows={classes[old]: row for row, old in enumerate(self.classes.tolist())},
            demands=demands,
            demand_rows={demand: row for row, demand in enumerate(demands)},
            needs=[names.needs[row] for row in self.demands.tolist()],
        )


def _renumbering(kept: Array, count: int) -> Array:
    numbers = np.full(count, -1, np.int64)
    numbers[kept] = np.arange(len(kept))
    return numbers


def _kept_before(kept: Array, count: int) -> Array:
    """Return how many rows are kept before each of `count` rows, and before their end."""
    before: Array = np.searchsorted(kept, np.arange(count + 1))
    return before


def _selected(table: Any, rows: Array) -> Any:
    kind = type(table)
    return kind(*[getattr(table, name).select(rows) for name in NAMES[kind]])


def _renamed(refusals: Iterable[Refusal], job_at: Array) -> Iterator[Refusal]:
    """Yield refusals with the new rows of their jobs; drop one whose jobs are all dropped."""
    for refusal in refusals:
        jobs = tuple(row for row in job_at[list(refusal.jobs)].tolist() if row >= 0)
        if jobs or not refusal.jobs:
            yield replace(refusal, jobs=jobs)


def _moves_kept(log: Iterable[LogEntry], kept: _Kept) -> Iterator[LogEntry]:
    """Yield the moves of the rows kept, with their new numbers."""
    rows = {"task": kept.task_at, "job": kept.job_at}
    for at, what, row, before, after in log:
        moved = int(rows[what][row]) if what in rows else row
        if moved >= 0:
            yield at, what, moved, before, after
