"""Warnings about valid but probably unintended values in a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headgate.base.errors import Problem, closest
from headgate.base.units import format_seconds, format_size
from headgate.spec.job_file import JobFile, Resources, Tasks, Update, is_function

_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORDS = ("shard", "shards", "output", "outputs", "index")
_LITTLE_BYTES = 1 << 20


def warnings_for(job: JobFile) -> tuple[Problem, ...]:
    """Return the probable mistakes in a job file, each with its place and a hint."""
    return tuple(_warnings(job))


def little_memory(size_bytes: int) -> tuple[str, str] | None:
    """Return what is odd about the memory of a GPU, and a hint; None if it is plausible."""
    if not 0 < size_bytes < _LITTLE_BYTES:
        return None
    unit = f"write a unit, such as {size_bytes}GiB, if bytes are not meant"
    return f"{format_size(size_bytes)} is little for a GPU: a number without a unit is bytes", unit


def _warnings(job: JobFile) -> Iterator[Problem]:
    expected_s, limit_s = job.estimated_runtime, job.time_limit
    if expected_s is not None and limit_s is not None and expected_s > limit_s:
        limit = format_seconds(limit_s)
        problem = f"runs of {format_seconds(expected_s)} are stopped at the time limit of {limit}"
        yield Problem(path="estimated_runtime", problem=problem, hint="raise time_limit")
    if job.run is not None:
        yield from _of_command("run", job.run)
    if job.resources is not None:
        yield from _of_resources("resources", job.resources)
    stages: dict[str, Tasks | Update | None] = {
        "tasks": job.tasks,
        "update": job.update,
        "reduce": job.reduce,
    }
    for name, stage in stages.items():
        if stage is not None:
            yield from _of_command(f"{name}.run", stage.run)
            yield from _of_resources(f"{name}.resources", stage.resources)


def _of_command(path: str, run: str) -> Iterator[Problem]:
    if is_function(run):
        return
    for word in dict.fromkeys(_BRACES.findall(run)):
        close = closest(word, _WORDS)
        if word not in _WORDS and close is not None:
            text = f"{{{word}}} is no placeholder and is left unchanged"
            yield Problem(path=path, problem=text, hint=f"did you mean {{{close}}}?")


def _of_resources(path: str, resources: Resources) -> Iterator[Problem]:
    odd = little_memory(resources.gpu_memory)
    if odd is not None:
        yield Problem(path=f"{path}.gpu_memory", problem=odd[0], hint=odd[1])
