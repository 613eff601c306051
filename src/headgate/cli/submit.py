"""The verb `submit`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.api import following
from headgate.base.errors import Problem, SpecError
from headgate.base.states import job_word
from headgate.base.text import visible
from headgate.cli import output
from headgate.cli.command_options import (
    ArrayOption,
    CpusOption,
    EnvOption,
    GpuMemoryOption,
    GpuModelOption,
    GpusOption,
    MemoryOption,
    NameOption,
    NodesOption,
    PipOption,
    PriorityOption,
    QueueOption,
    RetriesOption,
    TimeLimitOption,
    WorkingDirOption,
    command_of,
    keys_of,
)
from headgate.cli.errors import OUTCOMES, interrupted
from headgate.cli.kept_files import show_kept
from headgate.cli.settings import DryRunOption, FormatOption, Settings, StateOption, settle

if TYPE_CHECKING:
    from headgate.api.client import Client

_COMMAND = "command"  # in place of a file's name

ArgumentsOption = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE | -- CMD...",
        help="A job file (- reads stdin), a script, or a command; with --ray its arguments.",
    ),
]
RayOption = Annotated[
    Path | None,
    typer.Option(metavar="SCRIPT", help="Run a plain Ray program on a Ray cluster of its own."),
]


def submit(
    arguments: ArgumentsOption = None,
    ray: RayOption = None,
    gpus: GpusOption = None,
    gpu_model: GpuModelOption = None,
    gpu_memory: GpuMemoryOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    nodes: NodesOption = None,
    array: ArrayOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    time_limit: TimeLimitOption = None,
    env: EnvOption = None,
    pip: PipOption = None,
    working_dir: WorkingDirOption = None,
    retries: RetriesOption = None,
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
    """Submit a job file, a script, or a command."""
    settings = settle(state, fmt)
    keys = keys_of(
        gpus=gpus,
        gpu_model=gpu_model or None,
        gpu_memory=gpu_memory,
        cpus=cpus,
        memory=memory,
        num_nodes=nodes,
        array=array,
        name=name,
        queue=queue,
        priority=priority,
        time_limit=time_limit,
        env=env,
        pip=pip,
        working_dir=working_dir,
        retries=retries,
    )
    text, source = _job_text(arguments or [], ray, keys)
    _submit(text, source, settings, wait=wait, public=public, after=after or (), dry_run=dry_run)


def _submit(
    text: str,
    source: str,
    settings: Settings,
    *,
    wait: bool,
    public: bool,
    after: Sequence[str],
    dry_run: bool,
) -> None:
    """Submit the text of a job file, and show the answer, or with `wait` the end of the job."""
    from headgate.api.sending import base_of, send_files
    from headgate.spec import load_job, warnings_for

    # Errors of the file are reported without a controller also.
    warnings = warnings_for(load_job(text, name=source))
    with settings.client() as client:
        text, unsent = send_files(
            client,
            text,
            base=base_of(Path(source)),
            here=source == _COMMAND,
            dry_run=dry_run,
            show=None if settings.as_json else output.print_note,
        )
        warnings = (*warnings, *unsent)
        _show(warnings, settings)  # before errors of the submission
        answer = client.submission(text, dry_run=dry_run, public=public, after=after)
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
        if not settings.as_json:
            show_kept(ended)
        raise typer.Exit(OUTCOMES[ended["state"]])


def _job_text(
    arguments: Sequence[str], script: Path | None, keys: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the text of the job file that a command line names or describes, and its name."""
    from headgate.api.programs import job_of_command, job_of_ray_script
    from headgate.spec.document import decoded, read_text

    if script is not None:
        return json.dumps(job_of_ray_script(script, arguments, **keys)), str(script)
    if not arguments:
        hint = "headgate submit FILE, headgate submit -- CMD, or headgate submit --ray SCRIPT"
        problem = Problem(path="FILE", problem="is missing", hint=hint)
        raise SpecError([problem], code="usage")
    if not _is_job_file(arguments):
        return json.dumps(job_of_command(command_of(arguments), **keys)), _COMMAND
    if keys:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in keys)
        hint = "write it into the job file"
        problem = Problem(path=options, problem="goes with a command or --ray", hint=hint)
        raise SpecError([problem], code="usage")
    if len(arguments) != 1:
        hint = "headgate submit FILE, or headgate submit -- CMD for a command"
        text = f"{len(arguments)} are given, and one is submitted"
        raise SpecError([Problem(path="FILE", problem=text, hint=hint)], code="usage")
    if arguments[0] == "-":
        return decoded(sys.stdin.buffer.read(), "stdin"), "stdin"
    return read_text(Path(arguments[0])), arguments[0]


def _is_job_file(arguments: Sequence[str]) -> bool:
    """Return whether the arguments name a job file, maybe wrongly, and not a script or command."""
    (first, *more), suffix = arguments, PurePath(arguments[0]).suffix
    if suffix in (".yaml", ".yml", ".json"):
        return True
    if more or suffix in (".py", ".sh"):
        return False
    if os.path.isfile(first):  # noqa: PTH113  # unlike pathlib, it never raises
        return not os.access(first, os.X_OK)
    return os.path.exists(first) or shutil.which(first) is None  # noqa: PTH110  # the same


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
