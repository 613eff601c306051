"""Conversion of a snapshot into a state: for what-if, and to recover from a stored one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headgate.model import result_ids
from headgate.state.ledger import Ledger
from headgate.state.life import ENDED, JobState
from headgate.state.queued_jobs import QueuedJobs
from headgate.state.snapshot import Snapshot
from headgate.state.state import State
from headgate.state.stops import StopLog
from headgate.state.tables import TABLES, thaw_table
from headgate.state.view import Names


def thaw(snapshot: Snapshot, *, hypothetical: bool = True) -> State:
    """Return a separate state with the content of a snapshot.

    A hypothetical state does not update runtime estimates unless `learns` is set. O(names + tasks);
    pages of tables are copied when they are written to.
    """
    state = State()
    for name in TABLES:
        setattr(state, name, thaw_table(getattr(snapshot, name)))
    state.origin, state.learns = (snapshot, False) if hypothetical else (None, True)
    state.version, state.now = snapshot.version, snapshot.now
    state.bandwidth, state.datasets = snapshot.bandwidth, snapshot.datasets
    state.topology, state.fleet = snapshot.topology, snapshot.fleet
    state.refusals, state.waiting_tasks = snapshot.refusals, snapshot.waiting_tasks
    state.first_waiting_job = snapshot.first_waiting_job
    state.names = _names(snapshot)
    state.ledger = Ledger(state.names, state.nodes, state.gpus, state.grants)
    state.user_rows = {user: row for row, user in enumerate(state.names.users)}
    state.next_job = snapshot.next_job
    state.stops = StopLog(snapshot.stops)
    state.timers, state.policy_failures = snapshot.timers, snapshot.policy_failures
    state.memos = {name: column.thaw() for name, column in snapshot.memos.items()}
    state.node_memos = snapshot.node_memos
    state.hardened = snapshot.hardened
    archived = np.flatnonzero(snapshot.jobs.archived.array())
    state.archived_rows = len(archived) + int(snapshot.jobs.task_count.take(archived).sum())
    rebuild_indexes(state)
    return state


def rebuild_indexes(state: State) -> None:
    """Derive from the tables what the state keeps beside them: queued jobs, and lineage.

    O(jobs + tasks of unfinished jobs).
    """
    jobs = state.jobs
    state.queued_jobs = [QueuedJobs() for _ in range(len(state.queues.spec))]
    state.dependents, state.results, state.result_of, state.followers = {}, {}, {}, {}
    states = jobs.state.array()
    for job in np.flatnonzero(states == JobState.QUEUED).tolist():
        state.enqueue(job)
    for job in np.flatnonzero(~np.isin(states, ENDED)).tolist():
        _index_tasks(state, job)


def _names(snapshot: Snapshot) -> Names:
    """Return a copy of a snapshot's names; the writer may have added more since."""
    names = snapshot.names

    def known(rows: dict[Any, int], count: int) -> dict[Any, int]:
        return {name: row for name, row in rows.copy().items() if row < count}

    jobs, nodes = len(snapshot.jobs.state), len(snapshot.nodes.alive)
    demands = names.demands[: int(snapshot.tasks.demand.array().max(initial=-1)) + 1]
    queues, shards = len(snapshot.queues.spec), len(snapshot.shards.size_bytes)
    return replace(
        names,
        jobs=names.jobs[:jobs],
        job_rows=known(names.job_rows, jobs),
        node_rows=known(names.node_rows, nodes),
        racks=names.racks[:],
        users=names.users[:],
        queue_rows=known(names.queue_rows, queues),
        shards=names.shards[:shards],
        shard_rows=known(names.shard_rows, shards),
        resources=names.resources[:],
        demands=demands,
        demand_rows={demand: row for row, demand in enumerate(demands)},
        needs=names.needs[: len(demands)],
        models=names.models[:],
        label_sets=names.label_sets[:],
        input_rows=known(names.input_rows, len(snapshot.inputs.shards)),
        runtime_class_rows=known(names.runtime_class_rows, len(snapshot.runtime_classes.compute_s)),
    )


def _index_tasks(state: State, job: int) -> None:
    first = state.jobs.first_task[job]
    later: dict[int, list[int]] = {}
    for ordinal, task in enumerate(state.job(job).tasks):
        for before in task.after:
            later.setdefault(first + before, []).append(first + ordinal)
    state.dependents.update((before, tuple(after)) for before, after in later.items())
    rows, known = state.tasks_of(job), state.names.shard_rows
    for row, task in zip(rows, state.job(job).tasks, strict=True):
        names = result_ids(state.job(job).id, row - first, task.parts)
        if all(name in known for name in names):
            shards = state.results[row] = tuple(known[name] for name in names)
            state.result_of.update(dict.fromkeys(shards, row))
