"""Jobs: what users submit, made of tasks that each run on one node."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from headgate.model.communication import Communication
from headgate.model.data import FILE_PREFIX, Shard
from headgate.model.program import NO_PROGRAM, Program, TaskProgram
from headgate.model.resources import WHOLE, Demand
from headgate.model.training import Training

GRACE_S = 30.0
"""Default seconds between the notice that a run gets before it is stopped and its end."""

ONE_GPU = Demand(gpus=1)
"""The demand of a task that names none."""

_RESULT = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The unit of placement: runs on one node.

    `reads` are shard ids: shards of the job, of a dataset, or results of earlier tasks (see
    `result_id`). `after` are ordinals of tasks of the same job that must have finished first. A run
    holds the task's `demand`.

    `compute_s` is the computing time after reading, where known (always in a simulation). The
    program saves a checkpoint every `checkpoint_s` seconds of computing (0: never) on a path that
    all nodes share; the task's next run continues from it. The result is split into `parts`
    shards, so that later tasks can each read one part.
    """

    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    demand: Demand = ONE_GPU
    compute_s: float = 0.0
    output_bytes: int = 0
    parts: int = 1
    checkpoint_s: float = 0.0

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Read and write JSON as a `WrittenTask`."""
        written = handler.generate_schema(WrittenTask)
        return core_schema.no_info_after_validator_function(
            WrittenTask.task,
            written,
            serialization=core_schema.plain_serializer_function_ser_schema(
                WrittenTask.of, return_schema=written
            ),
        )


@dataclass(slots=True, kw_only=True)  # not frozen: half the time of writing a task
class WrittenTask:
    """A task in the form of JSON, with what it demands beside its other fields.

    `cpus` is None, in what earlier releases wrote, where a task names none: see `Demand.of`.
    """

    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    gpus: int = 1
    gpu_memory_bytes: int = 0
    gpu_milli: int = WHOLE
    cpus: float | None = None
    memory_bytes: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    compute_s: float = 0.0
    output_bytes: int = 0
    parts: int = 1
    checkpoint_s: float = 0.0
    gpu_models: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    selector: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: Task) -> WrittenTask:
        """Return the written form of a task."""
        demand = task.demand
        return cls(
            reads=task.reads,
            after=task.after,
            gpus=demand.gpus,
            gpu_memory_bytes=demand.gpu_memory_bytes,
            gpu_milli=demand.gpu_milli,
            cpus=demand.cpus_milli / WHOLE,
            memory_bytes=demand.memory_bytes,
            custom=demand.custom,
            compute_s=task.compute_s,
            output_bytes=task.output_bytes,
            parts=task.parts,
            checkpoint_s=task.checkpoint_s,
            gpu_models=demand.gpu_models,
            nodes=demand.nodes,
            exclude=demand.exclude,
            selector=demand.selector,
        )

    def task(self) -> Task:
        """Return the task of a written form."""
        demand = Demand.of(
            gpus=self.gpus,
            cpus=self.cpus,
            gpu_memory_bytes=self.gpu_memory_bytes,
            gpu_milli=self.gpu_milli,
            memory_bytes=self.memory_bytes,
            custom=self.custom,
            gpu_models=self.gpu_models,
            nodes=self.nodes,
            exclude=self.exclude,
            selector=self.selector,
        )
        return Task(
            reads=self.reads,
            after=self.after,
            demand=demand,
            compute_s=self.compute_s,
            output_bytes=self.output_bytes,
            parts=self.parts,
            checkpoint_s=self.checkpoint_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Small tasks that a job's own tasks, its slots, execute one after the other.

    `count` is their number, None where the owner of the job sends them. An item that loses its slot
    is executed again, at most `retries` times.
    """

    count: int | None = None
    retries: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """How many of a job's equal tasks, its *units*, run at a time: as many as there is room for.

    The first `minimum` start together, by the policy. The others are *surplus*: they run on what no
    other job needs, start once the first ones run, and are stopped whenever others need what they
    hold. A unit that is stopped or lost loses no work, and the others continue; the first that
    finishes ends the job: those that run end by themselves, and the others are needed no more.

    In a simulation the units take `work_s` seconds of one unit at a speed of 1 from a common pool:
    with n units the job takes `work_s / n`.
    """

    minimum: int
    work_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a user submits: tasks, the shards they read, and the user.

    A `gang` starts all its tasks together or none; with `distinct_nodes`, each on another node.
    `shards` gives the sizes of what the tasks read; events report where replicas are. `program` is
    what its tasks run. Tasks of equal input are expected to compute equally long in all jobs of one
    `runtime_class`; a job without one is a class of its own. The same `submission_key` of the same
    user is the same job. A world that assigns ids gives each job a unique `number`, else it is 0.
    All users may read the logs and results of a `public` job, those of any other only its user.

    Each of its tasks is expected to compute for `estimated_s` seconds, as its user declares; None
    leaves that to what is learnt from earlier runs. A run that takes longer than `time_limit_s`
    seconds from its start, reading included, is stopped, and the job fails; None is no limit. A
    live world gives a run notice before it is stopped, and `grace_s` seconds to end.

    Its tasks communicate with each other as `communication` declares, those of a gang all together,
    else the GPUs of each task; `compute_s` is their time in the best set of GPUs, alone.

    With `wait_for_node` it is accepted although no node that is up could hold a task of it, and
    waits for such a node. It waits until all jobs `after` (ids) have finished. Of its first
    `limited_tasks` tasks (None: of all), at most `max_running` are in flight; None is no limit, and
    so has any gang.

    With `items`, its tasks are slots that execute these. A run of a slot can be stopped at any time
    without loss: it ends the item that it executes. The slots of a job on one node are a *lease*.

    With `elastic`, its tasks are equal, and come after no others; it is no gang. With `training`
    they are equal as well, and a gang. A job is to end within `deadline_s` seconds
    of its submission; None is no deadline.

    A world that keeps real results keeps `result_replicas` copies of each on as many nodes, and one
    more below the directory `results_path`, if any. Everything that a job leaves is removed
    `keep_s` seconds after its end: `inf` is never, None leaves it to the cluster.
    """

    id: str
    name: str
    user: str
    queue: str
    tasks: tuple[Task, ...]
    shards: tuple[Shard, ...] = ()
    priority: int = 0
    gang: bool = False
    distinct_nodes: bool = False
    retries: int = 2
    program: Program = NO_PROGRAM
    runtime_class: str = ""
    submission_key: str = ""
    public: bool = False
    number: int = 0
    result_replicas: int = 1
    results_path: str = ""
    keep_s: float | None = None
    estimated_s: float | None = None
    time_limit_s: float | None = None
    after: tuple[str, ...] = ()
    max_running: int | None = None
    limited_tasks: int | None = None
    grace_s: float = GRACE_S
    communication: Communication | None = None
    wait_for_node: bool = False
    items: Items | None = None
    elastic: Elastic | None = None
    training: Training | None = None
    deadline_s: float | None = None

    @property
    def declared_s(self) -> float | None:
        """How long each of its tasks is expected to compute at speed 1, as far as it says so."""
        if self.estimated_s is None and self.training is not None:
            return self.training.narrowest_s
        return self.estimated_s

    @property
    def unit_tasks(self) -> int:
        """How many of its first tasks start together, at first: 1 if each starts alone."""
        if self.elastic is not None:
            return self.elastic.minimum
        if self.training is not None:
            return self.training.speeds.widths[0]
        return len(self.tasks) if self.gang else 1

    def is_limited(self, ordinal: int) -> bool:
        """Return whether `max_running` applies to one of its tasks."""
        if self.max_running is None or self.gang:
            return False
        return self.limited_tasks is None or ordinal < self.limited_tasks

    def task_program(self, ordinal: int) -> TaskProgram | None:
        """Return what one of its tasks runs; None for a simulated job."""
        if not self.program.stages:
            return None
        stage, index = self.program.stage_of(ordinal)
        has_rendezvous = self.distinct_nodes or self.program.ray or self.training
        return TaskProgram(
            user=self.user,
            stage=stage,
            index=index,
            envs=self.program.envs,
            parts=self.tasks[ordinal].parts,
            results_path=self.results_path,
            per_node=self.program.launch if has_rendezvous else None,
            environment=self.program.environment,
            ray=self.program.ray,
            keep_files=self.program.keep_files,
        )


class RunId(NamedTuple):
    """The identity of one run of a task in commands, events, executors, logs and files.

    `attempt` counts the runs of a task from 1. Neither job ids nor attempts are ever reused, so a
    RunId identifies the same run forever, in every release.
    """

    job: str
    ordinal: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.job}/{self.ordinal}.{self.attempt}"


def result_id(job: str, ordinal: int, part: int | None = None) -> str:
    """Return the shard id of the result of a job's task, or of one part of it."""
    return f"{job}/{ordinal}" if part is None else f"{job}/{ordinal}.{part}"


def result_ids(job: str, ordinal: int, parts: int) -> tuple[str, ...]:
    """Return the shard ids that make up the result of a job's task."""
    if parts == 1:
        return (result_id(job, ordinal),)
    return tuple(result_id(job, ordinal, part) for part in range(parts))


def task_of_result(shard_id: str) -> tuple[str, int] | None:
    """Return the job and the ordinal of the task whose result the shard belongs to, else None."""
    job, _, rest = shard_id.rpartition("/")
    if not job or shard_id.startswith(FILE_PREFIX) or not _RESULT.fullmatch(rest):
        return None
    return job, int(rest.partition(".")[0])


def part_sizes(output_bytes: int, parts: int) -> tuple[int, ...]:
    """Return the sizes, in bytes, of the parts of a result that is split evenly."""
    ends = [output_bytes * part // parts for part in range(parts + 1)]
    return tuple(end - start for start, end in itertools.pairwise(ends))
