"""From a job file to the job that the scheduler sees.

The tasks of the first stage come first, one per shard (or `count` of them); those of `reduce`
follow, each after all of the first stage and reading all their results, in order.

`Job.program` is canonical JSON (sorted keys, no spaces) of what to run:

    {"envs": {"K": "V"},
     "stages": [{"name": "tasks", "first": 0, "tasks": 20, "reads": ["ints"], "params": {},
                 "run": {"function": "module:function"}},
                {"name": "reduce", "first": 20, "tasks": 1, "reads": [], "params": {},
                 "run": {"command": "sort -m {shards} > {output}"}}]}

A task belongs to the stage whose `first <= ordinal < first + tasks`; its index, for `{index}`, is
`ordinal - first`. `reads` names the data of the stage in the order of a task's reads; a stage that
reads results names none. A shard `file:<path>` is a whole file on a shared path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headgate.base.errors import Problem, SpecError, nearest
from headgate.model import Job, Shard, Task, result_id
from headgate.spec.job_file import JobFile, Reduce, Resources, Tasks, is_function

FILE_PREFIX = "file:"


def expand(
    job_file: JobFile,
    *,
    job_id: str,
    user: str,
    datasets: Mapping[str, tuple[Shard, ...]],
    file_sizes: Mapping[str, int],
) -> Job:
    """Return the job of a job file.

    `datasets` are those that were put, `file_sizes` the bytes of every file named on a shared path
    that is there. Raise SpecError for a dataset or file that is not, and for data that should be
    read in pairs, yet has different numbers of shards.
    """
    stage = job_file.tasks or _short_form(job_file)
    reads = _reads(job_file, stage, datasets, file_sizes)
    tasks = [_task(stage.resources, tuple(shard.id for shard in row)) for row in reads]
    stages = [_program("tasks", stage, 0, len(tasks), stage.for_each or [])]
    if job_file.reduce is not None:
        earlier = tuple(range(len(tasks)))
        results = tuple(result_id(job_id, ordinal) for ordinal in earlier)
        count = job_file.reduce.tasks
        stages.append(_program("reduce", job_file.reduce, len(tasks), count, []))
        tasks += [_task(job_file.reduce.resources, results, earlier)] * count
    return Job(
        id=job_id,
        name=job_file.name,
        user=user,
        queue=job_file.queue,
        tasks=tuple(tasks),
        shards=tuple({shard.id: shard for row in reads for shard in row}.values()),
        priority=job_file.priority,
        gang=job_file.gang,
        retries=stage.retries,
        program=canonical({"envs": job_file.envs, "stages": stages}),
    )


def canonical(value: Any) -> str:
    """Return the one way to write a value as JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _short_form(job_file: JobFile) -> Tasks:
    if job_file.run is None:
        raise AssertionError("unreachable: load_job has seen to it that a job runs something")
    return Tasks(run=job_file.run, count=1, resources=job_file.resources or Resources(), params={})


def _task(resources: Resources, reads: tuple[str, ...], after: tuple[int, ...] = ()) -> Task:
    return Task(
        reads=reads,
        after=after,
        gpus=resources.gpus,
        gpu_memory_bytes=resources.gpu_memory,
        cpus=resources.cpus,
    )


def _program(
    name: str, stage: Tasks | Reduce, first: int, tasks: int, reads: list[str]
) -> dict[str, Any]:
    kind = "function" if is_function(stage.run) else "command"
    return {
        "name": name,
        "first": first,
        "tasks": tasks,
        "reads": reads,
        "params": stage.params,
        "run": {kind: stage.run},
    }


def _reads(
    job_file: JobFile,
    stage: Tasks,
    datasets: Mapping[str, tuple[Shard, ...]],
    file_sizes: Mapping[str, int],
) -> list[tuple[Shard, ...]]:
    """Return the shards that each task of the first stage reads."""
    if stage.for_each is None:
        return [()] * (stage.count or 1)
    problems: list[Problem] = []
    columns: list[tuple[Shard, ...]] = []
    for name in stage.for_each:
        data = job_file.data[name]
        path = f"data.{name}"
        shards: list[Shard] = []
        for number, file in enumerate(data.files or ()):
            if file in file_sizes:
                shards.append(Shard(id=FILE_PREFIX + file, size_bytes=file_sizes[file]))
            else:
                at = f"{path}.files[{number}]"
                problems.append(Problem(path=at, problem=f"there is no file '{file}'"))
        if data.from_ is not None and data.from_ not in datasets:
            hint = nearest(data.from_, datasets) or "put it first: headgate data put"
            problem = f"unknown dataset '{data.from_}'"
            problems.append(Problem(path=f"{path}.from", problem=problem, hint=hint))
        elif data.from_ is not None:
            shards.extend(datasets[data.from_])
            if not shards:
                problem = f"the dataset '{data.from_}' has no shards"
                problems.append(Problem(path=f"{path}.from", problem=problem))
        columns.append(tuple(shards))
    if not problems and len({len(column) for column in columns}) > 1:
        counts = ", ".join(
            f"'{name}' has {len(column)}"
            for name, column in zip(stage.for_each, columns, strict=True)
        )
        problem = f"shards are paired by index, and {counts}"
        problems.append(Problem(path="tasks.for_each", problem=problem))
    if problems:
        raise SpecError(problems)
    return list(zip(*columns, strict=True))
