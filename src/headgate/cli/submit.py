"""The verb `submit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.api import following
from headgate.base.errors import Problem
from headgate.base.text import indented, visible
from headgate.cli import output
from headgate.cli.errors import OUTCOMES, interrupted
from headgate.cli.settings import DryRunOption, FormatOption, Settings, StateOption, settle

if TYPE_CHECKING:
    from headgate.api.client import Client


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file (YAML); - reads stdin.")],
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
    """Submit a job."""
    from headgate.api.sending import base_of, send_files
    from headgate.spec import load_job, warnings_for
    from headgate.spec.document import decoded, read_text

    settings = settle(state, fmt)
    text = read_text(file) if str(file) != "-" else decoded(sys.stdin.buffer.read(), "stdin")
    # Errors of the file are reported without a controller also.
    warnings = warnings_for(load_job(text, name="stdin" if str(file) == "-" else str(file)))
    with settings.client() as client:
        text, unsent = send_files(client, text, base=base_of(file), dry_run=dry_run)
        warnings = (*warnings, *unsent)
        if not settings.as_json:
            for warning in warnings:
                output.warn(warning)
        shown_warnings = {"warnings": [_warning(warning) for warning in warnings]}
        job = client.submit(text, dry_run=dry_run, public=public)
        if not wait or dry_run:
            verb = "would be submitted as" if dry_run else "submitted"
            facts = {"id": job, "dry_run": dry_run, **shown_warnings}
            output.print_result(facts, f"{verb} {job}", as_json=settings.as_json)
            return
        try:
            ended = _wait(client, job, settings)
        except KeyboardInterrupt:
            raise interrupted(f"job {job} continues; to cancel it: headgate cancel {job}") from None
        reason = f": {indented(ended['message'])}" if ended["message"] else ""
        text = f"{job} {ended['state']}{reason}"
        output.print_result({**ended, **shown_warnings}, text, as_json=settings.as_json)
        raise typer.Exit(OUTCOMES[ended["state"]])


def _warning(warning: Problem) -> dict[str, str]:
    return {"path": warning.path, "problem": warning.problem, "hint": warning.hint}


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
                description=f"{job} {view['state']}",
                total=tasks["total"],
                completed=tasks.get("finished", 0),
                why=visible(output.sentence(view["reason"]) or ""),
            )
        return view
