"""`headgate reproduce closed-partition`: closed-minimum placement against sequential."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import output, report_options
from headgate.cli.errors import OUTSIDE
from headgate.cli.settings import FormatOption, settle

if TYPE_CHECKING:
    from headgate.experiments.closed_partition.tables import Results
    from headgate.experiments.frame.claims import Verdict


def closed_partition(
    seeds: report_options.SeedsOption = 3,
    out: report_options.OutOption = Path("closed-partition-report"),
    workers: report_options.WorkersOption = None,
    strict: report_options.StrictOption = False,
    live: Annotated[
        bool, typer.Option("--live", help="Run MPI jobs on shaped links instead; as root.")
    ] = False,
    mpi_python: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --live: a Python that has mpi4py."),
    ] = None,
    large: Annotated[
        bool, typer.Option("--large", help="Simulate 1,024 to 16,384 nodes instead.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Simulate recorded jobs in this directory instead."),
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Simulate the closed-minimum paper's experiment.

    Writes a report on its claims.
    """
    as_json = settle(None, fmt).as_json
    modes = {"--live": live, "--large": large, "--traces": traces is not None}
    _check(seeds, workers, out, [name for name, on in modes.items() if on], mpi_python)
    workers = workers or report_options.cpus()
    if live:
        found = _live(mpi_python, out, as_json=as_json)
    elif large:
        found = _large(workers, out, as_json=as_json)
    elif traces is not None:
        found = _traces(traces, workers, out, as_json=as_json)
    else:
        found = _published(range(1, seeds + 1), workers, out, as_json=as_json)
    if as_json:
        output.print_json(found)
    else:
        output.print_text("", f"The report: {found['report']}")
    if strict and any(shape["holds"] is False for shape in found["shapes"]):
        raise typer.Exit(OUTSIDE)


def _published(seeds: Sequence[int], workers: int, out: Path, *, as_json: bool) -> dict[str, Any]:
    from headgate.experiments.closed_partition import report, tables
    from headgate.experiments.closed_partition.claims import CLAIMS
    from headgate.experiments.frame import claims

    report_options.make(out)
    results = _run(seeds, workers, as_json=as_json)
    verdicts = claims.judge(CLAIMS, results)
    with report_options.writing(out):
        report.write(out, results, verdicts)
    if not as_json:
        _show(results, verdicts)
    return {
        "seeds": list(results.seeds),
        "tables": tables.as_json(results),
        "shapes": claims.as_json(verdicts),
        "report": str(out / report.PAGE),
    }


def _live(mpi_python: Path | None, out: Path, *, as_json: bool) -> dict[str, Any]:
    from headgate.cli.closed_partition_live import compare, need_mpi
    from headgate.experiments.closed_partition import live, pages

    mpirun, python = need_mpi(mpi_python)
    report_options.make(out)
    show_progress = (lambda _: None) if as_json else output.print_note
    pairs = compare(mpirun, python, show_progress=show_progress)
    words = (
        f"Seconds of a step; racks of four nodes, uplinks of {live.UPLINK_MBIT_PER_S} Mbit/s. The "
        "first run of each pattern calibrates what a step takes beside its messages."
    )
    return _finish(
        out / pages.LIVE,
        "MPI jobs on shaped links, beside the simulator",
        words,
        [asdict(check) for check in live.judge(pairs)],
        {"live": live.rows(pairs)},
        as_json=as_json,
    )


def _large(workers: int, out: Path, *, as_json: bool) -> dict[str, Any]:
    from headgate.experiments.closed_partition import large, pages
    from headgate.experiments.frame import claims
    from headgate.experiments.frame.pool import run_all

    report_options.make(out)
    runs = large.plan()
    with report_options.counting("Simulating", len(runs), as_json=as_json) as advance:

        def step(run: large.LargeRun) -> None:
            advance(f"Simulated {run.shape} of {run.nodes:,} nodes, {run.placer}")

        rows = run_all(runs, large.measure, large.JOBS, workers=workers, step=step)
    verdicts = claims.judge(large.claims(rows), rows)
    return _finish(
        out / pages.LARGE,
        "Large machines under load",
        "Means over the jobs after each machine was filled; times in seconds, diameters in hops.",
        claims.as_json(verdicts),
        large.tables(rows),
        as_json=as_json,
    )


def _traces(directory: Path, workers: int, out: Path, *, as_json: bool) -> dict[str, Any]:
    from headgate.app import POLICIES
    from headgate.experiments.closed_partition import pages, traces
    from headgate.experiments.frame import claims
    from headgate.experiments.frame.pool import run_all

    runs = traces.plan(directory)
    report_options.make(out)
    with report_options.counting("Simulating", len(runs), as_json=as_json) as advance:

        def step(run: traces.TraceRun) -> None:
            advance(f"Simulated {run.recorded.name}: {run.contender.name}")

        rows = run_all(runs, traces.measure, dict(POLICIES), workers=workers, step=step)
    verdicts = claims.judge(traces.claims(rows), rows)
    return _finish(
        out / pages.TRACES,
        "Recorded jobs on a tree of GPUs",
        "Times in seconds, diameters in hops; fragmentation: idle GPUs on nodes partly in use, "
        "relative to all GPUs, in the mean over time.",
        claims.as_json(verdicts),
        traces.tables(rows),
        as_json=as_json,
    )


def _finish(
    page: Path,
    title: str,
    words: str,
    checks: list[dict[str, Any]],
    tables: dict[str, list[dict[str, Any]]],
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Write a page, print its tables unless as JSON, and return the document."""
    from headgate.experiments.closed_partition import pages

    with report_options.writing(page.parent):
        pages.write(page, title, words, checks, tables)
    if not as_json:
        for name, rows in tables.items():
            output.print_text("", name)
            head = [column.replace("_", " ").upper() for column in rows[0]]
            output.print_table(head, ([pages.text_of(v) for v in r.values()] for r in rows))
        output.print_text("", "Checks")
        for check in checks:
            ours = pages.numbers(check["ours"])
            output.print_wrapped(output.verdict(check["holds"], check["claim"], measured=ours))
    named = [{"name": name, "rows": rows} for name, rows in tables.items()]
    return {"tables": named, "shapes": checks, "report": str(page)}


def _check(
    seeds: int,
    workers: int | None,
    out: Path,
    modes: Sequence[str],
    mpi_python: Path | None,
) -> None:
    """Raise SpecError `usage` with all invalid options, and for a directory of other files."""
    from headgate.experiments.closed_partition import COMMAND, pages, report

    wrong: list[report_options.Wrong] = []
    wrong += report_options.invalid_seeds(seeds)
    wrong += report_options.invalid_workers(workers)
    alone = "is an experiment of its own"
    wrong += [(mode, alone, f"run it without {modes[0]}") for mode in modes[1:]]
    if mpi_python is not None and "--live" not in modes:
        wrong.append(("--mpi-python", "requires --live", ""))
    known = (report.PAGE, pages.LIVE, pages.LARGE, pages.TRACES)
    wrong += report_options.invalid_directory(out, known, COMMAND)
    report_options.reject(wrong)


def _run(seeds: Sequence[int], workers: int, *, as_json: bool) -> Results:
    from headgate.experiments.closed_partition import runs
    from headgate.experiments.closed_partition.tables import gather
    from headgate.experiments.closed_partition.training import trainings
    from headgate.experiments.frame.pool import run_all

    planned = runs.plan(seeds)
    with report_options.counting(
        "Simulating", len(runs.VARIANTS) + len(planned), as_json=as_json
    ) as advance:

        def calibrated(variant: runs.Variant) -> None:
            advance(f"Calibrated: {variant.name}")

        def simulated(run: runs.Run) -> None:
            advance(f"Simulated {run.size.name}, {run.placer}, seed {run.seed}")

        splits = run_all(runs.VARIANTS, runs.calibrate, runs.JOBS, workers=workers, step=calibrated)
        rows = run_all(planned, runs.measure, splits, workers=workers, step=simulated)
    return gather(rows, seeds, splits, trainings())


# --- tables --------------------------------------------------------------------------------------


def _show(results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    from headgate.experiments.closed_partition.kernels import SIZES, published_mean_s
    from headgate.experiments.closed_partition.runs import PLACERS

    head = ("PLACEMENT", "MEAN", "SAVED", "WAIT", "SLOWDOWN", "DIAMETER", "USED", "SHARED")
    for size in SIZES:
        published_s = published_mean_s(size)
        output.print_text("", f"{size.name}; published, sequential: {published_s:.3f} s")
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
    from headgate.experiments.frame.claims import numbers_text, summary

    output.print_text("", "Claims")
    for v in verdicts:
        published = numbers_text(v.claim.published, v.claim.unit)
        measured = numbers_text(v.ours, v.claim.unit)
        output.print_wrapped(
            output.verdict(v.holds, v.claim.text, published=published, measured=measured)
        )
    output.print_text("", summary(verdicts))
