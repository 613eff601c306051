"""The options of `submit` and `run` that describe a job on the command line, as a job file does."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.jobs.stdin import read_stdin

_ARRAY = re.compile(r"(\d{1,18})-(\d{1,18})(?:%(\d{1,18}))?")
_HINT = "write 0-99, or 0-99%4 for 4 at the same time"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options that describe a job; a verb has them by `with_job_options`."""

    gpus: Annotated[
        str | None,
        typer.Option(metavar="N", help="GPUs, or a share of one such as 0.25; by default 1."),
    ] = None
    gpu_model: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-model", metavar="MODEL", help="Model of the GPUs, such as H100; may be repeated."
        ),
    ] = None
    gpu_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of each GPU, at least, such as 40GiB."),
    ] = None
    cpus: Annotated[float | None, typer.Option(metavar="N", help="CPUs.")] = None
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Main memory, such as 16GiB.")
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            "--num-nodes",
            metavar="N",
            help="Run it on N nodes together, each with these resources.",
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option(
            metavar="A-B[%M]",
            help="Run a task for each number from A to B, which is its HEADGATE_INDEX, at most M "
            "together.",
        ),
    ] = None
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The job's name.")] = None
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="The queue it waits in.")] = (
        None
    )
    type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="The type of the job, in place of its queue."),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="LABEL", help="A label of its nodes, !LABEL: not; may be repeated."
        ),
    ] = None
    priority: Annotated[
        int | None, typer.Option(metavar="N", help="Your jobs with higher ones come first.")
    ] = None
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop it after this time, such as 2h.")
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="JOB",
            help="Start when this job has finished, too; may be repeated.",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="K=V | K", help="Set a variable, or pass on yours; may be repeated."
        ),
    ] = None
    pip: Annotated[
        list[str] | None,
        typer.Option("--pip", metavar="REQUIREMENT", help="Install this for it; may be repeated."),
    ] = None
    working_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Run in a copy of this directory; shared: in this one itself; none: in neither.",
        ),
    ] = None
    retries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Run it again so often if it fails; by default 0."),
    ] = None

    stdin: Annotated[
        bool,
        typer.Option("--stdin", help="Read stdin to its end, and give it to each of its programs."),
    ] = False

    def keys(self) -> dict[str, Any]:
        """Return the keys of a job file that these options stand for, as of `job_of_command`.

        Without `after`. SpecError `usage` with all problems of `--env` and `--array`, and for a
        stdin that cannot be passed on.
        """
        problems = list[Problem]()
        variables = _variables(self.env or (), problems)
        found = {
            "gpus": _number(self.gpus),
            "gpu_model": self.gpu_model or None,
            "gpu_memory": self.gpu_memory,
            "cpus": self.cpus,
            "memory": self.memory,
            "num_nodes": self.nodes,
            **_tasks_of_array(self.array, problems),
            "name": self.name,
            "queue": self.queue,
            "type": self.type,
            "node_selector": self.label or None,
            "priority": self.priority,
            "time_limit": self.time_limit,
            "envs": variables or None,
            "pip": self.pip or None,
            "working_dir": self.working_dir,
            "retries": self.retries,
        }
        if problems:
            raise SpecError(problems, code="usage")
        if self.stdin:
            found["stdin"] = read_stdin()
        return {key: value for key, value in found.items() if value is not None}


def with_job_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb that has the options of a job in place of its parameter `options`."""

    @functools.wraps(verb)
    def call(**given: Any) -> None:
        options = JobOptions(**{each.name: given.pop(each.name) for each in fields(JobOptions)})
        verb(options=options, **given)

    hints = get_type_hints(JobOptions, include_extras=True)
    own = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in fields(JobOptions)
    ]
    parameters = list[inspect.Parameter]()
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += own if parameter.name == "options" else [keyword]
    shown: Any = call
    shown.__signature__ = inspect.Signature(parameters)  # which typer reads
    return call


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


def _variables(options: Sequence[str], problems: list[Problem]) -> dict[str, str]:
    """Return the variables of `--env`, and add a problem for each that is not set here."""
    found = dict[str, str]()
    for option in options:
        name, assigned, value = option.partition("=")
        if not assigned and name not in os.environ:
            hint = f"--env {name}=VALUE gives it one"
            problems.append(Problem(path="--env", problem=f"{name} is not set here", hint=hint))
        found[name] = value if assigned else os.environ.get(name, "")
    return found


def _tasks_of_array(array: str | None, problems: list[Problem]) -> Mapping[str, Any]:
    """Return the keys of a job file for `--array`, and add all problems of the range."""
    if array is None:
        return {}
    from headgate.spec.forms import MOST_TASKS

    match = _ARRAY.fullmatch(array)
    if match is None:
        problems.append(_no_range(array))
        return {}
    first, last = int(match[1]), int(match[2])
    most = None if match[3] is None else int(match[3])
    if last < first:
        problem = f"{array} has no number: it ends before it begins"
        problems.append(Problem(path="--array", problem=problem, hint=f"write {last}-{first}"))
    elif last - first >= MOST_TASKS:
        problem = (
            f"{array} has {last - first + 1:,} numbers, and a job at most {MOST_TASKS:,} tasks"
        )
        hint = "let each task do a part of the work, or submit several jobs"
        problems.append(Problem(path="--array", problem=problem, hint=hint))
    if most == 0:
        hint = f"write {first}-{last}%1 for one at a time"
        problem = f"{array} lets no task run: there are 0 at the same time"
        problems.append(Problem(path="--array", problem=problem, hint=hint))
    start = {"first_index": first} if first else {}
    return {"count": last - first + 1, "max_running": most, **start}


def _no_range(array: str) -> Problem:
    """Return the problem of what is no range."""
    if ":" in array:
        text, hint = (
            f"'{array}' has a step, and an array has every number",
            "compute the step from HEADGATE_INDEX",
        )
    elif "," in array:
        text, hint = (
            f"'{array}' is a list, and an array is one range",
            "submit a job for each range",
        )
    else:
        text, hint = f"'{array}' is no range", _HINT
    return Problem(path="--array", problem=text, hint=hint)
