"""The columns of the state: a row per task, job, queue, node, GPU, shard ..., in order of arrival.

Each table exists twice with the same columns: `Column`s that the state writes and `FrozenColumn`s
that a snapshot shows. A row number names the same object until the tables are compacted
(`headgate.state.compact`), which begins a new history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from headgate.base.column import Column, FrozenColumn
from headgate.base.lists import FrozenLists, Lists
from headgate.base.vectors import FrozenVectors, Vectors

C = TypeVar("C", Column, FrozenColumn)
L = TypeVar("L", Lists, FrozenLists)
V = TypeVar("V", Vectors, FrozenVectors)


@dataclass(slots=True)
class TaskTable(Generic[C]):
    """Tasks; the rows of one job are consecutive, in the order of their ordinals."""

    state: C  # u1 TaskState
    job: C  # row of its job
    gpus: C  # GPUs that it needs, 0 for a task on CPU slots
    memory_bytes: C  # memory that it needs on each of them
    demand: C  # row of its demand; the GPUs and their memory above are part of it
    blockers: C  # earlier tasks that have not finished
    node: C  # row of the node that it holds or held, -1 before
    grant: C  # row of its grant, -1 without one
    target: C  # while it is stopped to move: row of the grant of its next run; else -1
    attempts: C  # runs so far: the number of its current or last run
    next_attempt: C  # number of its next run: one more, or more where numbers were skipped
    failures: C  # runs that its program made fail
    crashes: C  # runs that ended with their executor, on a node that stayed up
    launched_at: C  # of the last run, which holds its GPUs from here; NaN before
    started_at: C  # when it was reported as running, NaN before
    ended_at: C  # NaN before
    speed: C  # seconds of computing at speed 1 that the last run does, or did, in one second
    read_s: C  # seconds that the last run spent reading, or, while it runs, is expected to
    checkpoint_s: C  # seconds of computing between two saves of its progress; 0: never
    progress_s: C  # seconds of computing saved when its next run starts, or its last one started
    runtime_class: C  # row of its kind
    estimate_class: C  # row of the first class of its chain; see `headgate.state.runtimes`
    input: C  # row in `inputs`
    task_group: C  # row of the first task of its job with the same demand that reads the same
    run_gpus: C  # tuple of the indices of the GPUs of its last run, on its node
    exit_status: C  # of the program of its last run, negative for a signal; or NO_EXIT
    kept: C  # KeptRun, the last run that left files; None without one
    over_bytes: C  # memory that its run uses, as last reported, where more than it holds; else 0
    over_gpu_bytes: C  # likewise of the GPU of which it uses most


@dataclass(slots=True)
class JobTable(Generic[C]):
    """Jobs in order of submission."""

    state: C  # u1 JobState
    number: C  # in order of submission; ascending, never reused
    queue: C  # row
    user: C  # row
    priority: C
    gang: C  # 1 where its tasks, several, start together or not at all; see `state.elastic`
    elastic: C  # 1 where it is elastic or trains, and starts, or may start, several tasks together
    beyond: C  # its last tasks, not in its unit: surplus of an elastic job, or beyond its width
    next_width: C  # of a training job whose runs are stopped to change it; else 0
    speed: C  # of a training job with its width: a multiple of that with its smallest one; else 1
    first_task: C  # row
    task_count: C
    unit_gpus_milli: C  # fewest thousandths of GPUs with which a task of it, or its gang, can start
    waiting: C  # WAITING tasks that need GPUs
    waiting_cpu: C  # WAITING tasks that need none
    running: C  # tasks that hold GPUs
    running_cpu: C  # tasks that hold CPU slots
    unfinished: C  # tasks not FINISHED
    held_gpus_milli: C  # thousandths of GPUs
    peak_gpus_milli: C  # most held at one time
    submitted_at: C
    started_at: C  # of its first run, NaN before
    ended_at: C  # NaN before
    expired_at: C  # when its results expired, NaN before
    archived: C  # u1: 1 once it is archived; compaction drops its rows
    estimated_s: C  # declared computing time of each of its tasks, NaN without
    time_limit_s: C  # of each run of its tasks, from its start; NaN without
    message: C  # why it failed or who cancelled it, None otherwise
    lost_gpu_s: C  # GPU seconds of runs that ended without a result, less what is saved of them
    migrations: C  # runs that were started on the target of a move
    read_node_bytes: C  # read by all its runs, killed ones included, on the node,
    read_rack_bytes: C  # in the rack,
    read_cluster_bytes: C  # and across racks


@dataclass(slots=True)
class QueueTable(Generic[C]):
    """Queues; `spec` is the Queue as last changed."""

    spec: C
    held_gpus_milli: C  # thousandths of GPUs
    in_flight: C  # jobs ACTIVE or STOPPING
    queued: C  # jobs QUEUED
    taken_back_at: C  # when runs of others were last stopped for what it had lent; NaN for never
    taken_back_runs: C  # how many of these have ended, in all
    taken_back_gpu_s: C  # GPU seconds that they lost


@dataclass(slots=True)
class NodeTable(Generic[C, V]):
    """Nodes; `spec` is the Node as last joined, with the labels that it has since."""

    spec: C
    alive: C  # 0 or 1
    rack: C  # row
    first_gpu: C  # row of its GPU 0; a node that returns gets new rows
    gpu_count: C
    total: V  # amounts by kind of resource; empty while the node is down or draining
    free: V  # what no run holds, less what is used outside: below 0 where runs hold some of that
    free_gpus: C  # GPUs of which no run holds any part
    actual: V  # measured use, by kind, as last reported: CPUs and memory alone
    outside: V  # what processes outside Headgate use, by kind, likewise
    reported_at: C  # time of the last report, NaN without one since it joined
    draining: C  # u1: 1 while no run may start there
    idle_since: C  # when the last grant on it was released, or it joined; NaN with one, or down
    speed: C  # seconds of computing at speed 1 that take one second; see `Node`
    label_set: C  # row in `Names.label_sets`
    down_since: C  # when it was last lost; NaN while it is up, and where earlier releases lost it


@dataclass(slots=True)
class GpuTable(Generic[C]):
    """GPUs; the rows of one node are consecutive, in the order of their indices."""

    node: C  # row
    memory_bytes: C
    model: C  # row in `Names.models`
    task: C  # row of the task that holds it whole, or one of GPU_FREE, GPU_GONE, GPU_IN_PART
    withheld: C  # u1: 0, or why no run may start on it: OTHERS, DRAINING, or the sum of both
    free_milli: C  # thousandths that no run holds in part; all where one holds it whole
    free_bytes: C  # bytes of its memory that no run holds in part, likewise; as `free` of nodes
    actual_bytes: C  # of its memory, measured use as last reported; -1 if unknown
    outside_bytes: C  # of its memory, what processes outside Headgate use; 0 if unknown
    outside_pid: C  # of the process that uses most of that; 0 without
    utilisation_milli: C  # thousandths, as last reported; -1 if unknown


@dataclass(slots=True)
class GrantTable(Generic[C]):
    """What runs hold, or will, each on one node; rows of released grants are reused."""

    task: C  # row of the task that holds it, -1 once released
    purpose: C  # u1: FOR_RUN or FOR_MOVE
    node: C  # row
    demand: C  # row
    gpus: C  # tuple of GPU indices on that node


@dataclass(slots=True)
class ShardTable(Generic[C, L]):
    """Shards, results among them."""

    size_bytes: C
    replicas: L  # rows of nodes that are up, ascending
    away: L  # rows of nodes that are down and had a copy of this content when lost
    shared: C  # u1: 1 where its job's shared path has a copy


@dataclass(slots=True)
class InputTable(Generic[L]):
    """Inputs of tasks: one row for all tasks that read the same shards in the same order."""

    shards: L  # rows


@dataclass(slots=True)
class RuntimeClassTable(Generic[C]):
    """Tasks that are expected to take alike times: kinds of tasks, and wider classes.

    See `headgate.state.runtimes` for the classes, and for the samples of the last five columns:
    later samples weigh more.
    """

    compute_s: C  # of a kind: mean of finished runs, later ones weighing more; NaN before the first
    held_s: C  # likewise of the time from launch to end, reading included
    parent: C  # row of the next wider class, -1 without one
    count: C  # weight of the samples, that of the last one is 1
    log_mean: C  # mean of the samples, logarithms of times or of ratios
    log_var: C  # their variance about it
    within_count: C  # weight of those whose class below this one had a sample already
    within_var: C  # variance of these about the means of their classes below this one
    used_runs: C  # runs of which it is known what they used; see `headgate.state.usage`
    used_memory_bytes: C  # most that one of them used,
    used_gpu_bytes: C  # of a GPU,
    used_cpus_milli: C  # and in the mean over its time


GPU_FREE, GPU_GONE, GPU_IN_PART = -1, -2, -3
"""In place of a holder: no run holds any of it, it is no capacity, runs may hold parts of it.

Runs hold parts of the latter, or processes outside Headgate use some of its memory, or both.

A GPU is no capacity while its node is lost, or while it is withheld and no run holds any of it.
"""

OTHERS, DRAINING = 1, 2
"""Why a GPU is withheld: other programs use it, or its node is draining."""

NO_EXIT = -1000
"""In place of an exit status: the last run has not ended, or no status of it is known."""

FOR_RUN, FOR_MOVE = 0, 1
"""Purposes of grants: what a run holds; what is held for the next run of a task that moves."""

_DTYPES: dict[str, str] = {
    "purpose": "u1",
    "state": "u1", "alive": "u1", "gang": "u1", "elastic": "u1", "shared": "u1",
    "archived": "u1", "withheld": "u1",
    "draining": "u1", "idle_since": "f8", "down_since": "f8",
    "memory_bytes": "i8", "size_bytes": "i8", "free_bytes": "i8", "actual_bytes": "i8",
    "outside_bytes": "i8", "used_memory_bytes": "i8", "used_gpu_bytes": "i8",
    "over_bytes": "i8", "over_gpu_bytes": "i8",
    "read_node_bytes": "i8", "read_rack_bytes": "i8", "read_cluster_bytes": "i8",
    "launched_at": "f8", "started_at": "f8", "ended_at": "f8", "submitted_at": "f8", "read_s": "f8",
    "estimated_s": "f8", "time_limit_s": "f8", "count": "f8", "log_mean": "f8", "log_var": "f8",
    "within_count": "f8", "within_var": "f8",
    "lost_gpu_s": "f8", "compute_s": "f8", "held_s": "f8", "checkpoint_s": "f8", "progress_s": "f8",
    "taken_back_at": "f8", "taken_back_gpu_s": "f8",
    "expired_at": "f8", "reported_at": "f8", "number": "i8", "speed": "f8",
    "message": "O", "spec": "O", "kept": "O",
}  # fmt: skip

Table = TypeVar("Table", TaskTable[Column], JobTable[Column], QueueTable[Column],
                NodeTable[Column, Vectors], GpuTable[Column], GrantTable[Column],
                ShardTable[Column, Lists], InputTable[Lists],
                RuntimeClassTable[Column])  # fmt: skip

TABLES: dict[str, type] = {
    "tasks": TaskTable, "jobs": JobTable, "queues": QueueTable, "nodes": NodeTable,
    "gpus": GpuTable, "grants": GrantTable, "shards": ShardTable,
    "inputs": InputTable, "runtime_classes": RuntimeClassTable,
}  # fmt: skip
"""All tables, by their attribute in a state."""

NAMES: dict[type, tuple[str, ...]] = {
    table: tuple(f.name for f in fields(table)) for table in TABLES.values()
}
"""The columns of each table, in order."""

_BLANKS: dict[str, Any] = {
    "launched_at": math.nan, "started_at": math.nan, "ended_at": math.nan, "expired_at": math.nan,
    "compute_s": math.nan, "held_s": math.nan, "estimated_s": math.nan, "time_limit_s": math.nan,
    "parent": -1, "speed": 1.0, "taken_back_at": math.nan,
    "node": -1, "grant": -1, "target": -1, "task": GPU_FREE, "next_attempt": 1,
    "reported_at": math.nan, "idle_since": math.nan, "down_since": math.nan,
    "actual_bytes": -1, "utilisation_milli": -1,
    "message": None, "spec": None, "kept": None, "exit_status": NO_EXIT,
}  # fmt: skip
"""Values of new rows, where not 0."""

_LISTS = ("replicas", "away", "shards")
_VECTORS = ("total", "free", "actual", "outside")
_OBJECTS = ((GrantTable, "gpus"), (TaskTable, "run_gpus"))


def empty(table: type[Table]) -> Table:
    """Return a table without rows; columns not named in `_DTYPES` are 4-byte integers."""
    columns: list[Any] = [_column(table, name) for name in NAMES[table]]
    return table(*columns)


def _column(table: type, name: str) -> Column | Lists | Vectors:
    if name in _LISTS:
        return Lists()
    if name in _VECTORS:
        return Vectors()
    if (table, name) in _OBJECTS:
        return Column("O", ())
    return Column(_DTYPES.get(name, "i4"), _BLANKS.get(name, 0))


def memo() -> Column:
    """Return an empty column of a policy's memo, NaN until written."""
    return Column("f8", math.nan)


def grow(table: Any, count: int = 1) -> None:
    """Add `count` rows of initial values; see `_BLANKS`."""
    for name in NAMES[type(table)]:
        getattr(table, name).grow(count)


def freeze(table: Any) -> Any:
    """Return the same table with frozen columns."""
    kind = type(table)
    columns = [getattr(table, name) for name in NAMES[kind]]
    return kind(*[c.freeze() if c.frozen is None else c.frozen for c in columns])


def thaw_table(table: Any) -> Any:
    """Return a writable copy of a frozen table, in O(pages)."""
    kind = type(table)
    return kind(*[getattr(table, name).thaw() for name in NAMES[kind]])


def frozen(table: Any) -> Any:
    """Return a table with frozen columns, itself if it has these."""
    first = getattr(table, NAMES[type(table)][0])
    return table if isinstance(first, FrozenColumn) else freeze(table)


def thawed(table: Any, written: tuple[str, ...]) -> Any:
    """Return a frozen table with separate columns where they are written to."""
    kind = type(table)
    columns = [getattr(table, name) for name in NAMES[kind]]
    named = zip(NAMES[kind], columns, strict=True)
    return kind(*[column.thaw() if name in written else column for name, column in named])
