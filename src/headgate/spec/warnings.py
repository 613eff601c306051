"""Warnings about valid but probably unintended values in a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headgate.base.errors import Problem, closest
from headgate.base.units import format_seconds
from headgate.spec.job_file import JobFile, Tasks, Update, is_function

_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORDS = ("shard", "shards", "output", "outputs", "index")


def warnings_for(job: JobFile) -> tuple[Problem, ...]:
    """Return the probable mistakes in a job file, each with its place and a hint."""
    return tuple(_warnings(job))


def _warnings(job: JobFile) -> Iterator[Problem]:
    expected_s, limit_s = job.estimated_runtime, job.time_limit
    if expected_s is not None and limit_s is not None and expected_s > limit_s:
        limit = format_seconds(limit_s)
        problem = f"runs of {format_seconds(expected_s)} are stopped at the time limit of {limit}"
        yield Problem(path="estimated_runtime", problem=problem, hint="raise time_limit")
    if job.run is not None:
        yield from _of_command("run", job.run)
    stages: dict[str, Tasks | Update | None] = {
        "tasks": job.tasks,
        "update": job.update,
        "reduce": job.reduce,
    }
    for name, stage in stages.items():
        if stage is not None:
            yield from _of_command(f"{name}.run", stage.run)


def _of_command(path: str, run: str) -> Iterator[Problem]:
    if is_function(run):
        return
    for word in dict.fromkeys(_BRACES.findall(run)):
        close = closest(word, _WORDS)
        if word not in _WORDS and close is not None:
            text = f"{{{word}}} is no placeholder and is left unchanged"
            yield Problem(path=path, problem=text, hint=f"did you mean {{{close}}}?")
