"""Expansion of a job file to the scheduler's job.

The tasks of the first stage come first: one per group of shards or per cell, or `count` of them,
or one per node.
With iterations, they and then `update` are repeated. Those of `reduce` follow at the end. The
patterns themselves are in `headgate.spec.forms`.

A task belongs to the stage that says what it runs (`headgate.model.Program`); a shard `file:<path>`
is a whole file on a shared path.

`Job.runtime_class` is what the first stage runs: jobs that run the same are expected to take
equally long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headgate.base.errors import MOST_PROBLEMS, Problem, SpecError, nearest
from headgate.model import (
    FILE_PREFIX,
    GRACE_S,
    SLOT,
    Demand,
    Elastic,
    Items,
    Job,
    Launch,
    Program,
    ProgramType,
    Shard,
    Stage,
    Task,
    Training,
)
from headgate.spec.communication import communication_of
from headgate.spec.document import clipped
from headgate.spec.elastic import ElasticUnits
from headgate.spec.environment import environment_of, kept_files_of
from headgate.spec.forms import iterated, mapped, merged, wavefront
from headgate.spec.job_file import JobFile, Resources, Tasks, Update, is_function, too_much
from headgate.spec.needs import Needs
from headgate.spec.ray_job import RayScript, ray_program, ray_tasks
from headgate.spec.training import training_of

_MOST_NAMED = 10


def expand(
    job_file: JobFile,
    *,
    job_id: str,
    user: str,
    datasets: Mapping[str, tuple[Shard, ...]],
    file_sizes: Mapping[str, int],
) -> Job:
    """Return the job of a job file.

    `datasets` are those that were put, `file_sizes` the bytes of every named file that exists on a
    shared path. Raise SpecError for a missing dataset or file, for data that should be read
    together, yet has different numbers of shards, and for more tasks than a job may have.
    """
    if job_file.ray is not None:
        return _ray_job(job_file, job_file.ray, job_id=job_id, user=user)
    stage = job_file.tasks or _short_form(job_file)
    rows = _rows(job_file, stage, datasets, file_sizes)
    tasks = _first_tasks(job_file, stage, job_id, rows)
    stages = _first_stages(job_file, stage, len(rows))
    reduce, first = job_file.reduce, len(tasks)
    if reduce is not None:
        stages.append(_stage(reduce, len(tasks), reduce.tasks))
        tasks = merged(
            job_id,
            tasks,
            count=reduce.tasks,
            task=_task(job_file, reduce.resources),
            partitioned=reduce.partitioned,
            of=(len(tasks) - 1,) if stage.iterations else None,
        )
    job = _job(
        job_file,
        job_id=job_id,
        user=user,
        tasks=tasks,
        shards=tuple({shard.id: shard for row in rows for shard in row}.values()),
        retries=stage.retries,
        program=Program(stages=tuple(stages), envs=job_file.envs, launch=Launch(job_file.launch)),
    )
    if stage.max_running is None:
        return job
    return replace(
        job, max_running=stage.max_running, limited_tasks=None if reduce is None else first
    )


def _ray_job(job_file: JobFile, ray: RayScript, *, job_id: str, user: str) -> Job:
    """Return the job of a Ray program: a gang whose first member runs it."""
    needs = ray.resources or job_file.resources or Needs()
    tasks = ray_tasks(_demand(job_file, needs), job_file.num_nodes)
    stage = Stage(first=0, count=len(tasks), program_type=ProgramType.RAY, run=ray.script)
    program = Program(
        stages=(stage,),
        envs=job_file.envs,
        launch=Launch.FIRST,
        ray=ray_program(ray, needs),
    )
    job = _job(
        job_file,
        job_id=job_id,
        user=user,
        tasks=tasks,
        shards=(),
        retries=ray.retries,
        program=program,
    )
    return replace(job, gang=True)


def _job(
    job_file: JobFile,
    *,
    job_id: str,
    user: str,
    tasks: tuple[Task, ...],
    shards: tuple[Shard, ...],
    retries: int,
    program: Program,
) -> Job:
    leases = program.stages[0].run == SLOT
    return Job(
        id=job_id,
        name=job_file.name,
        user=user,
        queue=job_file.queue,
        tasks=tasks,
        shards=shards,
        priority=job_file.priority,
        gang=job_file.gang or job_file.num_nodes is not None or job_file.work is not None,
        distinct_nodes=job_file.num_nodes is not None,
        retries=retries,
        items=Items() if leases else None,  # its owner sends them
        program=replace(
            program,
            environment=environment_of(job_file),
            keep_files=None if leases else kept_files_of(job_file),
        ),
        runtime_class=program.stages[0].run,
        public=job_file.public,
        result_replicas=job_file.results.replicas,
        results_path=job_file.results.path,
        keep_s=job_file.keep,
        estimated_s=job_file.estimated_runtime,
        time_limit_s=job_file.time_limit,
        after=tuple(job_file.after),
        grace_s=GRACE_S if job_file.grace is None else job_file.grace,
        wait_for_node=job_file.wait_for_node,
        elastic=_elastic(job_file),
        training=_training(job_file),
        deadline_s=job_file.deadline,
        communication=communication_of(
            job_file.communication, compute_s=job_file.estimated_runtime
        ),
    )


def resources_key(job_file: JobFile, task: Task) -> str:
    """Return the key of a job file that gives the resources of one of its tasks."""
    for key in ("tasks", "update", "reduce"):
        stage: Tasks | Update | None = getattr(job_file, key)
        if stage is not None and _demand(job_file, stage.resources) == task.demand:
            return f"{key}.resources"
    if job_file.elastic is not None:
        return "elastic.unit"
    in_ray = job_file.ray is not None and job_file.ray.resources is not None
    return "ray.resources" if in_ray else "resources"


def _first_tasks(
    job_file: JobFile, stage: Tasks, job_id: str, rows: list[tuple[Shard, ...]]
) -> tuple[Task, ...]:
    """Return all tasks but those of `reduce`."""
    reads = [tuple(shard.id for shard in row) for row in rows]
    task = _task(job_file, stage.resources)
    if stage.checkpoint is not None:
        task = replace(task, checkpoint_s=stage.checkpoint.every_s)
    if stage.wavefront is not None:
        return wavefront(
            job_id, stage.wavefront.rows, stage.wavefront.columns, task=task, reads=reads
        )
    if stage.iterations is not None and job_file.update is not None:
        update = _task(job_file, job_file.update.resources)
        return iterated(job_id, reads, stage.iterations, task=task, update=update)
    return mapped(reads, task=task)


def _first_stages(job_file: JobFile, tasks: Tasks, groups: int) -> list[Stage]:
    """Return the stages of all tasks but those of `reduce`."""
    first = replace(_stage(tasks, 0, groups), first_index=tasks.first_index)
    if job_file.stdin is not None:
        first = replace(first, params={"stdin": job_file.stdin})
    if tasks.checkpoint is not None:
        first = replace(first, checkpoint=tasks.checkpoint.path)
    if tasks.iterations is None or job_file.update is None:
        return [first]
    stages = (first, _stage(job_file.update, groups, 1))
    return [replace(stage, times=tasks.iterations, every=groups + 1) for stage in stages]


def _short_form(job_file: JobFile) -> Tasks:
    if job_file.run is None:
        raise AssertionError("unreachable: load_job has checked that a job runs something")
    if job_file.elastic is not None:
        units = job_file.elastic
        return Tasks(
            run=job_file.run,
            count=_most(job_file, units),
            resources=Resources.model_construct(**dict(units.unit)),
            retries=units.retries,
            params={},
        )
    return Tasks(run=job_file.run, count=1, resources=job_file.resources or Resources(), params={})


def _elastic(job_file: JobFile) -> Elastic | None:
    units = job_file.elastic
    return None if units is None or units.min is None else Elastic(minimum=units.min)


def _training(job_file: JobFile) -> Training | None:
    units, work, throughput = job_file.elastic, job_file.work, job_file.throughput
    if units is None or work is None or throughput is None:
        return None
    return training_of(work, throughput, units, units.restart or 0.0)


def _most(job_file: JobFile, units: ElasticUnits) -> int:
    """Return how many tasks an elastic, or a training job has."""
    training = _training(job_file)
    if training is not None:
        return training.speeds.widths[-1]
    if units.max is None:
        raise AssertionError("unreachable: load_job has checked that an elastic job has units")
    return units.max


def _task(job_file: JobFile, needs: Needs) -> Task:
    return Task(demand=_demand(job_file, needs))


def _demand(job_file: JobFile, needs: Needs) -> Demand:
    """Return what a task with these needs holds, on a node that the job accepts."""
    return needs.demand(job_file.nodes, job_file.exclude, job_file.node_selector)


def _stage(described: Tasks | Update, first: int, count: int) -> Stage:
    return Stage(
        first=first,
        count=count,
        program_type=ProgramType.FUNCTION if is_function(described.run) else ProgramType.COMMAND,
        run=described.run,
        params=described.params,
    )


def _rows(
    job_file: JobFile,
    stage: Tasks,
    datasets: Mapping[str, tuple[Shard, ...]],
    file_sizes: Mapping[str, int],
) -> list[tuple[Shard, ...]]:
    """Return the shards that each task of the first stage reads."""
    grid = stage.wavefront
    if stage.for_each is None:
        count = job_file.num_nodes or stage.count or 1
        return [()] * (grid.rows * grid.columns if grid else count)
    columns = _columns(job_file, stage.for_each, datasets, file_sizes)
    counts = [len(column) for column in columns]
    sizes = ", ".join(
        f"'{name}' has {count}"
        for name, count in zip(stage.for_each[:_MOST_NAMED], counts, strict=False)
    ) + ", ..." * (len(counts) > _MOST_NAMED)
    problem = ""
    if stage.pairs == "index" and len(set(counts)) > 1:
        problem = f"shards are paired by index, and {sizes}"
    groups = math.prod(counts) if stage.pairs == "all" else counts[0]
    if grid is not None and groups != grid.rows * grid.columns:
        what = "pair of shards" if stage.pairs == "all" else "shard"
        cells = f"the wavefront has {grid.rows * grid.columns} cells"
        problem = problem or f"{cells}, one for each {what}, and {sizes}"
    problem = problem or too_much(job_file, groups)
    if problem:
        raise SpecError([Problem(path="tasks.for_each", problem=problem)])
    if stage.pairs == "all":
        return list(itertools.product(*columns))
    return list(zip(*columns, strict=True))


def _columns(
    job_file: JobFile,
    names: Sequence[str],
    datasets: Mapping[str, tuple[Shard, ...]],
    file_sizes: Mapping[str, int],
) -> list[tuple[Shard, ...]]:
    """Return the shards of some data, in order."""
    problems: list[Problem] = []
    columns: list[tuple[Shard, ...]] = []
    for name in names:
        data = job_file.data[name]
        path = f"data.{name}"
        shards: list[Shard] = []
        for number, file in enumerate(data.files or ()):
            if file in file_sizes:
                shards.append(Shard(id=FILE_PREFIX + file, size_bytes=file_sizes[file]))
            else:
                file_path = f"{path}.files[{number}]"
                problems.append(
                    Problem(path=file_path, problem=f"there is no file '{clipped(file)}'")
                )
        if data.from_ is not None and data.from_ not in datasets:
            named = nearest(data.from_, datasets) if len(problems) < MOST_PROBLEMS else ""
            hint = named or "put it first: headgate data put"
            problem = f"unknown dataset '{data.from_}'"
            problems.append(Problem(path=f"{path}.from", problem=problem, hint=hint))
        elif data.from_ is not None:
            shards.extend(datasets[data.from_])
            if not shards:
                problem = f"the dataset '{data.from_}' has no shards"
                problems.append(Problem(path=f"{path}.from", problem=problem))
        columns.append(tuple(shards))
    if problems:
        raise SpecError(problems)
    return columns
