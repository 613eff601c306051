"""The verb logs: the output of a task, also while it runs."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.cli import output
from headgate.cli.jobs import JobArgument
from headgate.cli.settings import FormatOption, StateOption, settle

if TYPE_CHECKING:
    from headgate.api.client import Client

_PAUSE_S = 0.5
_ENDED = ("finished", "failed", "cancelled")


def logs(
    job: JobArgument,
    task: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Show this task; default: a failed or running one, else the last.",
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
        tasks = client.tasks(job) if task is None else [client.task(job, task)]
        chosen = _chosen(tasks)
        if not chosen["attempts"] and not follow:
            text = f"task {chosen['ordinal']} of {job} has not run yet"
            problem = Problem(path=job, problem=text, hint=f"headgate why {job}")
            raise SpecError([problem], code="not_finished")
        if len(tasks) > 1 and not settings.as_json:
            output.print_note(f"task {chosen['ordinal']} of {len(tasks)}; see others with --task")
        if follow:
            pieces = _follow(client, job, chosen, attempt)
            write = _writer()
            for run, text in pieces:
                if settings.as_json:
                    line = {"job": job, "task": chosen["ordinal"], "attempt": run, "text": text}
                    output.print_json_line(line)
                else:
                    write(text)
            return
        run = attempt or chosen["attempts"]
        written = _read(client, job, chosen["ordinal"], run)
        if settings.as_json:
            facts = {"job": job, "task": chosen["ordinal"], "attempt": run}
            output.print_json_line({**facts, "text": "".join(written)})
            return
        write = _writer()
        for text in written:
            write(text)


def _writer() -> Callable[[str], None]:
    """Return a function that writes pieces of a log: unchanged, but escaped on a terminal.

    On a terminal any of the usual line ends ends a line, so that a progress bar redrawn in place
    becomes lines.
    """
    lines = io.IncrementalNewlineDecoder(None, translate=True)

    def write(text: str) -> None:
        if sys.stdout.isatty():
            text = visible(lines.decode(text), lines=True)
        output.write(text)
        output.flush()

    return write


def _chosen(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first task that failed, else the first that runs, else the last that ran."""
    for state in ("failed", "running", "starting"):
        found = [t for t in tasks if t["state"] == state]
        if found:
            return found[0]
    ran = [t for t in tasks if t["attempts"]]
    return ran[-1] if ran else tasks[0]


def _read(client: Client, job: str, task: int, attempt: int) -> Iterator[str]:
    """Yield the present content of a run's log in pieces."""
    offset = 0
    while True:
        piece = client.log(job, task, attempt=attempt, offset=offset)
        if not piece["text"]:
            return
        yield piece["text"]
        offset = piece["next_offset"]


def _follow(
    client: Client, job: str, chosen: dict[str, Any], attempt: int | None
) -> Iterator[tuple[int, str]]:
    """Yield (attempt, text) while it is written: of one attempt, or of all from the current on."""
    task, run = chosen["ordinal"], attempt or max(1, chosen["attempts"])
    offset = 0
    while True:
        view = client.task(job, task)
        piece: dict[str, Any] = {"text": "", "ended": False, "next_offset": 0}
        if view["attempts"] >= run:
            piece = client.log(job, task, attempt=run, offset=offset)
            offset = piece["next_offset"]
        if piece["text"]:
            yield run, piece["text"]
            continue
        if piece["ended"] and view["attempts"] > run and attempt is None:
            run, offset = run + 1, 0  # the task runs again
        elif view["state"] in _ENDED or (piece["ended"] and attempt is not None):
            return
        else:
            time.sleep(_PAUSE_S)
