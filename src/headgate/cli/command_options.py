"""The options of `submit` and `run` that describe a job on the command line, as a job file does."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError

GpusOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="GPUs, or a share of one such as 0.25; by default 1."),
]
GpuMemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory of each GPU, at least, such as 40GiB.")
]
GpuModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-model", metavar="MODEL", help="Model of the GPUs, such as H100; may be repeated."
    ),
]
CpusOption = Annotated[float | None, typer.Option(metavar="N", help="CPUs.")]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Main memory, such as 16GiB.")
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        "--num-nodes",
        metavar="N",
        help="Run it on N nodes together, each with these resources.",
    ),
]
NameOption = Annotated[str | None, typer.Option(help="The job's name.")]
QueueOption = Annotated[str | None, typer.Option(help="The queue it waits in.")]
PriorityOption = Annotated[
    int | None, typer.Option(metavar="N", help="Your jobs with higher ones come first.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stop it after this time, such as 2h.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="K=V | K", help="Set a variable, or pass on yours; may be repeated."
    ),
]
PipOption = Annotated[
    list[str] | None,
    typer.Option("--pip", metavar="REQUIREMENT", help="Install this for it; may be repeated."),
]
WorkingDirOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Run in a copy of this directory; shared: in this one itself; none: in neither.",
    ),
]
RetriesOption = Annotated[
    int | None, typer.Option(metavar="N", help="Run it again so often if it fails; by default 0.")
]
ArrayOption = Annotated[
    str | None,
    typer.Option(
        metavar="0-N[%M]",
        help="Run N+1 tasks, at most M together; HEADGATE_INDEX is the number of each.",
    ),
]

_ARRAY = re.compile(r"(\d+)-(\d+)(?:%(\d+))?")
_RUNNERS = {".py": "python", ".sh": "bash"}


def keys_of(
    *, env: Sequence[str] | None, array: str | None, gpus: str | None, **keys: Any
) -> dict[str, Any]:
    """Return the keys of a job file that options stand for, without those that are not given.

    SpecError `usage` with all problems of `--env`, or that of `--array`.
    """
    found = {**keys, "gpus": _number(gpus), **_tasks_of_array(array)}
    found["envs"] = _variables(env) or None
    return {key: value for key, value in found.items() if value is not None}


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the words that run what was named: a script by the program for its kind of file."""
    runner = _RUNNERS.get(Path(arguments[0]).suffix)
    return [*([] if runner is None else [runner]), *arguments]


def _number(gpus: str | None) -> float | str | None:
    """Return a number as one: in a job file, text such as `shared` is another form."""
    if gpus is None:
        return None
    with suppress(ValueError):
        return int(gpus)
    try:
        return float(gpus)
    except ValueError:
        return gpus


def _variables(options: Sequence[str] | None) -> dict[str, str]:
    """Return the variables of `--env`; SpecError `usage` for those that are not set here."""
    found, problems = dict[str, str](), list[Problem]()
    for option in options or ():
        name, assigned, value = option.partition("=")
        if not assigned and name not in os.environ:
            hint = f"--env {name}=VALUE gives it one"
            problems.append(Problem(path="--env", problem=f"{name} is not set here", hint=hint))
        found[name] = value if assigned else os.environ.get(name, "")
    if problems:
        raise SpecError(problems, code="usage")
    return found


def _tasks_of_array(array: str | None) -> Mapping[str, Any]:
    """Return the keys of a job file for `--array`; SpecError `usage` for what is no range."""
    if array is None:
        return {}
    match = _ARRAY.fullmatch(array)
    if match is None:
        raise _no_array(f"'{array}' is no range", "write 0-99, or 0-99%4 for 4 at the same time")
    first, last = int(match[1]), int(match[2])
    if first:
        raise _no_array(f"begins at {first}", f"write 0-{last - first}, and add {first} in it")
    most = None if match[3] is None else int(match[3])
    return {"count": last + 1, **({} if most is None else {"max_running": most})}


def _no_array(problem: str, hint: str) -> SpecError:
    return SpecError([Problem(path="--array", problem=problem, hint=hint)], code="usage")
