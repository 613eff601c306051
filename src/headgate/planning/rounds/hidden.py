"""What is free in a snapshot and kept for some units, hidden from those who plan for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headgate.protocol import Hardened
from headgate.state import Snapshot, TaskState
from headgate.state.elastic import write_width
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART, freeze, thaw_table


class HeldPlace(NamedTuple):
    """What a run of a demand (row) holds: its amounts of a node (row), and GPUs there."""

    demand: int
    node: int
    gpus: tuple[int, ...]


def hide(snapshot: Snapshot, places: Iterable[HeldPlace]) -> Snapshot:
    """Return a snapshot in which what is free of some places cannot be used.

    GPUs as those that other programs use, the rest as what runs hold.
    """
    places = tuple(places)
    if not places:
        return snapshot
    holder, milli = snapshot.gpus.task.thaw(), snapshot.gpus.free_milli.thaw()
    free_bytes, free_gpus = snapshot.gpus.free_bytes.thaw(), snapshot.nodes.free_gpus.thaw()
    free = snapshot.nodes.free.thaw()
    kept: dict[int, dict[int, int]] = {}
    for demand, node, gpus in places:
        for row in (snapshot.nodes.first_gpu[node] + gpu for gpu in gpus):
            if holder[row] in (GPU_FREE, GPU_IN_PART):
                free_gpus[node] -= holder[row] == GPU_FREE
                holder[row] = GPU_GONE if holder[row] == GPU_FREE else GPU_IN_PART
                milli[row] = free_bytes[row] = 0
        amounts = kept.setdefault(node, {})
        for kind, amount in snapshot.names.needs[demand]:
            amounts[kind] = amounts.get(kind, 0) + amount
    for node, amounts in kept.items():
        held = [
            (kind, min(amount, max(free.at(node, kind), 0))) for kind, amount in amounts.items()
        ]
        free.add(node, held, -1)
    return replace(
        snapshot,
        gpus=replace(
            snapshot.gpus,
            task=holder.freeze(),
            free_milli=milli.freeze(),
            free_bytes=free_bytes.freeze(),
        ),
        nodes=replace(snapshot.nodes, free_gpus=free_gpus.freeze(), free=free.freeze()),
    )


def without_runs(snapshot: Snapshot, tasks: Sequence[int]) -> Snapshot:
    """Return a snapshot in which some tasks (rows) of jobs in flight are HELD and hold nothing."""
    if not tasks:
        return snapshot
    tables = {
        name: thaw_table(getattr(snapshot, name))
        for name in ("tasks", "jobs", "queues", "nodes", "gpus", "grants")
    }
    columns, jobs, queues = tables["tasks"], tables["jobs"], tables["queues"]
    ledger = Ledger(snapshot.names, tables["nodes"], tables["gpus"], tables["grants"])
    for task in tasks:
        job, demand = columns.job[task], snapshot.demand(task)
        ledger.release(columns.grant[task])
        columns.grant[task], columns.state[task] = -1, TaskState.HELD
        (jobs.running if demand.gpus else jobs.running_cpu)[job] -= 1
        jobs.held_gpus_milli[job] -= demand.gpus_milli
        queues.held_gpus_milli[jobs.queue[job]] -= demand.gpus_milli
    return replace(snapshot, **{name: freeze(table) for name, table in tables.items()})


def at_widths(snapshot: Snapshot, widths: Mapping[int, int]) -> Snapshot:
    """Return a snapshot in which training jobs (rows) have smaller widths, running or waiting.

    What their other tasks hold is free, and these are HELD. No run of them is being stopped.
    """
    if not widths:
        return snapshot
    states, waiting = snapshot.tasks.state, 0
    others = {job: snapshot.tasks_of(job)[width:] for job, width in widths.items()}
    runs = [t for tasks in others.values() for t in tasks if states[t] in EXECUTING]
    snapshot = without_runs(snapshot, runs)
    tasks, jobs = thaw_table(snapshot.tasks), thaw_table(snapshot.jobs)
    for job, width in widths.items():
        write_width(snapshot, jobs, job, width)
        on_gpus = snapshot.demand(jobs.first_task[job]).gpus
        for task in others[job]:
            if tasks.state[task] == TaskState.WAITING:
                tasks.state[task] = TaskState.HELD
                (jobs.waiting if on_gpus else jobs.waiting_cpu)[job] -= 1
                waiting += 1
    return replace(
        snapshot,
        tasks=freeze(tasks),
        jobs=freeze(jobs),
        waiting_tasks=snapshot.waiting_tasks - waiting,
    )


def without_kept(snapshot: Snapshot, hardened: Hardened) -> Snapshot:
    """Return a snapshot in which what is kept for a hardened unit, and is free, cannot be used."""
    tasks = snapshot.tasks_of(snapshot.names.job_rows[hardened.job])
    demand, rows = snapshot.tasks.demand, snapshot.names.node_rows
    return hide(
        snapshot,
        [
            HeldPlace(demand[tasks[ordinal]], rows[node], gpus)
            for ordinal, node, gpus in hardened.places
        ],
    )
