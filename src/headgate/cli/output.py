"""Output of verbs: tables for people, JSON for programs; and confirmations."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import visible, visible_values
from headgate.base.units import format_seconds
from headgate.cli.errors import OUTSIDE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

_REASON = re.compile(r"[A-Z][A-Za-z]*\((.*)\)", re.DOTALL)
_WIDE = 10_000  # columns; in a file or a pipe, lines are not wrapped


class PipeClosed(Exception):
    """The reader of stdout has closed it: the program ends."""


def stdout() -> Console:
    """Return the console for results."""
    from rich.console import Console  # slow: not for verbs that print no table

    wide = None if sys.stdout.isatty() else _WIDE
    return Console(file=sys.stdout, width=wide, highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Return the console for progress."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def progress(*columns: ProgressColumn, as_json: bool) -> Progress:
    """Return a progress bar on stderr, shown only on a terminal."""
    from rich.progress import Progress

    hidden = as_json or not sys.stderr.isatty()
    return Progress(*columns, console=stderr(), disable=hidden, transient=True)


def write(text: str, stream: TextIO | None = None) -> None:
    """Write text to stdout, or `stream`, unchanged; WorldError `cannot_write` when that fails."""
    with _writing():
        (stream or sys.stdout).write(text)


def flush(stream: TextIO | None = None) -> None:
    """Flush stdout, or `stream`; errors as of `write`."""
    with _writing():
        (stream or sys.stdout).flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosed from error  # typer would end the program with 1
    except OSError as error:
        raise cannot_write("stdout", error) from error


def cannot_write(place: Path | str, error: OSError) -> WorldError:
    """Return the error `cannot_write` of a file or a directory."""
    problem = Problem(path=str(place), problem=f"cannot be written: {error.strerror or error}")
    return WorldError([problem], code="cannot_write")


def print_text(text: str) -> None:
    """Print text on stdout, control characters escaped."""
    write(f"{visible(text, lines=True)}\n")


def print_note(text: str) -> None:
    """Print a line on stderr, control characters escaped."""
    print(visible(text, lines=True), file=sys.stderr)


def warn(problem: Problem) -> None:
    """Print a warning on stderr."""
    print_note(f"warning: {problem.path}: {problem.problem}\n  {problem.hint}")


def print_json(value: Any) -> None:
    """Print a value as one indented JSON document; see `visible_values`."""
    shown = visible_values(value)
    write(f"{json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False)}\n")


def print_result(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result of a verb: its facts as JSON, or the text."""
    if as_json:
        print_json(facts)
    else:
        print_text(text)


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON in ASCII; its texts are not changed."""
    write(f"{json.dumps(value, allow_nan=False)}\n")
    flush()


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a plain table; None is shown as `-`, columns of numbers are right-aligned."""
    from rich.table import Table

    cells = [["-" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column, heading in enumerate(headings):
        numbers = [row[column] for row in cells if row[column] != "-"]
        right = bool(numbers) and all(n.replace("/", "").isdigit() for n in numbers)
        made.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in cells:
        made.add_row(*row)
    return made


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table without trailing blanks."""
    console = stdout()
    with _writing(), console.capture() as capture:  # rich flushes what was written before
        console.print(table(headings, rows))
    for line in capture.get().splitlines():
        write(f"{line.rstrip()}\n")


def sentence(reason: str | None) -> str | None:
    """Return the text of a reason without its code: `BehindHead(behind a; ...)` is `behind a; ...`.

    Codes are for programs, the text for people.
    """
    match = None if reason is None else _REASON.fullmatch(reason)
    return reason if match is None else match[1]


def counted(number: int, thing: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str | None:
    """Return a duration for a cell."""
    return None if seconds is None else format_seconds(seconds)


def confirm(question: str, *, yes: bool) -> None:
    """Request a confirmation; end the program with code 1 when the user declines.

    Raises SpecError `needs_confirmation` without `yes` and without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        problem = Problem(path="--yes", problem=question, hint="confirm with -y")
        raise SpecError([problem], code="needs_confirmation")
    if not typer.confirm(visible(question), err=True):
        print_note("nothing was changed")
        raise typer.Exit(OUTSIDE)
