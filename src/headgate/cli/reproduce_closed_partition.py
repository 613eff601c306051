"""`headgate reproduce closed-partition`: closed-minimum placement against sequential."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli import output, report_directory
from headgate.cli.errors import OUTSIDE
from headgate.cli.settings import FormatOption, settle

if TYPE_CHECKING:
    from headgate.experiments.claims import Verdict
    from headgate.experiments.closed_partition.tables import Results

_MOST_SEEDS = 20


def closed_partition(
    seeds: Annotated[int, typer.Option(metavar="N", help="How many seeds: 1 to N.")] = 3,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the report goes.")] = Path(
        "closed-partition-report"
    ),
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes.", show_default="one for each CPU"),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a claim does not hold.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Run the closed-minimum paper's experiment in the simulator, and report on its claims."""
    from headgate.experiments import claims
    from headgate.experiments.closed_partition import report, tables
    from headgate.experiments.closed_partition.claims import CLAIMS

    as_json = settle(None, fmt).as_json
    _check(seeds, workers, out)
    report_directory.make(out)
    results = _run(range(1, seeds + 1), workers or report_directory.cpus(), as_json=as_json)
    verdicts = claims.judge(CLAIMS, results)
    with report_directory.writing(out):
        report.write(out, results, verdicts)
    page = out / report.PAGE
    if as_json:
        output.print_json(
            {
                "seeds": list(results.seeds),
                "tables": tables.as_json(results),
                "shapes": claims.as_json(verdicts),
                "report": str(page),
            }
        )
    else:
        _show(results, verdicts)
        output.print_text(f"\nThe report, with charts: {page}")
    if strict and any(verdict.holds is False for verdict in verdicts):
        raise typer.Exit(OUTSIDE)


def _check(seeds: int, workers: int | None, out: Path) -> None:
    """Raise SpecError `usage` with all invalid options, and for a directory of other files."""
    from headgate.experiments.closed_partition import COMMAND, report

    wrong: list[report_directory.Wrong] = []
    if not 1 <= seeds <= _MOST_SEEDS:
        wrong.append(("--seeds", f"must be from 1 to {_MOST_SEEDS}, not {seeds}", ""))
    if workers is not None and workers < 1:
        wrong.append(("--workers", f"must be 1 or more, not {workers}", ""))
    wrong += report_directory.invalid_directory(out, (report.PAGE,), COMMAND)
    if wrong:
        raise SpecError(
            [Problem(path=path, problem=problem, hint=hint) for path, problem, hint in wrong],
            code="usage",
        )


def _run(seeds: Sequence[int], workers: int, *, as_json: bool) -> Results:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from headgate.experiments.closed_partition.runs import (
        JOBS,
        VARIANTS,
        Run,
        Variant,
        calibrate,
        measure,
        plan,
    )
    from headgate.experiments.closed_partition.tables import gather
    from headgate.experiments.closed_partition.training import trainings
    from headgate.experiments.pool import run_all

    runs = plan(seeds)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with output.progress(*columns, as_json=as_json) as bar:
        task = bar.add_task("Calibrating", total=len(VARIANTS) + len(runs))

        def calibrated(variant: Variant) -> None:
            bar.update(task, advance=1, description=f"Calibrated: {variant.name}")

        def simulated(run: Run) -> None:
            description = f"Simulated {run.size.name}, {run.placer}, seed {run.seed}"
            bar.update(task, advance=1, description=description)

        splits = run_all(VARIANTS, calibrate, JOBS, workers=workers, step=calibrated)
        rows = run_all(runs, measure, splits, workers=workers, step=simulated)
    return gather(rows, seeds, splits, trainings())


# --- tables --------------------------------------------------------------------------------------


def _show(results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    from headgate.experiments.closed_partition.kernels import SIZES, published_mean_s
    from headgate.experiments.closed_partition.runs import PLACERS

    head = ("PLACEMENT", "MEAN", "SAVED", "WAIT", "SLOWDOWN", "DIAMETER", "USED", "SHARED")
    for size in SIZES:
        published_s = published_mean_s(size)
        output.print_text(f"\n{size.name}; published, sequential: {published_s:.3f} s")
        rows = []
        for placer in PLACERS:
            row = results.row(size, placer)
            rows.append(
                [
                    placer,
                    f"{results.mean_s(size, placer):.3f} s",
                    f"{results.gain(size, placer):.1%}",
                    f"{row.wait_s:.1f} s",
                    f"{row.slowdown:.3f}",
                    None if row.diameter is None else f"{row.diameter:.2f}",
                    f"{row.utilisation:.0%}",
                    f"{row.shared_links:.2f}",
                ]
            )
        output.print_table(head, rows)
    show_verdicts(verdicts)


def show_verdicts(verdicts: Sequence[Verdict[Results]]) -> None:
    """Print the claims and how many hold."""
    from headgate.experiments.claims import numbers_text, summary

    output.print_text("\nClaims")
    for v in verdicts:
        published = numbers_text(v.claim.published, v.claim.unit)
        measured = numbers_text(v.ours, v.claim.unit)
        output.print_wrapped(
            output.verdict(v.holds, v.claim.text, published=published, measured=measured)
        )
    output.print_text(f"\n{summary(verdicts)}")
