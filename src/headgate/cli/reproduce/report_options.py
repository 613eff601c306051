"""The verbs that make experiments: their common options and checks, and what each of them does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.common import output
from headgate.cli.common.errors import OUTSIDE
from headgate.cli.common.settings import Format, settle

if TYPE_CHECKING:
    from headgate.experiments.frame.experiment import Experiment
    from headgate.experiments.frame.paper import Paper
    from headgate.experiments.frame.report import Report

F = TypeVar("F")

Wrong = tuple[str, str, str]
"""An option, what is wrong with its value, and a hint."""

OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where the report goes.")]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="Processes.", show_default="one for each CPU")
]
SeedsOption = Annotated[int, typer.Option(metavar="N", help="How many seeds: 1 to N.")]
PoliciesOption = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Which policies.", show_default="those of the paper"),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 when a claim does not hold.")
]

_MOST_SEEDS = 20


def reproduce(
    paper: Paper,
    prepare: Callable[[], Experiment[F]],
    *,
    out: Path,
    fmt: Format | None,
    workers: int | None = None,
    strict: bool = False,
    wrong: Sequence[Wrong] = (),
) -> None:
    """Make the experiment that `prepare` returns, write its report to `out`, and print it.

    Raises SpecError `usage` with all invalid options, those in `wrong` first; then what `prepare`
    raises; then WorldError `cannot_write`, before the runs. Ends the program with 1 when it is
    `strict` and a claim does not hold.
    """
    from headgate.experiments.frame.experiment import Runner
    from headgate.experiments.frame.report import write

    as_json = settle(None, fmt).as_json
    _reject([*wrong, *_invalid_workers(workers), *_invalid_directory(out, paper)])
    experiment = prepare()
    _make(out)
    with _counting(experiment, as_json=as_json) as advance:
        note: Callable[[str], None] = (lambda _: None) if as_json else output.print_note
        runner = Runner(workers=workers or len(os.sched_getaffinity(0)), advance=advance, note=note)
        report = experiment.report(experiment.measure(runner))
    with _writing(out):
        page = write(out, report)
    if as_json:
        output.print_json({**report.as_json(), "report": str(page)})
    else:
        _show(report)
        output.print_text("", f"{report.called}: {page}")
    if strict and report.fails:
        raise typer.Exit(OUTSIDE)


def names(text: str | None) -> list[str] | None:
    """Return the names in a value such as `A, B`."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _show(report: Report) -> None:
    """Print the tables, then the claims and how many hold."""
    from headgate.experiments.frame.claims import summary
    from headgate.experiments.frame.report import Table

    for part in report.shown:
        if isinstance(part, Table):
            if part.title:
                output.print_text("", part.title)
            output.print_table(*part.lines())
        else:
            output.print_text(*part)
    if report.claims is None:
        return
    output.print_text("", report.claims.title)
    for row in report.claims.rows:
        numbers = {"published": row.published, report.claims.ours: row.ours}
        output.print_wrapped(output.verdict(row.holds, row.claim, **numbers))
    if report.claims.counted:
        output.print_text("", summary(report.claims.rows))


# --- options -------------------------------------------------------------------------------------


def invalid_seeds(seeds: int) -> list[Wrong]:
    """Return what is wrong with `--seeds`."""
    if 1 <= seeds <= _MOST_SEEDS:
        return []
    return [("--seeds", f"must be from 1 to {_MOST_SEEDS}, not {seeds}", "")]


def _invalid_workers(workers: int | None) -> list[Wrong]:
    """Return what is wrong with `--workers`."""
    if workers is None or workers >= 1:
        return []
    return [("--workers", f"must be 1 or more, not {workers}", "")]


def _reject(wrong: Sequence[Wrong]) -> None:
    """Raise SpecError `usage` with all invalid options, if there are any."""
    if wrong:
        problems = [Problem(path=path, problem=text, hint=hint) for path, text, hint in wrong]
        raise SpecError(problems, code="usage")


def _invalid_directory(out: Path, paper: Paper) -> list[Wrong]:
    """Return what is wrong with `--out`: a file, or a directory of files but no earlier report."""
    from headgate.reports.pages import is_ours

    if out.exists() and not out.is_dir():
        return [("--out", f"{out} is not a directory", "name a directory for the report")]
    ours = any(is_ours(out / page, paper.command) for page in paper.pages)
    if out.is_dir() and any(out.iterdir()) and not ours:
        hint = "name a new or empty directory, or that of an earlier report"
        return [("--out", f"{out} contains other files, which could be overwritten", hint)]
    return []


def _make(out: Path) -> None:
    """Create the directory, or raise WorldError `cannot_write` before the runs."""
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Raise WorldError `cannot_write` where a report cannot be written."""
    try:
        yield
    except OSError as error:
        raise output.cannot_write(out, error) from error


@contextmanager
def _counting(experiment: Experiment[Any], *, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Yield what is called, with a description, after each run; shows progress.

    Nothing is shown where no runs are planned.
    """
    from rich import progress

    if not experiment.plan:
        yield lambda description: None
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with output.progress(*columns, as_json=as_json) as bar:
        task = bar.add_task(experiment.doing, total=len(experiment.plan))
        yield lambda description: bar.update(task, advance=1, description=description)
