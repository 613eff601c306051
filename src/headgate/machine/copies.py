"""Copies of results and datasets: which of them count."""

from __future__ import annotations

import math

from headgate.model import RunId, Shard, result_ids, task_of_result
from headgate.state import State, TaskState
from headgate.state.life import ENDED


def is_current_result(state: State, run: RunId) -> bool:
    """Return whether the result of a run is that of its task; False for a forgotten job's."""
    task = state.run_row(run)
    return task is not None and state.tasks.state[task] == TaskState.FINISHED


def add_copy(state: State, shard: Shard, node: int | None) -> None:
    """Record a copy on a node (None: on the shared path), unless its result has expired."""
    of = task_of_result(shard.id)
    job = None if of is None else state.names.job_rows.get(of[0])
    if job is not None and not math.isnan(state.jobs.expired_at[job]):
        return
    if node is None:
        state.shards.shared[state.shard(shard)] = 1
    else:
        state.add_replica(state.shard(shard), node)


def remove_copy(state: State, shard: int, node: int | None) -> None:
    """Remove a copy from a node (None: from the shared path)."""
    if node is None:
        state.shards.shared[shard] = 0
    else:
        state.remove_replica(shard, node)


def expire(state: State, job: int) -> None:
    """Remove all copies of the results of an ended job; O(its tasks)."""
    if state.jobs.state[job] not in ENDED:
        raise state.broken("results of a job in flight expired", "job", job)
    spec, known = state.job(job), state.names.shard_rows
    for ordinal, task in enumerate(spec.tasks):
        for name in result_ids(spec.id, ordinal, task.parts):
            if name in known:
                state.shards.replicas[known[name]] = ()
                state.shards.shared[known[name]] = 0
                state.forget_away(known[name])
    state.jobs.expired_at[job] = state.now


def remove_dataset(state: State, name: str) -> None:
    """Forget a dataset, and the copies of its shards on nodes that are down."""
    for shard in state.datasets[name].shards:
        state.forget_away(state.names.shard_rows[shard.id])
    state.datasets = {n: d for n, d in state.datasets.items() if n != name}
