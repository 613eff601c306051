"""The laws of the state, checked in full against the tables themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.base.column import Array
from headgate.base.errors import InvariantBroken
from headgate.state.life import ENDED, HOLDING, JobState, TaskState
from headgate.state.state import State
from headgate.state.tables import GPU_FREE, GPU_GONE


def check(state: State) -> None:
    """Raise InvariantBroken when any law does not hold; O(tasks + GPUs + shards), vectorised."""
    _check_gpus(state)
    _check_counters(state)
    _check_jobs(state)
    _check_queues(state)
    _check_order(state)
    _check_data(state)


def _require(law: str, holds: Array | bool, **shown: Any) -> None:
    if not np.all(holds):
        details = ", ".join(f"{name} = {value}" for name, value in shown.items())
        raise InvariantBroken(f"{law}: {details}")


def _check_gpus(state: State) -> None:
    """Every GPU is held by at most one task, by exactly those tasks that say so, on live nodes."""
    holder, nodes = state.gpus.task.array(), state.gpus.node.array()
    alive, first = state.nodes.alive.array(), state.nodes.first_gpu.array()
    tasks = state.tasks
    states = tasks.state.array()
    expected = np.full(len(holder), GPU_GONE)
    for node in state.live_nodes():
        expected[first[node] : first[node] + state.nodes.gpu_count[node]] = GPU_FREE
    idle = ~np.isin(states, HOLDING)
    none = np.fromiter((held is None for held in tasks.held.array()), bool, len(states))
    _require("a task holds something exactly while it runs", idle == none, held=none)
    cpus_held = np.zeros(len(alive), np.int64)
    for task in np.flatnonzero(~idle).tolist():
        node, held = tasks.node[task], tasks.held[task]
        _require("a task holds GPUs of a node that is up", bool(alive[node]), task=task)
        _require("a task holds as many GPUs as it needs", len(held) == tasks.gpus[task], task=task)
        for gpu in held:
            _require("no GPU is held twice", expected[first[node] + gpu] == GPU_FREE, task=task)
            enough = state.gpus.memory_bytes[first[node] + gpu] >= tasks.memory_bytes[task]
            _require("a held GPU has the memory that the task needs", enough, task=task)
            expected[first[node] + gpu] = task
        cpus_held[node] += tasks.cpus[task]
    _require("GPUs know their holders", expected == holder, gpus=np.flatnonzero(expected != holder))
    free = np.bincount(nodes[holder == GPU_FREE], minlength=len(alive))
    _require("free GPUs are counted", free == state.nodes.free_gpus.array(), free=free)
    cpus = np.array([state.node(n).cpus if alive[n] else 0 for n in range(len(alive))])
    slots = state.nodes.free_cpus.array()
    _require("free CPU slots are counted", cpus - cpus_held == slots, slots=slots)
    _require("no CPU slot is held twice", slots >= 0, slots=slots)


def _check_counters(state: State) -> None:
    """Jobs count their tasks rightly."""
    tasks, jobs = state.tasks, state.jobs
    count = len(state.names.jobs)
    states, job, gpus = tasks.state.array(), tasks.job.array(), tasks.gpus.array()

    def per_job(mask: Array, weights: Array | None = None) -> Array:
        chosen = None if weights is None else weights[mask]
        return np.bincount(job[mask], weights=chosen, minlength=count)

    waiting, holding = states == TaskState.WAITING, np.isin(states, HOLDING)
    for law, counted, expected in (
        ("waiting", jobs.waiting, per_job(waiting & (gpus > 0))),
        ("waiting_cpu", jobs.waiting_cpu, per_job(waiting & (gpus == 0))),
        ("running", jobs.running, per_job(holding & (gpus > 0))),
        ("running_cpu", jobs.running_cpu, per_job(holding & (gpus == 0))),
        ("unfinished", jobs.unfinished, per_job(states != TaskState.FINISHED)),
        ("held_gpus", jobs.held_gpus, per_job(holding, gpus)),
    ):
        wrong = np.flatnonzero(counted.array() != expected)
        _require(f"jobs count '{law}' rightly", len(wrong) == 0, jobs=wrong)
    _require("waiting tasks are counted", int(waiting.sum()) == state.waiting_tasks)
    some = np.flatnonzero((jobs.waiting.array() > 0) | (jobs.waiting_cpu.array() > 0))
    first = int(some[0]) if len(some) else count
    _require("no job before the first waiting one waits", state.first_waiting_job <= first)


def _check_jobs(state: State) -> None:
    """Jobs stand where their tasks say that they do."""
    states = state.jobs.state.array()
    runs = (state.jobs.running.array() > 0) | (state.jobs.running_cpu.array() > 0)
    finished = state.jobs.unfinished.array() == 0
    for law, holds in (
        ("jobs that have ended or not begun run nothing",
         ~(runs & np.isin(states, (JobState.QUEUED, *ENDED)))),
        ("a stopping job waits for a run to end", runs | (states != JobState.STOPPING)),
        ("a job has finished exactly when all its tasks have",
         finished == (states == JobState.FINISHED)),
    ):  # fmt: skip
        _require(law, holds, jobs=np.flatnonzero(~holds))


def _check_queues(state: State) -> None:
    """Queues count their jobs and GPUs rightly."""
    jobs, queues = state.jobs, state.queues
    count = len(state.lines)
    states, queue = jobs.state.array(), jobs.queue.array()
    in_flight = np.isin(states, (JobState.ACTIVE, JobState.STOPPING))
    flying = np.bincount(queue[in_flight], minlength=count)
    _require("jobs in flight are counted", flying == queues.in_flight.array(), counted=flying)
    held = np.bincount(queue, weights=jobs.held_gpus.array(), minlength=count)
    _require("queues count their GPUs", held == queues.held_gpus.array(), counted=held)
    for row in range(count):
        rows = np.flatnonzero((queue == row) & (states == JobState.QUEUED)).tolist()
        _require("queued jobs stand in order of arrival", rows == [*state.lines[row]], queue=row)
        _require("queued jobs are counted", len(rows) == queues.queued[row], queue=row)


def _check_order(state: State) -> None:
    """A task waits for exactly those before it that have not finished; ended jobs are still."""
    states = state.tasks.state.array()
    blocked_or_waiting = np.isin(states, (TaskState.BLOCKED, TaskState.WAITING))
    for task in np.flatnonzero(blocked_or_waiting).tolist():
        job = state.tasks.job[task]
        in_flight = state.jobs.state[job] == JobState.ACTIVE
        _require("only tasks of jobs in flight wait", in_flight, task=task)
        if not state.names.jobs[job].tasks[state.ordinal(task)].after:
            blocked = states[task] == TaskState.BLOCKED
            _require("a task without predecessors is not blocked", not blocked, task=task)
            continue
        before = state.unfinished_before(task)
        _require("blockers are counted", before == state.tasks.blockers[task], task=task)
        blocked = states[task] == TaskState.BLOCKED
        _require("blocked exactly when something blocks", blocked == (before > 0), task=task)


def _check_data(state: State) -> None:
    """Replicas lie on nodes that are up."""
    alive = state.nodes.alive.array()
    for shard, nodes in enumerate(state.shards.replicas.array().tolist()):
        _require("replicas lie on nodes that are up", bool(np.all(alive[list(nodes)])), shard=shard)
