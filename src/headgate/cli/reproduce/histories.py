"""`headgate reproduce histories`: policies on recorded job histories, and Headgate's own goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.app import POLICIES
from headgate.base.errors import Problem, SpecError
from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options

if TYPE_CHECKING:
    from headgate.experiments.frame.experiment import Experiment
    from headgate.experiments.histories.histories import History
    from headgate.experiments.histories.report import HistoryResults
    from headgate.experiments.histories.runs import Which

_MOST_GPUS, _MOST_SECONDS = 1_000_000, 1e9


def histories(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Traces; else the published ones in --traces."),
    ] = None,
    by_vc: Annotated[
        bool, typer.Option("--by-vc", help="Each vc of the files is a history of its own.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="HEADGATE_TRACES", help="Where published traces are."),
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="goal|near|all|N,...", help="Which sizes of the cluster.")
    ] = "near",
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Which policies.", show_default="those of the goals"),
    ] = None,
    patience: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS,...",
            help="Also with these values of patience: a curve, with learnt run times.",
        ),
    ] = None,
    out: report_options.OutOption = Path("histories-report"),
    workers: report_options.WorkersOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a goal is missed.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Simulate job histories under several policies.

    Writes a report on how Headgate meets its goals.
    """
    from headgate.experiments.histories import PAPER, report, runs

    on, seconds = _sizes(gpus), _seconds(patience)

    def prepare() -> Experiment[HistoryResults]:
        assert on is not None, "else it is among what is wrong"
        assert seconds is not None, "likewise"
        chosen = runs.choose(POLICIES, report_options.names(policies), seconds)
        read = _read(files or [], traces, by_vc=by_vc)
        return report.experiment(read, chosen, on, POLICIES)

    wrong = [
        *_wrong_sources(files, traces, by_vc=by_vc),
        *_wrong_numbers(gpus, on, patience, seconds),
    ]
    report_options.reproduce(
        PAPER, prepare, out=out, fmt=fmt, workers=workers, strict=strict, wrong=wrong
    )


def _wrong_sources(
    files: Sequence[Path] | None, traces: Path | None, *, by_vc: bool
) -> Iterator[report_options.Wrong]:
    """Yield what is wrong with the options that name histories."""
    if not files and traces is None:
        hint = "name trace files, or the directory of the published ones: docs/traces.md"
        yield "FILE", "give trace files, --traces DIR or HEADGATE_TRACES", hint
    if by_vc and not files:
        yield "--by-vc", "requires FILE", "published traces are divided as they need"


def _wrong_numbers(
    gpus: str, on: object, patience: str | None, seconds: object
) -> Iterator[report_options.Wrong]:
    """Yield which of the lists of numbers are invalid: those that are None."""
    if on is None:
        text = f"must be goal, near, all, or numbers from 1 to {_MOST_GPUS}, not '{gpus}'"
        yield "--gpus", text, "for example --gpus 64,128"
    if seconds is None:
        text = f"must be numbers of seconds, from 0 to {_MOST_SECONDS:.0f}, not '{patience}'"
        yield "--patience", text, "for example --patience 0,3600,86400,1e9"


def _sizes(text: str) -> Which | Sequence[int] | None:
    """Return the sizes that `--gpus` names, None for an invalid value."""
    from headgate.experiments.histories.runs import Which

    if text in [*Which]:
        return Which(text)
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 7 for part in parts):
        return None
    numbers = [*dict.fromkeys(map(int, parts))]
    return numbers if all(1 <= number <= _MOST_GPUS for number in numbers) else None


def _seconds(text: str | None) -> Sequence[float] | None:
    """Return the values that `--patience` names, None for an invalid one."""
    try:
        values = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return values if all(0 <= value <= _MOST_SECONDS for value in values) else None


def _read(files: Sequence[Path], traces: Path | None, *, by_vc: bool) -> tuple[History, ...]:
    """Return the histories; raise SpecError for bad files, and for two with the same name."""
    from headgate.experiments.histories import histories as sources

    if files:
        found = sources.read(files, by_vc=by_vc)
    else:
        assert traces is not None, "else it is among what is wrong"
        found = sources.published(traces)
    if names := sources.repeated(found):
        hint = "histories are named for their files"
        problems = [
            Problem(path="FILE", problem=f"two histories are called {n}", hint=hint) for n in names
        ]
        raise SpecError(problems, code="usage")
    return found
