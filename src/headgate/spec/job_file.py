"""Job files: what to run, on which data, with which resources."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.spec.document import Document, Place, read_document
from headgate.spec.shape import Count, Name, Positive, Priority, Shape, Size, shown, take

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("CUDA_VISIBLE_DEVICES",)  # says which GPUs the plan gave to the task


def _one_or_more(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        problem = "must be the name of some data or a list of them, not {value}"
        raise PydanticCustomError("data_names", problem, {"value": shown(value)})
    return value


class Resources(Shape):
    """What one task holds while it runs; one without GPUs holds CPU slots of its node."""

    gpus: Annotated[Count, Field(description="whole GPUs of one node")] = 1
    gpu_memory: Annotated[Size, Field(description="needed on each of them")] = 0
    cpus: Annotated[Positive, Field(description="CPU slots, for tasks without a GPU")] = 1


class ReduceResources(Resources):
    """The same; a reduce task holds no GPU unless told."""

    gpus: Annotated[Count, Field(description="whole GPUs of one node")] = 0


class Data(Shape):
    """Where some data comes from: a dataset put before, or files on a path all nodes share."""

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


class Tasks(Shape):
    """The stage that does the work: one task per shard, or a number of tasks."""

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
        Field(
            description="one task per shard of this data; of several, shards are paired by index"
        ),
    ] = None
    count: Annotated[Positive | None, Field(description="so many tasks, which read no data")] = None
    params: Params
    resources: Resources = Resources()
    retries: Annotated[Count, Field(description="times a failed task is run again")] = 2


class Reduce(Shape):
    """The stage after it: its tasks read the results of all tasks."""

    run: Run
    tasks: Annotated[Positive, Field(description="so many reduce tasks")] = 1
    params: Params
    resources: ReduceResources = ReduceResources()


class JobFile(Shape):
    """A job as its user describes it, valid in itself; `expand` makes the tasks."""

    name: Annotated[Name, Field(description="what people call the job")] = "job"
    queue: Annotated[Name, Field(description="the queue it waits in")] = "default"
    priority: Annotated[Priority, Field(description="orders the jobs of one user")] = 0
    gang: Annotated[bool, Field(description="start all tasks together or none")] = False
    run: Annotated[Run | None, Field(description="short form: one task")] = None
    resources: Annotated[Resources | None, Field(description="with `run`: what it holds")] = None
    data: Annotated[dict[Name, Data], Field(default_factory=dict, description="named data")]
    tasks: Tasks | None = None
    reduce: Reduce | None = None
    envs: Annotated[dict[str, str], Field(default_factory=dict, description="environment of tasks")]


def load_job(source: Path | str) -> JobFile:
    """Return the job of a file (a `Path`) or of YAML text; raise SpecError with every problem."""
    document = read_document(source)
    job = take(document, JobFile, document.data, ())
    if job is not None:
        _check_form(document, job)
        _check_stages(document, job)
        _check_data(document, job)
        _check_envs(document, job)
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
        "oneOf": [{"required": ["run"]}, {"required": ["tasks"]}],
    }


def _without_null(schema: Any) -> Any:
    """Return a schema where what may be left out is not said to be null."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    branches = kept.get("anyOf", ())
    if len(branches) == 1:
        del kept["anyOf"]
        return {**branches[0], **kept}
    return kept


def is_function(run: str) -> bool:
    """Return whether a `run` names a Python function rather than a shell command."""
    return _FUNCTION.fullmatch(run) is not None


def _check_form(document: Document, job: JobFile) -> None:
    """A job has `run` and its `resources`, or `tasks` and what goes with them."""
    raw = document.data
    if "run" in raw and "tasks" in raw:
        hint = "'run' is the short form of a job of one task"
        document.add(("run",), "a job has 'run' or 'tasks', not both", hint)
    elif "run" not in raw and "tasks" not in raw:
        document.add(("run",), "is missing", "a job says what to run, here or in 'tasks'")
    elif "run" in raw:
        for key in ("data", "reduce"):
            if key in raw:
                document.add((key,), "needs 'tasks', not the short form 'run'")
    elif "resources" in raw:
        document.add(("resources",), "belongs to 'run'; put it under 'tasks'")
    for key, value in (("run", job.run), ("tasks", job.tasks)):
        if key in raw and value is None and document.is_clean((key,)):
            document.add((key,), "must not be empty")


def _check_stages(document: Document, job: JobFile) -> None:
    if job.gang and job.reduce is not None:
        document.add(("gang",), "a gang starts all its tasks at once, and reduce comes after tasks")
    if job.tasks is not None:
        _check_number(document, job.tasks)
    if job.run is not None:
        _check_command(document, ("run",), job.run, reads=False, several=False)
    if job.resources is not None:
        _check_resources(document, ("resources",), job.resources)
    for place, stage in _stages(job):
        _check_stage(document, place, stage)


def _check_number(document: Document, tasks: Tasks) -> None:
    if not document.is_clean(("tasks", "for_each")) or not document.is_clean(("tasks", "count")):
        return
    if tasks.for_each is not None and tasks.count is not None:
        document.add(("tasks", "count"), "tasks have 'for_each' or 'count', not both")
    elif tasks.for_each is None and tasks.count is None:
        hint = "name the data to make one task per shard of, or give a 'count'"
        document.add(("tasks", "for_each"), "is missing", hint)


def _stages(job: JobFile) -> Iterator[tuple[Place, Tasks | Reduce]]:
    if job.tasks is not None:
        yield ("tasks",), job.tasks
    if job.reduce is not None:
        yield ("reduce",), job.reduce


def _check_stage(document: Document, place: Place, stage: Tasks | Reduce) -> None:
    _check_params(document, (*place, "params"), stage.params)
    _check_resources(document, (*place, "resources"), stage.resources)
    if stage.params and not is_function(stage.run):
        document.add((*place, "params"), "is for functions; a command takes its arguments in 'run'")
    several = isinstance(stage, Reduce) or len(stage.for_each or ()) > 1
    reads = isinstance(stage, Reduce) or stage.for_each is not None
    _check_command(document, (*place, "run"), stage.run, reads=reads, several=several)


def _check_resources(document: Document, place: Place, resources: Resources) -> None:
    if resources.gpu_memory and not resources.gpus and document.is_clean((*place, "gpus")):
        document.add((*place, "gpu_memory"), "a task without a GPU needs no GPU memory")


def _check_command(
    document: Document, place: Place, run: str, *, reads: bool, several: bool
) -> None:
    if is_function(run):
        return
    for word in ("{shard}", "{shards}"):
        if word in run and not reads:
            document.add(place, f"{word} stands for nothing: the task reads no data")
    if "{shard}" in run and several:
        document.add(
            place, "{shard} is not one shard: every task here reads several", "use {shards}"
        )


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
    read = job.tasks.for_each or [] if job.tasks else []
    for number, name in enumerate(read):
        if name not in job.data and document.is_clean(("data",)):
            single = isinstance(document.data["tasks"]["for_each"], str)
            at: Place = ("tasks", "for_each") if single else ("tasks", "for_each", number)
            hint = nearest(name, job.data) or "name it under 'data'"
            document.add(at, f"unknown data '{name}'", hint)
    for name, data in job.data.items():
        place = ("data", name)
        if (data.from_ is None) == (data.files is None):
            document.add(place, "must say either 'from' or 'files'")
        if data.files is not None and not data.files:
            document.add((*place, "files"), "must not be empty")
        for number, path in enumerate(data.files or ()):
            if not path.startswith("/") or not path.isprintable():
                problem = f"{shown(path)} is not an absolute path"
                document.add((*place, "files", number), problem, "tasks run on other nodes")
        if job.tasks and name not in read and document.is_clean(("tasks", "for_each")):
            document.add(place, f"nothing reads '{name}'", "name it in tasks.for_each")


def _check_envs(document: Document, job: JobFile) -> None:
    for name, value in job.envs.items():
        if not _VARIABLE.fullmatch(name):
            document.add(("envs", name), f"{shown(name)} is not the name of a variable")
        elif name in _OURS:
            document.add(("envs", name), "is set for every task, to the GPUs it was given")
        elif "\0" in value:
            document.add(("envs", name), "must not hold a zero character")
