"""Job files: what to run, on which data, with which resources."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.base.units import MOST_SECONDS
from headgate.spec.communication import CommunicationShape, check_communication
from headgate.spec.document import Document, Place, clipped, read_document
from headgate.spec.elastic import ElasticUnits, check_elastic
from headgate.spec.environment import (
    KeptFilesKey,
    KeptPatterns,
    Pip,
    Setup,
    Venv,
    WorkingDir,
    check_environment,
)
from headgate.spec.forms import excess
from headgate.spec.grace import Grace
from headgate.spec.needs import Gpus, Needs
from headgate.spec.ray_job import RayScript, check_ray
from headgate.spec.sequence import After, MaxRunning, check_after, check_max_running
from headgate.spec.shape import (
    Count,
    FileShape,
    Keep,
    Name,
    Pairs,
    Positive,
    Priority,
    RunTime,
    parse,
    shown,
)
from headgate.spec.stdin import Stdin, check_stdin
from headgate.spec.where import Exclude, Nodes, Selector, check_where

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("CUDA_VISIBLE_DEVICES",)  # the GPUs that the plan gave to the task
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def _one_or_more(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        problem = "must be the name of some data or a list of them, not {value}"
        raise PydanticCustomError("data_names", problem, {"value": shown(value)})
    return value


def _is_shared(path: str) -> bool:
    """Return whether a path may be one that all nodes see."""
    return path.startswith("/") and path.isprintable()


def _shared_path(value: Any) -> Any:
    if isinstance(value, str) and not _is_shared(value):
        words = {"value": shown(value), "hint": "tasks run on other nodes"}
        raise PydanticCustomError("shared_path", "{value} is not an absolute path", words)
    return value


def _launch(value: Any) -> Any:
    if value not in ("all", "first"):
        problem = "must be 'all' or 'first', not {value}"
        raise PydanticCustomError("launch", problem, {"value": shown(value)})
    return value


class Resources(Needs):
    """What one task holds while it runs."""


class ReduceResources(Resources):
    """What an update or a reduce task holds while it runs: no GPU by default."""

    gpus: Annotated[Gpus, Field(description="as for tasks")] = 0


class Data(FileShape):
    """The source of some data: a stored dataset, or files on a path all nodes share."""

    from_: Annotated[Name | None, Field(alias="from", description="a dataset put before")] = None
    files: Annotated[list[str] | None, Field(description="absolute paths that all nodes see")] = (
        None
    )


Run = Annotated[
    str, Field(min_length=1, description="module:function, or a shell command with placeholders")
]
Params = Annotated[
    dict[str, Any], Field(default_factory=dict, description="values handed to the function")
]


class Checkpoint(FileShape):
    """Where a task's program saves its progress, from which its next run continues."""

    every_s: Annotated[
        float, Field(gt=0, le=MOST_SECONDS, description="seconds between saves at most")
    ]
    path: Annotated[
        str,
        BeforeValidator(_shared_path),
        Field(description="absolute path of a directory that all nodes see"),
    ]


class Wavefront(FileShape):
    """A grid of tasks, each of which reads the results of the cells above and to the left."""

    rows: Annotated[Positive, Field(description="cells below each other")]
    columns: Annotated[Positive, Field(description="cells beside each other")]


class Tasks(FileShape):
    """The stage that does the work: one task per shard or per cell, or a number of tasks."""

    run: Run
    for_each: Annotated[
        Annotated[list[str], Field(min_length=1)] | None,
        BeforeValidator(_one_or_more),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ]
            }
        ),
        Field(description="one task per shard of this data; of several, per pair"),
    ] = None
    pairs: Annotated[
        Pairs, Field(description="which shards of several data: those of equal index, or all pairs")
    ] = "index"
    count: Annotated[Positive | None, Field(description="number of tasks, which read no data")] = (
        None
    )
    first_index: Annotated[
        Count, Field(description="with `count`: the index of its first task")
    ] = 0
    wavefront: Annotated[Wavefront | None, Field(description="one task per cell of a grid")] = None
    max_running: MaxRunning = None
    iterations: Annotated[
        Positive | None, Field(description="number of times, with `update` after each")
    ] = None
    params: Params
    resources: Resources = Resources()
    checkpoint: Annotated[
        Checkpoint | None, Field(description="what its program has saved is kept after a run")
    ] = None
    retries: Annotated[Count, Field(description="times a failed task is run again")] = 0


class Update(FileShape):
    """The task at the end of each iteration: it reads all results, the next iteration reads its."""

    run: Run
    params: Params
    resources: ReduceResources = ReduceResources()


class Reduce(Update):
    """The stage after the tasks: its tasks read the results of all, or their parts of them."""

    tasks: Annotated[Positive, Field(description="number of reduce tasks")] = 1
    partitioned: Annotated[
        bool, Field(description="results come in parts, one for each reduce task")
    ] = False


class Results(FileShape):
    """How many copies of results are kept, and where."""

    replicas: Annotated[
        int, Field(ge=1, le=8, description="nodes that keep a copy of each result")
    ] = 1
    path: Annotated[
        str,
        BeforeValidator(_shared_path),
        Field(description="absolute path of a directory that all nodes see, for one more copy"),
    ] = ""


class JobFile(FileShape):
    """A job as its user describes it, valid in itself; `expand` makes the tasks."""

    name: Annotated[Name, Field(description="the name of the job")] = "job"
    queue: Annotated[Name, Field(description="the queue it waits in")] = "default"
    type: Annotated[
        Name | None, Field(description="in place of `queue`: the type of the job, which names it")
    ] = None
    priority: Annotated[Priority, Field(description="orders the jobs of one user")] = 0
    gang: Annotated[bool, Field(description="start all tasks together or none")] = False
    num_nodes: Annotated[
        Positive | None, Field(description="a gang: one process on each of this many nodes")
    ] = None
    launch: Annotated[
        str,
        BeforeValidator(_launch),
        WithJsonSchema({"enum": ["all", "first"]}),
        Field(description="with `num_nodes`: run on all nodes, or on the first only, as for MPI"),
    ] = "all"
    public: Annotated[bool, Field(description="all users may read its logs and results")] = False
    run: Annotated[Run | None, Field(description="short form: one task")] = None
    resources: Annotated[
        Resources | None, Field(description="with `run` or `ray`: its resources")
    ] = None
    elastic: Annotated[
        ElasticUnits | None, Field(description="with `run`: as many equal units as there is room")
    ] = None
    work: Annotated[
        float | None, Field(gt=0, description="of a job that trains: iterations, or samples")
    ] = None
    throughput: Annotated[
        dict[str, float] | None, Field(description="of them per second, by number of GPUs")
    ] = None
    deadline: Annotated[RunTime, Field(description="it is to end so long after its submission")] = (
        None
    )
    ray: Annotated[RayScript | None, Field(description="instead: a plain Ray program")] = None
    data: Annotated[dict[Name, Data], Field(default_factory=dict, description="named data")]
    tasks: Tasks | None = None
    update: Update | None = None
    reduce: Reduce | None = None
    results: Annotated[Results, Field(description="how safely results are kept")] = Results()
    keep: Annotated[
        Keep,
        Field(
            description="time from the job's end to the removal of its results, logs and scratch"
        ),
    ] = None
    estimated_runtime: Annotated[
        RunTime, Field(description="computing time expected of each of its tasks")
    ] = None
    time_limit: Annotated[
        RunTime, Field(description="time after which a run is stopped, and the job fails")
    ] = None
    after: After
    communication: Annotated[
        CommunicationShape | None, Field(description="how its processes communicate")
    ] = None
    grace: Annotated[
        Grace, Field(description="time between notice (SIGTERM) and kill when a run is stopped")
    ] = None
    wait_for_node: Annotated[
        bool, Field(description="wait for a node that can hold it, if none that is up can")
    ] = False
    nodes: Nodes
    exclude: Exclude
    node_selector: Selector
    envs: Annotated[dict[str, str], Field(default_factory=dict, description="environment of tasks")]
    stdin: Stdin = None
    working_dir: WorkingDir = None
    pip: Pip = None
    venv: Venv = None
    setup: Setup = None
    keep_files: KeptFilesKey = KeptPatterns()


_NOT_ELASTIC = (
    "tasks", "ray", "resources", "data", "update", "reduce", "gang", "num_nodes", "launch",
    "communication", "time_limit",
)  # fmt: skip
"""The keys that an elastic job does not have."""


def load_job(source: Path | str, *, name: str = "text") -> JobFile:
    """Return the job of a file (a `Path`) or of YAML text; raise SpecError with every problem.

    Messages about text as a whole call it `name`.
    """
    document = read_document(source, name=name)
    job = parse(document, JobFile, document.data, ())
    if job is not None:
        _check_form(document, job)
        if "queue" in document.data and "type" in document.data:
            document.add(("type",), "is for jobs that name no queue", "leave out one of both")
        check_elastic(document, document.data, job.elastic, _NOT_ELASTIC)
        check_ray(document, ray=job.ray, resources=job.resources, envs=job.envs)
        _check_nodes(document, job)
        _check_stages(document, job)
        _check_data(document, job)
        _check_envs(document, job)
        _check_communication(document, job)
        check_after(document, job.after, ("after",))
        check_where(document, job.nodes, job.exclude, ())
        check_environment(document, job)
        function = is_function(_runs_first(job))
        check_stdin(document, job.stdin, function=function, ray=job.ray is not None)
    document.raise_problems()
    if job is None:
        raise AssertionError("unreachable: every top-level key has a default")
    return job


def job_schema() -> dict[str, Any]:
    """Return the JSON Schema of job files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_without_null(JobFile.model_json_schema()),
        "title": "Headgate job file",
        "oneOf": [{"required": ["run"]}, {"required": ["tasks"]}, {"required": ["ray"]}],
    }


def _without_null(schema: Any) -> Any:
    """Return a schema in which optional values are not nullable."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(value) for key, value in schema.items() if value is not None}
    branches = kept.get("anyOf", ())
    if len(branches) == 1:
        del kept["anyOf"]
        return {**branches[0], **kept}
    return kept


def _runs_first(job: JobFile) -> str:
    """Return what the tasks that get `stdin` run."""
    return (job.tasks.run if job.tasks is not None else job.run) or ""


def is_function(run: str) -> bool:
    """Return whether a `run` names a Python function rather than a shell command."""
    return _FUNCTION.fullmatch(run) is not None


def _check_form(document: Document, job: JobFile) -> None:
    """Check that a job has either `run` and `resources`, or `tasks` and its further stages."""
    raw = document.data
    if "ray" in raw:  # see `check_ray`
        pass
    elif "run" in raw and "tasks" in raw:
        hint = "'run' is the short form of a job of one task"
        document.add(("run",), "a job has 'run' or 'tasks', not both", hint)
    elif "run" not in raw and "tasks" not in raw:
        document.add(("run",), "is missing", "give what to run here or in 'tasks'")
    elif "run" in raw:
        for key in ("data", "update", "reduce"):
            if key in raw:
                document.add((key,), "needs 'tasks', not the short form 'run'")
    elif "resources" in raw:
        document.add(("resources",), "belongs to 'run'; put it under 'tasks'")
    for key in ("run", "tasks", "ray", "update", "reduce", "num_nodes"):
        if key in raw and getattr(job, key) is None:
            _check_given(document, (key,))


def _check_given(document: Document, place: Place) -> None:
    if document.is_clean(place):
        document.add(place, "must not be empty")


def _check_nodes(document: Document, job: JobFile) -> None:
    """Check the keys beside `num_nodes`, which makes the job a gang of one process per node."""
    raw = document.data
    if "num_nodes" not in raw:
        if "launch" in raw:
            document.add(("launch",), "needs 'num_nodes', the number of nodes of the job")
        return
    if "gang" in raw and not job.gang and document.is_clean(("gang",)):
        problem = "the processes of 'num_nodes' start together: they are a gang"
        document.add(("gang",), problem, "remove 'gang', or write 'gang: true'")
    tasks = raw.get("tasks")
    for key in ("count", "for_each", "wavefront", "iterations"):
        if isinstance(tasks, dict) and key in tasks:
            problem = f"'num_nodes' starts one process per node: it does not go with '{key}'"
            document.add(("tasks", key), problem, "remove one of them")


def _check_stages(document: Document, job: JobFile) -> None:
    if job.tasks is not None:
        gang = job.gang or "num_nodes" in document.data
        check_max_running(document, document.data["tasks"], ("tasks",), gang=gang)
        _check_number(document, job.tasks)
        _check_pattern(document, job, job.tasks)
    if job.gang or job.num_nodes is not None:
        _check_gang(document, job, ("num_nodes",) if "num_nodes" in document.data else ("gang",))
    if job.run is not None:
        _check_command(document, ("run",), job.run, shards=0)
    if job.resources is not None:
        job.resources.check(document, ("resources",))
    if job.tasks is not None:
        if "checkpoint" in document.data["tasks"] and job.tasks.checkpoint is None:
            _check_given(document, ("tasks", "checkpoint"))
        tasks, parted = job.tasks, job.reduce is not None and job.reduce.partitioned
        shards = len(tasks.for_each or ()) + 2 * bool(tasks.wavefront) + bool(tasks.iterations)
        _check_stage(document, ("tasks",), tasks, shards=shards, parted=parted)
    for name, stage in (("update", job.update), ("reduce", job.reduce)):
        if stage is not None:
            _check_stage(document, (name,), stage, shards=2)


def _check_number(document: Document, tasks: Tasks) -> None:
    """Check that the number of tasks is given exactly once."""
    if not all(document.is_clean(("tasks", key)) for key in ("for_each", "count", "wavefront")):
        return
    if "num_nodes" in document.data:
        return
    if tasks.count is not None and tasks.wavefront is not None:
        problem = "a wavefront has a task for each of its cells, and no 'count'"
        document.add(("tasks", "count"), problem)
    elif tasks.for_each is not None and tasks.count is not None:
        document.add(("tasks", "count"), "tasks have 'for_each' or 'count', not both")
    elif tasks.for_each is None and tasks.count is None and tasks.wavefront is None:
        hint = "name the data to make one task per shard of, or give a 'count'"
        document.add(("tasks", "for_each"), "is missing", hint)
    if "first_index" in document.data["tasks"] and tasks.count is None:
        hint = "the indices of other tasks begin at 0"
        document.add(("tasks", "first_index"), "goes with 'count'", hint)


def _check_pattern(document: Document, job: JobFile, tasks: Tasks) -> None:
    """Check that the keys which shape a job are consistent, as far as the file shows."""
    if "pairs" in document.data["tasks"] and len(tasks.for_each or ()) < 2:
        problem = "there is nothing to pair: 'for_each' does not name several data"
        document.add(("tasks", "pairs"), problem)
    elif tasks.pairs == "all" and len(tasks.for_each or ()) > 2:
        problem = f"all pairs are of two data, and 'for_each' names {len(tasks.for_each or ())}"
        document.add(("tasks", "pairs"), problem)
    if tasks.wavefront is not None and tasks.iterations is not None:
        document.add(("tasks", "iterations"), "a wavefront goes over its cells once")
    if job.update is not None and tasks.iterations is None:
        if document.is_clean(("tasks", "iterations")):
            hint = "give their number in tasks.iterations"
            document.add(("update",), "ends an iteration, and there are none", hint)
    elif tasks.iterations is not None and "update" not in document.data:
        hint = "it says what makes one result of those of an iteration"
        document.add(("update",), "is missing", hint)
    if job.reduce is not None and job.reduce.partitioned:
        _check_parts(document, tasks, job.reduce)
    cells = tasks.wavefront.rows * tasks.wavefront.columns if tasks.wavefront else tasks.count
    if cells is not None and (problem := too_much(job, cells)):
        document.add(("tasks",), problem)


def _check_parts(document: Document, tasks: Tasks, reduce: Reduce) -> None:
    place = ("reduce", "partitioned")
    for key, pattern in (("wavefront", tasks.wavefront), ("iterations", tasks.iterations)):
        if pattern is not None:
            problem = f"results in parts do not go with tasks.{key}, whose tasks read whole results"
            document.add(place, problem)
    if reduce.tasks == 1 and document.is_clean(("reduce", "tasks")):
        problem = "one reduce task reads whole results"
        document.add(place, problem, "give the number of parts as reduce.tasks")


def _check_gang(document: Document, job: JobFile, place: Place) -> None:
    starts = "a gang starts all its tasks together, and"
    if job.reduce is not None:
        document.add(place, f"{starts} reduce comes after tasks")
    if job.tasks is not None and job.tasks.wavefront is not None:
        document.add(place, f"{starts} the cells of a wavefront come after each other")
    if job.tasks is not None and job.tasks.iterations is not None:
        document.add(place, f"{starts} iterations come after each other")


def too_much(job: JobFile, groups: int) -> str:
    """Return which limit a job with `groups` groups of shards or cells exceeds, "" for none."""
    iterations = (job.tasks.iterations if job.tasks else None) or 0
    width = len(job.tasks.for_each or ()) if job.tasks else 0
    merges = job.reduce.tasks if job.reduce else 0
    return excess(groups, width=width, iterations=iterations, merges=merges)


def _check_stage(
    document: Document, place: Place, stage: Tasks | Update, *, shards: int, parted: bool = False
) -> None:
    _check_params(document, (*place, "params"), stage.params)
    stage.resources.check(document, (*place, "resources"))
    if stage.params and not is_function(stage.run):
        document.add((*place, "params"), "is for functions; a command takes its arguments in 'run'")
    _check_command(document, (*place, "run"), stage.run, shards=shards, parted=parted)


def _check_command(
    document: Document, place: Place, run: str, *, shards: int, parted: bool = False
) -> None:
    """Check a command against the number of shards that a task reads at most, 2 for several."""
    if is_function(run):
        return
    if "\0" in run:
        document.add(place, "must not contain a NUL character")
    for word in ("{shard}", "{shards}"):
        if word in run and not shards:
            document.add(place, f"{word} has no value: the task reads no data")
    if "{shard}" in run and shards > 1:
        document.add(
            place, "{shard} is not one shard: every task here reads several", "use {shards}"
        )
    if "{output}" in run and parted:
        problem = "{output} is not one file: the result comes in parts, one for each reduce task"
        document.add(place, problem, "use {outputs}")


def _check_params(document: Document, place: Place, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_params(document, (*place, key), item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check_params(document, (*place, number), item)
    elif isinstance(value, float) and not math.isfinite(value):
        document.add(place, f"must be a finite number, not {value}")


def _check_data(document: Document, job: JobFile) -> None:
    named = job.tasks.for_each or [] if job.tasks else []
    read = frozenset(named)
    for number, name in enumerate(named):
        if name not in job.data and document.is_clean(("data",)):
            single = isinstance(document.data["tasks"]["for_each"], str)
            name_place: Place = ("tasks", "for_each") if single else ("tasks", "for_each", number)
            hint = partial(_nearest_data, name, job)
            document.add(name_place, f"unknown data '{clipped(name)}'", hint)
    for name, data in job.data.items():
        place = ("data", name)
        if (data.from_ is None) == (data.files is None):
            document.add(place, "must say either 'from' or 'files'")
        if data.files is not None and not data.files:
            document.add((*place, "files"), "must not be empty")
        for number, path in enumerate(data.files or ()):
            if not _is_shared(path):
                problem = f"{shown(path)} is not an absolute path"
                document.add((*place, "files", number), problem, "tasks run on other nodes")
        if job.tasks and name not in read and document.is_clean(("tasks", "for_each")):
            document.add(place, f"nothing reads '{name}'", "name it in tasks.for_each")


def _check_communication(document: Document, job: JobFile) -> None:
    if "communication" not in document.data:
        return
    needs = [part.resources for part in (job, job.tasks, job.ray) if part and part.resources]
    several = any(isinstance(need.gpus, int) and need.gpus > 1 for need in needs)
    check_communication(
        document,
        document.data["communication"],
        ("communication",),
        communicates=several or job.gang or job.num_nodes is not None,
        compute_s=job.estimated_runtime,
    )


def _nearest_data(name: str, job: JobFile) -> str:
    return nearest(name, job.data) or "name it under 'data'"


def _check_envs(document: Document, job: JobFile) -> None:
    for name, value in job.envs.items():
        if not _VARIABLE.fullmatch(name):
            document.add(("envs", name), f"{shown(name)} is not the name of a variable")
        elif name in _OURS:
            document.add(("envs", name), "is set for every task, to the GPUs it was given")
        elif name in _RENDEZVOUS and "num_nodes" in document.data:
            document.add(("envs", name), "is set for every process of 'num_nodes'")
        elif "\0" in value:
            document.add(("envs", name), "must not contain a NUL character")
