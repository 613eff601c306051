"""`headgate reproduce closed-partition`: closed-minimum placement against sequential."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options

if TYPE_CHECKING:
    from headgate.experiments.closed_partition.live import MeasuredCase
    from headgate.experiments.frame.experiment import Experiment


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
    from headgate.experiments.closed_partition import PAPER, report
    from headgate.experiments.closed_partition import large as machines
    from headgate.experiments.closed_partition import traces as recorded

    modes = {"--live": live, "--large": large, "--traces": traces is not None}
    chosen = [name for name, on in modes.items() if on]
    wrong = report_options.invalid_seeds(seeds)
    alone = "is an experiment of its own"
    wrong += [(mode, alone, f"run it without {chosen[0]}") for mode in chosen[1:]]
    if mpi_python is not None and not live:
        wrong.append(("--mpi-python", "requires --live", ""))

    def prepare() -> Experiment[Any]:
        if live:
            return _live(mpi_python)
        if large:
            return machines.experiment()
        if traces is not None:
            return recorded.experiment(traces, POLICIES)
        return report.experiment(range(1, seeds + 1))

    report_options.reproduce(
        PAPER, prepare, out=out, fmt=fmt, workers=workers, strict=strict, wrong=wrong
    )


def _live(mpi_python: Path | None) -> Experiment[tuple[MeasuredCase, ...]]:
    """Return what is measured live; see `headgate.experiments.closed_partition.live`."""
    from headgate.cli.reproduce.closed_partition_live import compare, need_mpi
    from headgate.experiments.closed_partition.live import report
    from headgate.experiments.frame.experiment import Experiment

    mpirun, python = need_mpi(mpi_python)
    return Experiment(
        measure=lambda runner: compare(mpirun, python, show_progress=runner.note), report=report
    )
