"""A snapshot of the state as bytes, in the journal's schema: readable by any later release.

One archive of arrays (NumPy's `npz`, never with pickled objects): each numeric column is an array
`table.column`, each column of lists two (`.offsets`, `.numbers`), and all that is no number is JSON
in one array of bytes. Indexes by name are not stored; they follow from the names.
"""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from headgate.base.column import Column, FrozenColumn
from headgate.base.lists import FrozenLists, Lists
from headgate.base.vectors import FrozenVectors, Vectors
from headgate.model import BASE_KINDS, Bandwidth, Dataset, Demand, Job, Node, Queue
from headgate.model.topology import ClusterTopology
from headgate.protocol import Hardened, KeptRun, RunStop, StopCause, StopKind, Timer
from headgate.state import Snapshot
from headgate.state.fleet import NO_FLEET, Fleet
from headgate.state.tables import TABLES, empty, freeze, memo, thaw_table
from headgate.state.view import Names

Kind = tuple[str | tuple[str], int, bool, int]
KindOfModels = tuple[str | tuple[str], int, bool, int, str]
RuntimeClassKey = (
    Kind
    | KindOfModels
    | tuple[str, int, bool, int, str, str, int]
    | tuple[str, int, bool, int, str, str, str, int]
    | tuple[str, str, int]
    | tuple[str, int]
    | tuple[str, str]
    | tuple[str]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """The part of a snapshot that is not in arrays: names, specs, messages, single values."""

    version: int
    now: float
    bandwidth: Bandwidth
    datasets: dict[str, Dataset]
    waiting_tasks: int
    first_waiting_job: int
    next_job: int
    timers: dict[Timer, float]
    policy_failures: int
    jobs: list[Job]
    racks: list[str]
    users: list[str]
    shards: list[str]
    runtime_classes: list[RuntimeClassKey]
    resources: list[str]
    demands: list[Demand]
    messages: list[str | None]
    granted: list[tuple[int, ...]]
    queues: list[Queue]
    nodes: list[Node]
    stops: dict[int, tuple[RunStop, ...]] = field(default_factory=dict)
    run_gpus: list[tuple[int, ...]] = field(default_factory=list)
    kept: list[KeptRun | None] = field(default_factory=list)
    topology: ClusterTopology | None = None
    fleet: Fleet = NO_FLEET
    node_memos: dict[str, dict[int, float]] = field(default_factory=dict)
    hardened: Hardened | None = None
    models: list[str] = field(default_factory=lambda: [""])
    label_sets: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    preempted: dict[int, str] = field(default_factory=dict)
    """Of earlier releases, in place of `stops`: why the last run of a task was preempted."""


_ADAPTER = TypeAdapter(tuple[_Rest], config=ConfigDict(ser_json_inf_nan="constants"))
_OBJECTS = {("jobs", "message"): "messages", ("grants", "gpus"): "granted",
            ("queues", "spec"): "queues", ("nodes", "spec"): "nodes",
            ("tasks", "run_gpus"): "run_gpus",
            ("tasks", "kept"): "kept"}  # fmt: skip

_LATER = {
    "gpus.model": "gpus.node",
    "gpus.outside_bytes": "gpus.node",
    "gpus.outside_pid": "gpus.node",
    "gpus.withheld": "gpus.node",
    "tasks.target": "tasks.grant",
    "grants.purpose": "grants.task",
    "jobs.elastic": "jobs.number",
    "jobs.migrations": "jobs.number",
    "jobs.beyond": "jobs.number",
    "jobs.next_width": "jobs.number",
    "jobs.speed": "jobs.number",
    "nodes.down_since": "nodes.rack",
    "queues.taken_back_at": "queues.queued",
    "queues.taken_back_gpu_s": "queues.queued",
    "queues.taken_back_runs": "queues.queued",
    "nodes.draining": "nodes.rack",
    "nodes.idle_since": "nodes.rack",
    "nodes.label_set": "nodes.rack",
    "nodes.outside": "nodes.rack",
    "nodes.speed": "nodes.alive",
    "runtime_classes.used_runs": "runtime_classes.parent",
    "runtime_classes.used_memory_bytes": "runtime_classes.parent",
    "runtime_classes.used_gpu_bytes": "runtime_classes.parent",
    "runtime_classes.used_cpus_milli": "runtime_classes.parent",
    "tasks.run_gpus": "tasks.grant",
    "tasks.speed": "tasks.grant",
    "tasks.exit_status": "tasks.grant",
    "tasks.kept": "tasks.grant",
    "tasks.over_bytes": "tasks.grant",
    "tasks.over_gpu_bytes": "tasks.grant",
}
"""Columns that earlier releases did not store, all rows blank then; one of as many rows each."""


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as bytes; in any thread, while the engine continues. O(state)."""
    arrays: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for table in TABLES:
        for each in fields(TABLES[table]):
            column = getattr(getattr(snapshot, table), each.name)
            if (table, each.name) in _OBJECTS:
                objects[_OBJECTS[table, each.name]] = column.array().tolist()
            else:
                arrays |= _arrays(f"{table}.{each.name}", column)
    for name, column in snapshot.memos.items():
        arrays[f"memo.{name}"] = column.array()
    text = _ADAPTER.dump_json((_rest(snapshot, objects),), warnings="error")
    arrays["rest"] = np.frombuffer(text, np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _arrays(name: str, column: FrozenColumn | FrozenLists | FrozenVectors) -> dict[str, Any]:
    if isinstance(column, FrozenColumn):
        return {name: column.array()}
    if isinstance(column, FrozenVectors):
        return {name: column.array()}
    offsets, numbers = column.flat(np.arange(len(column)))
    return {f"{name}.offsets": offsets, f"{name}.numbers": numbers}


def _rest(snapshot: Snapshot, objects: Mapping[str, Any]) -> _Rest:
    names = snapshot.names  # the writer may add more meanwhile: no table refers to that
    # keys are typed as tuples of anything; `state.runtimes` makes them of these forms alone
    classes = sorted(
        (row, cast(RuntimeClassKey, key)) for key, row in names.runtime_class_rows.copy().items()
    )
    return _Rest(
        version=snapshot.version,
        now=snapshot.now,
        bandwidth=snapshot.bandwidth,
        topology=snapshot.topology,
        fleet=snapshot.fleet,
        datasets=dict(snapshot.datasets),
        waiting_tasks=snapshot.waiting_tasks,
        first_waiting_job=snapshot.first_waiting_job,
        next_job=snapshot.next_job,
        stops=dict(snapshot.stops),
        timers=dict(snapshot.timers),
        policy_failures=snapshot.policy_failures,
        node_memos={name: dict(values) for name, values in snapshot.node_memos.items()},
        hardened=snapshot.hardened,
        jobs=names.jobs[: len(snapshot.jobs.state)],
        racks=names.racks[:],
        users=names.users[:],
        shards=names.shards[: len(snapshot.shards.size_bytes)],
        runtime_classes=[key for _, key in classes[: len(snapshot.runtime_classes.compute_s)]],
        resources=names.resources[:],
        demands=names.demands[:],
        models=names.models[:],
        label_sets=names.label_sets[:],
        **objects,
    )


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot of `encode_snapshot`'s bytes; ValueError for other bytes."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = dict(archive)
        (rest,) = _ADAPTER.validate_json(arrays["rest"].tobytes(), strict=True)
        return _snapshot(arrays, rest)
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"not a snapshot of this schema: {error}") from error


def _snapshot(arrays: Mapping[str, Any], rest: _Rest) -> Snapshot:
    tables = {name: _table(name, arrays, rest) for name in TABLES}
    memos = {
        name.removeprefix("memo."): _memo(values)
        for name, values in arrays.items()
        if name.startswith("memo.")
    }
    inputs = tables["inputs"].shards.array().tolist()
    names = Names(
        jobs=rest.jobs,
        job_rows=_rows(job.id for job in rest.jobs),
        node_rows=_rows(node.id for node in rest.nodes),
        racks=rest.racks,
        users=rest.users,
        queue_rows=_rows(queue.name for queue in rest.queues),
        shards=rest.shards,
        shard_rows=_rows(rest.shards),
        input_rows=_rows(inputs),
        runtime_class_rows=_rows(rest.runtime_classes),
        resources=[*BASE_KINDS],
        demands=[],
        demand_rows={},
        needs=[],
        models=rest.models,
        label_sets=rest.label_sets,
    )
    if "gpus.model" not in arrays:
        tables["gpus"] = _with_models(tables, names, rest.nodes)
    for name in rest.resources:
        names.resource(name)
    for demand in rest.demands:
        names.demand(demand)
    return Snapshot(
        version=rest.version,
        now=rest.now,
        origin=None,
        **tables,
        names=names,
        bandwidth=rest.bandwidth,
        topology=rest.topology,
        fleet=rest.fleet,
        refusals=(),
        datasets=rest.datasets,
        memos={name: column.freeze() for name, column in memos.items()},
        node_memos=rest.node_memos,
        hardened=rest.hardened,
        waiting_tasks=rest.waiting_tasks,
        first_waiting_job=rest.first_waiting_job,
        next_job=rest.next_job,
        stops=rest.stops or _stops(rest, tables["tasks"]),
        timers=rest.timers,
        policy_failures=rest.policy_failures,
    )


def _with_models(tables: Mapping[str, Any], names: Names, nodes: Sequence[Node]) -> Any:
    """Return the table of GPUs of an earlier release with their models."""
    gpus = thaw_table(tables["gpus"])
    for node, first in zip(nodes, tables["nodes"].first_gpu.array().tolist(), strict=True):
        for index, gpu in enumerate(node.gpus):
            gpus.model[first + index] = names.model(gpu.model)
    return freeze(gpus)


def _stops(rest: _Rest, tasks: Any) -> dict[int, tuple[RunStop, ...]]:
    """Return the stops of a snapshot of an earlier release."""
    return {
        task: (RunStop(tasks.attempts[task], rest.now, StopCause(StopKind.PREEMPTED, text)),)
        for task, text in rest.preempted.items()
    }


def _rows(names: Any) -> dict[Any, int]:
    return {name: row for row, name in enumerate(names)}


def _table(name: str, arrays: Mapping[str, Any], rest: _Rest) -> Any:
    table = empty(TABLES[name])
    for each in fields(TABLES[name]):
        column: Column | Lists | Vectors = getattr(table, each.name)
        key = f"{name}.{each.name}"
        if key in _LATER and key not in arrays and (name, each.name) not in _OBJECTS:
            column.grow(len(arrays[_LATER[key]]))
        elif isinstance(column, Lists):
            offsets, numbers = arrays[f"{key}.offsets"], arrays[f"{key}.numbers"]
            ends = offsets.tolist()
            flat = numbers.tolist()
            for start, end in itertools.pairwise(ends):
                column.append(tuple(flat[start:end]))
        elif isinstance(column, Vectors):
            for amounts in arrays[key].tolist():
                column.append(amounts)
        elif (name, each.name) in _OBJECTS:
            values = getattr(rest, _OBJECTS[name, each.name])
            for value in values:
                column.append(value)
            if key in _LATER and not values:
                column.grow(len(arrays[_LATER[key]]))
        else:
            column.extend(arrays[key], len(arrays[key]))
    return freeze(table)


def _memo(values: Any) -> Column:
    column = memo()
    column.extend(values, len(values))
    return column
