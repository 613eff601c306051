"""The verb `submit`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from headgate.api import following
from headgate.base.errors import Problem, SpecError
from headgate.base.states import job_word
from headgate.base.text import visible
from headgate.cli.common import output
from headgate.cli.common.errors import OUTCOMES, interrupted
from headgate.cli.common.settings import (
    DryRunOption,
    FormatOption,
    ProgramSettings,
    StateOption,
    settle,
)
from headgate.cli.data.kept_files import show_kept
from headgate.cli.jobs.command_options import JobOptions, with_job_options
from headgate.cli.jobs.option_places import option_places
from headgate.cli.jobs.programs import command_of, is_job_file
from headgate.cli.jobs.stdin import unread_stdin
from headgate.cli.jobs.units import progress_of, units_text

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


class SubmitCommand(TyperCommand):
    """`submit`: its options end where a script or a command begins, but not at a job file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; options behind a program belong to it."""
        ctx.allow_interspersed_args = False
        given, *_ = self.make_parser(ctx).parse_args(args=[*args])
        named = given.get("arguments")
        ctx.allow_interspersed_args = bool(given.get("ray")) or not named or is_job_file(named[:1])
        return super().parse_args(ctx, args)


@with_job_options
def submit(
    options: JobOptions,
    arguments: ArgumentsOption = None,
    ray: RayOption = None,
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
    """Submit a job file, a script, or a command."""
    settings = settle(state, fmt)
    if options.stdin and arguments == ["-"]:
        text = "does not go with '-', which reads the job file from stdin"
        hint = "write 'stdin' into the job file"
        raise SpecError([Problem(path="--stdin", problem=text, hint=hint)], code="usage")
    words, after = arguments or [], options.after or ()
    of_file = ray is None and (not words or is_job_file(words))
    with nullcontext() if of_file else option_places(options):
        described = _described(words, ray, options.keys())
        _submit(described, settings, wait=wait, public=public, after=after, dry_run=dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """The text of a job file, its name, warnings, and what options replace in a file."""

    text: str
    source: str
    warnings: tuple[Problem, ...] = ()
    replaced: tuple[Problem, ...] = ()


def _submit(
    described: _Described,
    settings: ProgramSettings,
    *,
    wait: bool,
    public: bool,
    after: Sequence[str],
    dry_run: bool,
) -> None:
    """Submit a job, and show the answer, or with `wait` the end of the job."""
    from headgate.api.sending import base_of, send_files
    from headgate.spec import load_job, warnings_for

    # Errors of the file are reported without a controller also.
    text, source = described.text, described.source
    found = warnings_for(load_job(text, name=source))
    if described.replaced and not settings.as_json:
        changes = "; ".join(f"{each.path}: {each.problem}" for each in described.replaced)
        output.print_note(f"note: the command line wins over {source}: {changes}")
    with settings.client() as client:
        text, unsent = send_files(
            client,
            text,
            base=base_of(Path(source)),
            here=source == _COMMAND,
            dry_run=dry_run,
            show=None if settings.as_json else output.print_note,
        )
        warnings = (*described.warnings, *found, *unsent)
        _show(warnings, settings)  # before errors of the submission
        answer = client.submission(text, dry_run=dry_run, public=public, after=after)
        job, more = answer["id"], [Problem(**each) for each in answer.get("warnings", ())]
        _show(more, settings)
        all_warnings = (*described.replaced, *warnings, *more)
        shown = {"job": job, "warnings": [_warning(warning) for warning in all_warnings]}
        if not wait or dry_run:
            verb = "would be submitted as" if dry_run else "submitted"
            now = None if dry_run or not settings.as_json else client.job(job)["state"]
            facts = {"id": job, "state": now, "dry_run": dry_run, **shown}
            output.print_result(facts, f"{verb} {job}", as_json=settings.as_json)
            return
        try:
            ended = _wait(client, job, settings)
        except KeyboardInterrupt:
            raise interrupted(f"job {job} continues; to cancel it: headgate cancel {job}") from None
        reason = f": {ended['message']}" if ended["message"] else ""
        text = f"{job} {_word(ended)}{reason}"
        output.print_result({**ended, **shown}, text, as_json=settings.as_json)
        if not settings.as_json:
            show_kept(ended)
        raise typer.Exit(OUTCOMES[ended["state"]])


def _described(
    arguments: Sequence[str], script: Path | None, keys: Mapping[str, Any]
) -> _Described:
    """Return the job that a command line names or describes; SpecError for none."""
    from headgate.api.programs import job_of_command, job_of_ray_script
    from headgate.api.sending import job_text

    if script is not None:
        if "count" in keys:
            problem = Problem(
                path="--array", problem="does not go with --ray, which is one program"
            )
            raise SpecError([problem], code="usage")
        job = job_of_ray_script(script, arguments, **keys)
        return _Described(text=job_text(job), source=str(script))
    if not arguments:
        hint = "headgate submit FILE, headgate submit -- CMD, or headgate submit --ray SCRIPT"
        problem = Problem(path="FILE", problem="is missing", hint=hint)
        raise SpecError([problem], code="usage")
    if is_job_file(arguments):
        return _of_file(arguments, keys)
    place, variables = keys.get("working_dir"), keys.get("envs", {})
    words, warnings = command_of(arguments, working_dir=place, variables=variables)
    if "stdin" not in keys:
        warnings += unread_stdin(pipes=False)
    text = job_text(job_of_command(words, **keys))
    return _Described(text=text, source=_COMMAND, warnings=warnings)


def _of_file(arguments: Sequence[str], keys: Mapping[str, Any]) -> _Described:
    """Return the job of a job file, in which options replace keys."""
    from headgate.api.sending import job_text
    from headgate.cli.jobs.overrides import overridden
    from headgate.spec import load_job
    from headgate.spec.document import decoded, read_text

    if len(arguments) != 1:
        hint = "headgate submit FILE, or headgate submit -- CMD for a command"
        text = f"{len(arguments)} are given, and one is submitted"
        raise SpecError([Problem(path="FILE", problem=text, hint=hint)], code="usage")
    if arguments[0] == "-":
        text, source = decoded(sys.stdin.buffer.read(), "stdin"), "stdin"
    else:
        text, source = read_text(Path(arguments[0])), arguments[0]
    if not keys:
        return _Described(text=text, source=source)
    load_job(text, name=source)  # its own problems, with their lines
    job, replaced = overridden(text, source, keys)
    return _Described(text=job_text(job), source=source, replaced=tuple(replaced))


def _show(warnings: Iterable[Problem], settings: ProgramSettings) -> None:
    for warning in () if settings.as_json else warnings:
        output.warn(warning)


def _warning(warning: Problem) -> dict[str, str]:
    return {"path": warning.path, "problem": warning.problem, "hint": warning.hint}


def _word(view: dict[str, Any]) -> str:
    return job_word(view["state"], view["tasks"], view["preempted_tasks"])


def _wait(client: Client, job: str, settings: ProgramSettings) -> dict[str, Any]:
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
            (completed, total), units = progress_of(view), units_text(view)
            bar.update(
                line,
                description=f"{job} {_word(view)}" + (f", {units}" if units else ""),
                total=total,
                completed=completed,
                why=visible(output.sentence(view["reason"]) or ""),
            )
        return view
