"""Problems of jobs that options describe: they name the option, not the key of a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headgate.base.errors import Problem, SpecError
from headgate.cli.jobs.command_options import JobOptions

_PLACE = re.compile(
    r"(?:(?:tasks|run|ray|elastic)\.)?(?:(?:resources|unit)\.)?(\w+)(?:[.\[].*)?", re.DOTALL
)
_OPTIONS = {
    "num_nodes": "nodes", "envs": "env", "count": "array", "first_index": "array",
    "max_running": "array",
}  # fmt: skip
"""The options of keys with other names."""


@contextmanager
def option_places(options: JobOptions) -> Iterator[None]:
    """Raise a SpecError of a job of these options with their places in the command line."""
    try:
        yield
    except SpecError as error:
        problems = [_placed(problem, options) for problem in error.problems]
        raise SpecError(problems, code=error.code) from error


def _placed(problem: Problem, options: JobOptions) -> Problem:
    match = _PLACE.fullmatch(problem.path)
    if match is None:
        return problem
    option = _OPTIONS.get(match[1], match[1])
    if getattr(options, option, None) in (None, []):
        return problem
    return replace(problem, path=f"--{option.replace('_', '-')}", line=None)
