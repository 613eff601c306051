"""The invariants of the state, checked in full against the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from headgate.base.column import Array
from headgate.base.errors import InvariantBroken
from headgate.model import UNLIMITED, WHOLE, Job
from headgate.state.elastic import unit_size
from headgate.state.hardened import faults_of
from headgate.state.life import DONE, ENDED, HOLDING, PENDING, RUNS, JobState, TaskState
from headgate.state.moves import unit_of
from headgate.state.state import State
from headgate.state.tables import FOR_MOVE, GPU_FREE, GPU_GONE, GPU_IN_PART


def _one_of(kind: type[IntEnum], states: Collection[int]) -> Array:
    """Return whether each state is one of these, to be taken by state: `isin` is much slower."""
    return np.isin(np.arange(len(kind)), tuple(states))


_HOLDS = _one_of(TaskState, HOLDING)
_RUNS = _one_of(TaskState, RUNS)
_PENDS = _one_of(TaskState, PENDING)
_DONE = _one_of(TaskState, DONE)
_IN_FLIGHT = _one_of(TaskState, (TaskState.WAITING, *HOLDING))
_HAS_ENDED = _one_of(JobState, ENDED)
_RUNS_NOTHING = _one_of(JobState, (JobState.QUEUED, *ENDED))
_HAS_TASKS_LEFT = _one_of(JobState, (JobState.QUEUED, JobState.ACTIVE))
_FLIES = _one_of(JobState, (JobState.ACTIVE, JobState.STOPPING))


def check(state: State) -> None:
    """Raise InvariantBroken for a violated invariant; O(tasks + GPUs + shards), vectorised."""
    _check_moves(state)
    _check_gpus(state)
    _check_counters(state)
    _check_jobs(state)
    _check_queues(state)
    _check_order(state)
    _check_jobs_in_flight(state)
    _check_data(state)
    _check_reports(state)
    _check_hardened(state)


def _check_hardened(state: State) -> None:
    if state.hardened is not None:
        faults = list(faults_of(state, state.hardened))
        _require("places are kept for what waits, where it can start", not faults, why=faults)


def _require(law: str, holds: Array | bool, **shown: Any) -> None:
    if not (holds.all() if isinstance(holds, np.ndarray) else holds):
        details = ", ".join(f"{name} = {value}" for name, value in shown.items())
        raise InvariantBroken(f"{law}: {details}")


def _check_gpus(state: State) -> None:
    """Every GPU is held by at most one grant, by exactly those that say so, on live nodes."""
    holder, nodes = state.gpus.task.array(), state.gpus.node.array()
    alive, first = state.nodes.alive.array(), state.nodes.first_gpu.array()
    tasks = state.tasks
    states = tasks.state.array()
    expected = np.full(len(holder), GPU_GONE)
    for node in state.live_nodes():
        expected[first[node] : first[node] + state.nodes.gpu_count[node]] = GPU_FREE
    milli, outside = np.where(expected == GPU_FREE, WHOLE, 0), state.gpus.outside_bytes.array()
    bytes_left = np.where(expected == GPU_FREE, state.gpus.memory_bytes.array(), 0)
    idle = ~_HOLDS[states]
    none = tasks.grant.array() < 0
    _require("a task holds something exactly while it runs", idle == none, grant=none)
    granted = np.flatnonzero(state.grants.task.array() >= 0)
    grants = [*_grants(state, idle)]
    _require("each grant is one task's", len(grants) == len(granted), grants=granted)
    held = np.zeros((len(alive), len(state.names.resources)), np.int64)
    for task, node, grant in grants:
        demand = state.demand(task)
        _require("a task holds something of a node that is up", bool(alive[node]), task=task)
        of_grant = (state.grants.task[grant], state.grants.node[grant], state.grants.demand[grant])
        expected_of = (task, node, tasks.demand[task])
        _require("a grant is of its task", of_grant == expected_of, task=task)
        accepted = demand.accepts_name(state.node(node).id)
        _require("a task holds something of a node that it accepts", accepted, task=task)
        for kind, amount in state.names.needs[tasks.demand[task]]:
            held[node, kind] += amount
        indices = state.grants.gpus[grant]
        _require("a task holds as many GPUs as it needs", len(indices) == demand.gpus, task=task)
        for gpu in (first[node] + index for index in indices):
            size, model = state.gpus.memory_bytes[gpu], state.names.models[state.gpus.model[gpu]]
            _require("a held GPU is of a model that the task accepts", demand.accepts_model(model))
            _require("no GPU is held twice", expected[gpu] in (GPU_FREE, GPU_IN_PART), task=task)
            enough = size >= demand.gpu_memory_bytes
            _require("a held GPU has the memory that the task needs", enough, task=task)
            if not demand.in_part:
                _require("no GPU is held twice", expected[gpu] == GPU_FREE, task=task)
                expected[gpu] = task
                continue
            expected[gpu] = GPU_IN_PART
            milli[gpu] -= demand.gpu_milli
            bytes_left[gpu] -= demand.part_bytes(size)
            _require("no GPU is held twice", min(milli[gpu], bytes_left[gpu]) >= 0, task=task)
    withdrawn = (expected == GPU_FREE) & (state.gpus.withheld.array() > 0)
    expected[withdrawn], milli[withdrawn], bytes_left[withdrawn] = GPU_GONE, 0, 0
    expected[(expected == GPU_FREE) & (outside > 0)] = GPU_IN_PART
    bytes_left = np.where(expected == GPU_IN_PART, bytes_left - outside, bytes_left)
    _require("GPUs know their holders", expected == holder, gpus=np.flatnonzero(expected != holder))
    for law, stored, counted in (
        ("free shares of GPUs are counted", state.gpus.free_milli, milli),
        ("free memory of GPUs is counted", state.gpus.free_bytes, bytes_left),
    ):
        _require(law, stored.array() == counted, counted=counted)
    withheld = state.gpus.withheld.array() > 0
    _require("only nodes that are up have withheld GPUs", alive[nodes[withheld]] > 0)
    free = np.bincount(nodes[holder == GPU_FREE], minlength=len(alive))
    _require("free GPUs are counted", free == state.nodes.free_gpus.array(), free=free)
    _check_amounts(state, held)


def _grants(state: State, idle: Array) -> Iterator[tuple[int, int, int]]:
    """Yield tasks that hold something, with node and grant; one that moves to another place twice.

    The node is the task's own, or for the target of a move that of the grant.
    """
    tasks = state.tasks
    for task in np.flatnonzero(~idle).tolist():
        grant, target = tasks.grant[task], tasks.target[task]
        yield task, tasks.node[task], grant
        if target >= 0 and target != grant:
            yield task, state.grants.node[target], target


def _check_moves(state: State) -> None:
    """Check that what moves is stopped, all of a gang or none, with a place held for each task."""
    tasks, purposes = state.tasks, set[int]()
    states, target = tasks.state.array(), tasks.target.array()
    stopping = states == TaskState.STOPPING
    _require("only a run that is stopped has a target", stopping[target >= 0], target=target)
    moving = (target >= 0) | (states == TaskState.MOVING)
    for task in np.flatnonzero(moving).tolist():
        job, unit = tasks.job[task], unit_of(state, task)
        _require("only jobs in flight move", state.jobs.state[job] == JobState.ACTIVE, task=task)
        _require("a gang moves as a whole", moving[unit.start : unit.stop], task=task)
        ended = states[unit.start : unit.stop] == TaskState.MOVING
        _require("a gang waits for the ends of its runs", not ended.all(), task=task)
        held = tasks.grant[task] if target[task] < 0 else target[task]
        elsewhere = held != tasks.grant[task]
        for_move = state.grants.purpose[held] == FOR_MOVE
        marked = target[task] < 0 or for_move == elsewhere
        _require("only a target elsewhere is for a move", marked, task=task)
        used = set(state.grants.gpus[held]) & set(state.withheld_gpus_of(state.grants.node[held]))
        _require("no task moves to GPUs that other programs use", not used, task=task)
        purposes.update((held,) if for_move else ())
        some = [tasks.grant[t] if target[t] < 0 else target[t] for t in unit]
        _require(
            "a unit that moves has a target elsewhere",
            any(state.grants.purpose[grant] == FOR_MOVE for grant in some),
            task=task,
        )
    others = set(np.flatnonzero(state.grants.purpose.array()).tolist()) - purposes
    _require("only targets are held for moves", not others, grants=others)


def _check_amounts(state: State, held: Array) -> None:
    """Check that free amounts are totals less what grants hold, by node and kind."""
    nodes, up = range(len(state.nodes.alive)), state.nodes.draining.array() == 0
    for kind, name in enumerate(state.names.resources):
        total = np.array([_amount(state, node, name) for node in nodes], np.int64)
        free, outside = state.nodes.free.kind(kind), state.nodes.outside.kind(kind) * up
        _require(f"nodes have the {name} they joined with", total == state.nodes.total.kind(kind))
        counted = total - held[:, kind] * up - outside
        _require(f"free {name} is counted", counted == free, free=free)
        _require(f"no {name} is held twice", free + outside >= 0, free=free)


def _amount(state: State, node: int, name: str) -> int:
    spec = state.node(node)
    if not state.nodes.alive[node] or state.nodes.draining[node]:
        return 0
    if name == "memory":
        return UNLIMITED if spec.memory_bytes is None else spec.memory_bytes
    return WHOLE * spec.cpus if name == "cpus" else dict(spec.custom).get(name, 0)


def _check_counters(state: State) -> None:
    """Check the task counters of jobs."""
    tasks, jobs = state.tasks, state.jobs
    count = len(state.names.jobs)
    states, job, gpus = tasks.state.array(), tasks.job.array(), tasks.gpus.array()
    milli = np.array([d.gpus_milli for d in state.names.demands], np.int64)[tasks.demand.array()]

    def per_job(mask: Array, weights: Array | None = None) -> Array:
        chosen = None if weights is None else weights[mask]
        return np.bincount(job[mask], weights=chosen, minlength=count)

    waiting, holding = states == TaskState.WAITING, _HOLDS[states]
    for law, counted, expected in (
        ("waiting", jobs.waiting, per_job(waiting & (gpus > 0))),
        ("waiting_cpu", jobs.waiting_cpu, per_job(waiting & (gpus == 0))),
        ("running", jobs.running, per_job(holding & (gpus > 0))),
        ("running_cpu", jobs.running_cpu, per_job(holding & (gpus == 0))),
        ("unfinished", jobs.unfinished, per_job(states != TaskState.FINISHED)),
        ("held_gpus_milli", jobs.held_gpus_milli, per_job(holding, milli)),
    ):
        wrong = np.flatnonzero(counted.array() != expected)
        _require(f"jobs count '{law}' correctly", len(wrong) == 0, jobs=wrong)
    _require("waiting tasks are counted", int(waiting.sum()) == state.waiting_tasks)
    some = np.flatnonzero((jobs.waiting.array() > 0) | (jobs.waiting_cpu.array() > 0))
    first = int(some[0]) if len(some) else count
    _require("no job before the first waiting one waits", state.first_waiting_job <= first)


def _check_jobs(state: State) -> None:
    """Check the states of jobs against those of their tasks."""
    states = state.jobs.state.array()
    runs = (state.jobs.running.array() > 0) | (state.jobs.running_cpu.array() > 0)
    finished = state.jobs.unfinished.array() == 0
    for law, holds in (
        ("jobs that have ended or not begun run nothing",
         ~(runs & _RUNS_NOTHING[states])),
        ("a stopping job waits for a run to end", runs | (states != JobState.STOPPING)),
        ("a job has finished exactly when all its tasks have",
         finished == (states == JobState.FINISHED)),
    ):  # fmt: skip
        _require(law, holds, jobs=np.flatnonzero(~holds))
    _check_left(state)
    archived = state.jobs.archived.array() > 0
    _require("only ended jobs are archived", _HAS_ENDED[states[archived]])
    rows = int(archived.sum() + state.jobs.task_count.array()[archived].sum())
    _require("archived rows are counted", rows == state.archived_rows, counted=rows)


def _check_left(state: State) -> None:
    """Check that a job in flight, or queued, has a task that has not ended."""
    over = _DONE[state.tasks.state.array()]
    left = np.bincount(state.tasks.job.array()[~over], minlength=len(state.jobs.state)) > 0
    has_ended = ~_HAS_TASKS_LEFT[state.jobs.state.array()]
    _require("a job that has not ended has a task that has not", left | has_ended, tasks_left=left)


def _check_queues(state: State) -> None:
    """Check the counters and the order of queues."""
    jobs, queues = state.jobs, state.queues
    count = len(state.queued_jobs)
    states, queue = jobs.state.array(), jobs.queue.array()
    in_flight = _FLIES[states]
    flying = np.bincount(queue[in_flight], minlength=count)
    _require("jobs in flight are counted", flying == queues.in_flight.array(), counted=flying)
    held = np.bincount(queue, weights=jobs.held_gpus_milli.array(), minlength=count)
    _require("queues count their GPUs", held == queues.held_gpus_milli.array(), counted=held)
    for row in range(count):
        rows = np.flatnonzero((queue == row) & (states == JobState.QUEUED)).tolist()
        eligible = [job for job in rows if not state.awaited_jobs(job)]
        _require(
            "queued jobs are in order of arrival", eligible == [*state.queued_jobs[row]], queue=row
        )
        _require("queued jobs are counted", len(rows) == queues.queued[row], queue=row)
        for job in rows:
            for before in state.awaited_jobs(job):
                _require("awaited jobs know it", job in state.followers.get(before, ()), job=job)
                ended = state.jobs.state[before] in ENDED
                _require("no job waits for one that has ended", not ended, job=job)


def _check_order(state: State) -> None:
    """Check blockers: the unfinished predecessors; tasks wait only in jobs in flight."""
    tasks, jobs = state.tasks, state.jobs
    states, job = tasks.state.array(), tasks.job.array()
    of_job = jobs.state.array()[job]
    held_back = (states == TaskState.HELD) & (of_job != JobState.ACTIVE)
    queued = of_job[held_back] == JobState.QUEUED
    _require("only tasks of queued jobs, or jobs in flight, are held", queued, held=held_back)
    rows = np.flatnonzero(_PENDS[states] & ~held_back)
    _require("only tasks of jobs in flight wait", of_job[rows] == JobState.ACTIVE, tasks=rows)
    before = np.array(_unfinished_before(state, rows), np.int64)
    _require("blockers are counted", before == tasks.blockers.array()[rows], counted=before)
    blocked = states[rows] == TaskState.BLOCKED
    _require("blocked exactly when something blocks", blocked == (before > 0), tasks=rows)


def _unfinished_before(state: State, rows: Array) -> list[int]:
    """Return how many of the tasks that must finish before each task have not."""
    jobs, of = state.names.jobs, state.tasks.job.array()[rows]
    first = state.jobs.first_task.array()[of]
    return [
        state.unfinished_before(task) if jobs[job].tasks[ordinal].after else 0
        for task, job, ordinal in zip(
            rows.tolist(), of.tolist(), (rows - first).tolist(), strict=True
        )
    ]


def _check_jobs_in_flight(state: State) -> None:
    """Check that no job began early, and that as many tasks are in flight as it allows."""
    states, jobs = state.tasks.state.array(), state.jobs
    held = state.tasks.job.array()[states == TaskState.HELD]
    held_of = np.bincount(held, minlength=len(jobs.state)).tolist()
    for job in np.flatnonzero(jobs.state.array() == JobState.ACTIVE).tolist():
        spec = state.job(job)
        early = bool(spec.after) and bool(state.awaited_jobs(job))
        _require("jobs in flight come after jobs that have finished", not early, job=job)
        rows = state.tasks_of(job)
        if spec.elastic is not None:
            _check_elastic(state, job, states[rows.start : rows.stop])
        elif spec.training is not None:
            _check_training(state, job, states[rows.start : rows.stop])
        elif spec.max_running is None or spec.gang:
            held_back = held_of[job] > 0
            _require("only `max_running` holds tasks of a job in flight", not held_back, job=job)
        else:
            _check_max_running(spec, spec.max_running, states[rows.start : rows.stop])


def _check_elastic(state: State, job: int, states: Array) -> None:
    """Check that surplus alone is held, and that the minimum waits together while nothing runs."""
    size, jobs = unit_size(state, job), state.jobs
    waits, held = states == TaskState.WAITING, states == TaskState.HELD
    _require("only surplus of an elastic job is held", not held[:size].any(), job=job)
    _require("surplus of an elastic job does not wait", not waits[size:].any(), job=job)
    some = bool((states == TaskState.FINISHED).any())
    _require("nothing waits once a unit has finished", not some or not (waits | held).any())
    alone = size > 1 and not _HOLDS[states].any()
    _require("units that are missing wait one by one", jobs.gang[job] == alone, job=job)


def _check_training(state: State, job: int, states: Array) -> None:
    """Check that the tasks beyond its width are held, and that a change of that is pending."""
    size, jobs, held = unit_size(state, job), state.jobs, states == TaskState.HELD
    training = state.job(job).training
    assert training is not None
    _require("a job has a width of its curve", size in training.speeds.widths, job=job)
    _require("it works at the speed of that", jobs.speed[job] == training.speed(size), job=job)
    beyond = held[size:].all() and not held[:size].any()
    _require("what is beyond its width is held, and no other task", bool(beyond), job=job)
    pending = (
        not jobs.next_width[job] or _HOLDS[states].any() or (states == TaskState.FINISHED).any()
    )
    _require("its width changes once nothing runs", bool(pending), job=job)


def _check_max_running(job: Job, most: int, states: Array) -> None:
    held, in_flight = states == TaskState.HELD, _IN_FLIGHT[states]
    limited = np.array([job.is_limited(ordinal) for ordinal in range(len(states))])
    _require("only limited tasks are held in a job in flight", limited[held], job=job.id)
    _require("at most `max_running` tasks are in flight", in_flight[limited].sum() <= most)
    _require("no task is held below `max_running`", not held.any() or in_flight.sum() >= most)


def _check_data(state: State) -> None:
    """Check that replicas are on nodes that are up, and masked copies on nodes that are down."""
    shards, alive = state.shards, state.nodes.alive.array().tolist()
    for law, lists, expected in (
        ("replicas are on nodes that are up", shards.replicas, 1),
        ("masked copies are on nodes that are down", shards.away, 0),
    ):
        for shard, nodes in enumerate(lists.array().tolist()):
            _require(law, all(alive[node] == expected for node in nodes), shard=shard)


def _check_reports(state: State) -> None:
    """Check that only nodes that are up have a report, of amounts that are not negative."""
    nodes, gpus, kinds = state.nodes, state.gpus, state.nodes.actual.array()
    outside = nodes.outside.array()
    none = np.isnan(nodes.reported_at.array())
    runs = _RUNS[state.tasks.state.array()]
    for over in (state.tasks.over_bytes.array(), state.tasks.over_gpu_bytes.array()):
        _require("only runs use more than they hold", (over == 0) | (runs & (over > 0)), over=over)
    down = nodes.alive.array() == 0
    _require("a node that is down has no report", none[down], nodes=np.flatnonzero(down & ~none))
    _require("nothing is used of a node without a report", kinds[none] == 0, nodes=none)
    _require("what is used is not negative", kinds >= 0, used=kinds)
    lost = (gpus.task.array() == GPU_GONE) & (gpus.withheld.array() == 0)
    silent = none[gpus.node.array()] | lost
    _require("nothing is used outside of a node without a report", outside[none] == 0, used=outside)
    _require("what is used outside is not negative", outside >= 0, used=outside)
    of_gpus = gpus.outside_bytes.array()
    _require("GPUs of nodes without a report are not used outside", of_gpus[silent] == 0)
    held = (of_gpus >= 0) & (of_gpus <= gpus.memory_bytes.array())
    _require("a GPU has the memory that is used outside", held, used=of_gpus)
    for column in (gpus.actual_bytes.array(), gpus.utilisation_milli.array()):
        _require("GPUs of nodes without a report have none", column[silent] == -1, used=column)
        _require("what is used of a GPU is not negative", column >= -1, used=column)
