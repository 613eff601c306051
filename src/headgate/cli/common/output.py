"""Output of verbs: tables for people, JSON for programs; and confirmations."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

import typer

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import indented, visible, visible_values
from headgate.base.units import format_seconds
from headgate.cli.common import tables
from headgate.cli.common.errors import OUTSIDE
from headgate.cli.common.times import in_local_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

_REASON = re.compile(r"[A-Z][A-Za-z]*\((.*)\)", re.DOTALL)
_NARROW = 80  # columns of a terminal that does not know its width
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


def print_text(*lines: str) -> None:
    """Print lines on stdout, control characters escaped.

    What follows a line end inside one of them is indented: it may be the text of others, and must
    not look like a line of the program. Notes, warnings and results are printed so, too.
    """
    write("".join(f"{_line(line)}\n" for line in lines))


def print_note(*lines: str) -> None:
    """Print lines on stderr, as `print_text` does on stdout."""
    for line in lines:
        print(_line(line), file=sys.stderr)


def _line(text: str) -> str:
    return indented(visible(text, lines=True))


def warn(problem: Problem) -> None:
    """Print a warning on stderr."""
    print_note(f"warning: {problem.path}: {problem.problem}", f"  {problem.hint}")


def print_json(value: Any) -> None:
    """Print a value as one indented JSON document; see `visible_values`."""
    shown = visible_values(value)
    write(f"{json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False)}\n")


def print_result(facts: Mapping[str, Any], *lines: str, as_json: bool) -> None:
    """Print the result of a verb: its facts as JSON, or the lines."""
    if as_json:
        print_json(facts)
    else:
        print_text(*lines)


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON in ASCII; its texts are not changed."""
    write(f"{json.dumps(value, allow_nan=False)}\n")
    flush()


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    text: str | None = None,
    names: Sequence[str] = (),
) -> None:
    """Print a table with one line per row, cropped as of `tables.lines`.

    On a terminal it is as wide as that. In a file or a pipe only the column `text` is cropped.
    """
    cropped = names if sys.stdout.isatty() else ()
    for line in tables.lines(headings, rows, width=columns(), text=text, names=cropped):
        write(f"{line}\n")


def columns(stream: TextIO | None = None) -> int:
    """Return the width of the terminal; elsewhere `COLUMNS`, else 80.

    Where `stream` is given and is a terminal, that of this one.
    """
    if stream is not None and stream.isatty():
        return os.get_terminal_size(stream.fileno()).columns or _NARROW
    return get_terminal_size((80, 24)).columns


def print_facts(facts: Iterable[tuple[str, str | None]]) -> None:
    """Print lines `Name: value`, without those whose value is None; see `print_wrapped`."""
    for name, value in facts:
        if value is not None:
            print_wrapped(f"{name}: {value}")


def print_wrapped(text: str) -> None:
    """Print a line as `print_text` does; on a terminal it is wrapped between words."""
    first, newline, others = _line(text).partition("\n")
    if sys.stdout.isatty():
        first = tables.wrapped(first, columns())
    write(f"{first}{newline}{others}\n")


def sentence(reason: str | None) -> str | None:
    """Return the text of a reason without its code: `BehindHead(behind a; ...)` is `behind a; ...`.

    Codes are for programs, the text for people, with times in their time zone.
    """
    match = None if reason is None else _REASON.fullmatch(reason)
    text = reason if match is None else match[1]
    return None if text is None else in_local_time(text)


def verdict(holds: bool | None, claim: str, **numbers: str) -> str:
    """Return a claim with whether it holds (None: not run) and the numbers that have text."""
    word = {True: "yes", False: "NO", None: "-"}[holds]
    shown = "; ".join(f"{name} {text}" for name, text in numbers.items() if text)
    if holds is None:
        shown = f"not run; {shown}" if shown else "not run"
    return f"{word:<3}  {claim}" + (f" ({shown})" if shown else "")


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
