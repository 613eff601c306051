"""What the verbs that write reports have in common: options and their checks, progress."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.common import output

Wrong = tuple[str, str, str]
"""An option, what is wrong with its value, and a hint."""

OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where the report goes.")]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="Processes.", show_default="one for each CPU")
]
SeedsOption = Annotated[int, typer.Option(metavar="N", help="How many seeds: 1 to N.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 when a claim does not hold.")
]

_MOST_SEEDS = 20


def invalid_seeds(seeds: int) -> list[Wrong]:
    """Return what is wrong with `--seeds`."""
    if 1 <= seeds <= _MOST_SEEDS:
        return []
    return [("--seeds", f"must be from 1 to {_MOST_SEEDS}, not {seeds}", "")]


def invalid_workers(workers: int | None) -> list[Wrong]:
    """Return what is wrong with `--workers`."""
    if workers is None or workers >= 1:
        return []
    return [("--workers", f"must be 1 or more, not {workers}", "")]


def reject(wrong: Sequence[Wrong]) -> None:
    """Raise SpecError `usage` with all invalid options, if there are any."""
    if wrong:
        problems = [Problem(path=path, problem=text, hint=hint) for path, text, hint in wrong]
        raise SpecError(problems, code="usage")


def invalid_directory(out: Path, pages: Sequence[str], command: str) -> list[Wrong]:
    """Return what is wrong with `--out`: a file, or a directory of files but no earlier report."""
    from headgate.reports.pages import is_ours

    if out.exists() and not out.is_dir():
        return [("--out", f"{out} is not a directory", "name a directory for the report")]
    if out.is_dir() and any(out.iterdir()) and not any(is_ours(out / p, command) for p in pages):
        hint = "name a new or empty directory, or that of an earlier report"
        return [("--out", f"{out} contains other files, which could be overwritten", hint)]
    return []


def make(out: Path) -> None:
    """Create the directory, or raise WorldError `cannot_write` before the runs."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Raise WorldError `cannot_write` where a report cannot be written."""
    try:
        yield
    except OSError as error:
        raise output.cannot_write(out, error) from error


@contextmanager
def counting(what: str, total: int, *, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Yield what is called, with a description, after each of `total` steps; shows progress."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with output.progress(*columns, as_json=as_json) as bar:
        task = bar.add_task(what, total=total)
        yield lambda description: bar.update(task, advance=1, description=description)


def cpus() -> int:
    """Return the number of processes of a report by default: the CPUs of this one."""
    return len(os.sched_getaffinity(0))
