"""The verb `submit`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.api import following
from headgate.base.errors import Problem, SpecError
from headgate.base.states import job_word
from headgate.base.text import visible
from headgate.cli import output
from headgate.cli.errors import OUTCOMES, interrupted
from headgate.cli.settings import DryRunOption, FormatOption, Settings, StateOption, settle

if TYPE_CHECKING:
    from headgate.api.client import Client

ArgumentsOption = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE | -- ARGS",
        help="A job file (YAML), - reads stdin; with --ray the script's arguments.",
    ),
]
RayOption = Annotated[
    Path | None,
    typer.Option(metavar="SCRIPT", help="Run a plain Ray program on a Ray cluster of its own."),
]
GpusOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="With --ray: GPUs in all, over any nodes; with --num-nodes on each (default 1).",
    ),
]
CpusOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="The same of CPUs (default: the GPUs' part of a node's CPUs)."
    ),
]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="The same of main memory, such as 16GiB.")
]
NumNodesOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="With --ray: use this many nodes.")
]


def submit(
    arguments: ArgumentsOption = None,
    ray: RayOption = None,
    gpus: GpusOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    num_nodes: NumNodesOption = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the job's end; the exit code shows its outcome."),
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Let all users read its logs and results.")
    ] = False,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="JOB",
            help="Start when this job has finished, too; may be repeated.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Submit a job file, or a plain Ray program (--ray)."""
    from headgate.api.sending import base_of, send_files
    from headgate.spec import load_job, warnings_for

    settings = settle(state, fmt)
    options = {"--gpus": gpus, "--cpus": cpus, "--memory": memory, "--num-nodes": num_nodes}
    text, name = _job_text(arguments or [], ray, options)
    # Errors of the file are reported without a controller also.
    warnings = warnings_for(load_job(text, name=name))
    with settings.client() as client:
        text, unsent = send_files(client, text, base=base_of(Path(name)), dry_run=dry_run)
        warnings = (*warnings, *unsent)
        _show(warnings, settings)  # before errors of the submission
        answer = client.submission(text, dry_run=dry_run, public=public, after=after or ())
        job, more = answer["id"], [Problem(**each) for each in answer.get("warnings", ())]
        _show(more, settings)
        shown_warnings = {"warnings": [_warning(warning) for warning in (*warnings, *more)]}
        if not wait or dry_run:
            verb = "would be submitted as" if dry_run else "submitted"
            now = None if dry_run or not settings.as_json else client.job(job)["state"]
            facts = {"id": job, "state": now, "dry_run": dry_run, **shown_warnings}
            output.print_result(facts, f"{verb} {job}", as_json=settings.as_json)
            return
        try:
            ended = _wait(client, job, settings)
        except KeyboardInterrupt:
            raise interrupted(f"job {job} continues; to cancel it: headgate cancel {job}") from None
        reason = f": {ended['message']}" if ended["message"] else ""
        text = f"{job} {_word(ended)}{reason}"
        output.print_result({**ended, **shown_warnings}, text, as_json=settings.as_json)
        raise typer.Exit(OUTCOMES[ended["state"]])


def _job_text(
    arguments: Sequence[str], script: Path | None, options: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the text of the job file that a command line names or describes, and its name."""
    from headgate.api.programs import job_of_ray_script
    from headgate.spec.document import decoded, read_text

    if script is not None:
        keys = {option[2:].replace("-", "_"): value for option, value in options.items()}
        return json.dumps(job_of_ray_script(script, arguments, **keys)), str(script)
    for option, value in options.items():
        if value is not None:
            hint = "in a job file: resources, num_nodes"
            problem = Problem(path=option, problem="goes with --ray", hint=hint)
            raise SpecError([problem], code="usage")
    if len(arguments) != 1:
        hint = "headgate submit FILE, or headgate submit --ray SCRIPT -- ARGS"
        text = f"{len(arguments)} are given, and one is submitted" if arguments else "is missing"
        problem = Problem(path="FILE", problem=text, hint=hint)
        raise SpecError([problem], code="usage")
    if arguments[0] == "-":
        return decoded(sys.stdin.buffer.read(), "stdin"), "stdin"
    return read_text(Path(arguments[0])), arguments[0]


def _show(warnings: Iterable[Problem], settings: Settings) -> None:
    for warning in () if settings.as_json else warnings:
        output.warn(warning)


def _warning(warning: Problem) -> dict[str, str]:
    return {"path": warning.path, "problem": warning.problem, "hint": warning.hint}


def _word(view: dict[str, Any]) -> str:
    return job_word(view["state"], view["tasks"], view["preempted_tasks"])


def _wait(client: Client, job: str, settings: Settings) -> dict[str, Any]:
    """Return the view of a job after its end; meanwhile show its progress."""
    if settings.as_json or not sys.stderr.isatty():
        return client.wait(job)
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    reason = TextColumn("{task.fields[why]}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), reason)
    with output.progress(*columns, as_json=False) as bar:
        line = bar.add_task(job, total=None, why="")
        for view in following.changes(client, job):
            tasks = view["tasks"]
            bar.update(
                line,
                description=f"{job} {_word(view)}",
                total=tasks["total"],
                completed=tasks.get("finished", 0),
                why=visible(output.sentence(view["reason"]) or ""),
            )
        return view
