"""The verb `submit`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import indented, visible
from headgate.cli import output
from headgate.cli.errors import CANCELLED, FAILED, OK, interrupted
from headgate.cli.settings import DryRunOption, FormatOption, Settings, StateOption, settle

if TYPE_CHECKING:
    from headgate.api.client import Client

_OUTCOMES = {"finished": OK, "failed": FAILED, "cancelled": CANCELLED}
_RESTART_TIMEOUT_S = 60.0  # of waiting for a controller to be restarted

ArgumentsOption = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE | -- ARGS", help="A job file (YAML); with --ray the script's arguments."
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
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Submit a job file, or a plain Ray program (--ray)."""
    from headgate.spec import load_job, warnings_for

    settings = settle(state, fmt)
    options = {"--gpus": gpus, "--cpus": cpus, "--memory": memory, "--num-nodes": num_nodes}
    text, name = _job_text(arguments or [], ray, options)
    # Errors of the file are reported without a controller also.
    warnings = warnings_for(load_job(text, name=name))
    if not settings.as_json:
        for warning in warnings:
            output.warn(warning)
    shown_warnings = {"warnings": [_warning(warning) for warning in warnings]}
    with settings.client() as client:
        job = client.submit(text, dry_run=dry_run, public=public)
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
        reason = f": {indented(ended['message'])}" if ended["message"] else ""
        text = f"{job} {ended['state']}{reason}"
        output.print_result({**ended, **shown_warnings}, text, as_json=settings.as_json)
        raise typer.Exit(_OUTCOMES[ended["state"]])


def _job_text(
    arguments: Sequence[str], script: Path | None, options: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the text of the job file that a command line names or describes, and its name."""
    from headgate.api.ray_jobs import job_of_ray_script
    from headgate.spec.document import read_text

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
    return read_text(Path(arguments[0])), arguments[0]


def _warning(warning: Problem) -> dict[str, str]:
    return {"path": warning.path, "problem": warning.problem, "hint": warning.hint}


def _wait(client: Client, job: str, settings: Settings) -> dict[str, Any]:
    """Return the view of a job after its end; meanwhile show its progress."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    reason = TextColumn("{task.fields[why]}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), reason)
    with output.progress(*columns, as_json=settings.as_json) as bar:
        line = bar.add_task(job, total=None, why="")
        for view in _changes(client, job):
            tasks = view["tasks"]
            bar.update(
                line,
                description=f"{job} {view['state']}",
                total=tasks["total"],
                completed=tasks.get("finished", 0),
                why=visible(output.sentence(view["reason"]) or ""),
            )
            if view["state"] in _OUTCOMES:
                return view
    raise AssertionError("unreachable: changes end with an error or not at all")


def _changes(client: Client, job: str) -> Iterator[dict[str, Any]]:
    """Yield the view of a job after every change, across restarts of the controller."""
    since: float | None = None
    while True:
        try:
            for _ in client.events():
                since = None
                yield client.job(job)
        except WorldError as error:
            if error.code != "unreachable":
                raise
            since = since or time.monotonic()
            if time.monotonic() - since > _RESTART_TIMEOUT_S:
                raise
        time.sleep(0.5)
