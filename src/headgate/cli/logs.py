"""The verb logs: the output of a task, also while it runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TextIO

import typer

from headgate.api import following
from headgate.base.text import visible
from headgate.cli import output
from headgate.cli.jobs import JobArgument
from headgate.cli.settings import FormatOption, Settings, StateOption, settle


def logs(
    job: JobArgument,
    task: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Show this task; default: a failed or running one, else the last;"
            " of a gang the first.",
        ),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show this run of it; default: the last.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Follow the output until the task ends.")
    ] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show the output of a task."""
    settings = settle(state, fmt)
    with settings.client() as client:
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


def _print_followed(
    pieces: Iterator[tuple[int, str]], facts: dict[str, Any], settings: Settings
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
