"""The verb logs: the output of a task, also while it runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from headgate.api import following
from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, ProgramSettings, StateOption, settle
from headgate.cli.jobs.why import job_and_task

if TYPE_CHECKING:
    from headgate.api.client import Client

_LONGEST_LINE = 1 << 20


def logs(
    target: Annotated[
        str, typer.Argument(metavar="JOB[/TASK]", help="A job, or one of its tasks: sort-3/17.")
    ],
    task: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Show this task; default: a failed or running one, else the last; of a gang the"
            " first. With -f: all.",
        ),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show this run of it; default: the last.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "-f",
            "--follow",
            help="Follow the output until the job, or the task, ends: of several tasks each line"
            " begins with the number of its task.",
        ),
    ] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show the output of a task, or follow that of all tasks of a job."""
    settings = settle(state, fmt)
    job, named = job_and_task(target)
    if named is not None and task not in (None, named):
        problem = Problem(path="--task", problem=f"{target} names another task", hint="name one")
        raise SpecError([problem], code="usage")
    task = named if task is None else task
    with settings.client() as client:
        if follow and task is None and attempt is None and client.job(job)["tasks"]["total"] > 1:
            _follow_all(client, job, settings)
            return
        chosen, count = following.shown_task(client, job, task)
        if not follow:
            following.need_output(job, chosen)
        if count > 1 and not settings.as_json:
            output.print_note(f"task {chosen['ordinal']} of {count}; see others with --task")
        run = attempt or max(1, chosen["attempts"])
        facts = {"job": job, "task": chosen["ordinal"], "attempt": run}
        if follow:
            only = attempt is not None
            pieces = following.followed(client, job, chosen["ordinal"], first=run, only=only)
            _print_followed(following.paused(pieces), facts, settings)
            return
        written = following.written(client, job, chosen["ordinal"], run)
        if settings.as_json:
            output.print_json_line({**facts, "text": "".join(written)})
            return
        write = writer()
        for text in written:
            write(text)


def _follow_all(client: Client, job: str, settings: ProgramSettings) -> None:
    """Print the lines of all tasks, each after the number of its task, until the job ends."""
    labelled = LabelledLines(writer())
    try:
        for task, run, text in following.all_followed(client, job):
            if settings.as_json:
                facts = {"job": job, "task": task, "attempt": run, "text": text}
                output.print_json_line(facts)
            else:
                labelled.write(task, text)
    finally:
        labelled.end()


def _print_followed(
    pieces: Iterator[tuple[int, str]], facts: dict[str, Any], settings: ProgramSettings
) -> None:
    write = writer()
    for run, text in pieces:
        if settings.as_json:
            output.print_json_line({**facts, "attempt": run, "text": text})
        else:
            write(text)


def writer(stream: TextIO | None = None) -> Callable[[str], None]:
    """Return a function that writes pieces of a log: unchanged, but escaped on a terminal.

    They go to stdout, or to `stream`.

    On a terminal any of the usual line ends ends a line, so that a progress bar redrawn in place
    becomes lines.
    """
    lines = io.IncrementalNewlineDecoder(None, translate=True)

    def write(text: str) -> None:
        if (stream or sys.stdout).isatty():
            text = visible(lines.decode(text), lines=True)
        output.write(text, stream)
        output.flush(stream)

    return write


class LabelledLines:
    """Writes whole lines of several tasks, each after the number of its task."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._begun = write, dict[int, str]()

    def write(self, ordinal: int, text: str) -> None:
        """Write the lines of a task that are complete, and of an endless one what is there."""
        *lines, rest = (self._begun.pop(ordinal, "") + text).split("\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        if rest:
            self._begun[ordinal] = rest
        for line in lines:
            self._write(f"{ordinal}: {line}\n")

    def end(self) -> None:
        """Write the last lines, which have no end."""
        for ordinal, rest in self._begun.items():
            self._write(f"{ordinal}: {rest}\n")
        self._begun.clear()
