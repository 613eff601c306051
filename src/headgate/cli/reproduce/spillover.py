"""`headgate reproduce spillover`: balancers of small tasks, beside what was published of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options

if TYPE_CHECKING:
    from headgate.experiments.frame.experiment import Experiment
    from headgate.experiments.spillover.live import LiveResults


def spillover(
    seeds: report_options.SeedsOption = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller experiments, as a check.")
    ] = False,
    out: report_options.OutOption = Path("spillover-report"),
    workers: report_options.WorkersOption = None,
    strict: report_options.StrictOption = False,
    live: Annotated[
        bool, typer.Option("--live", help="Measure real nodes, beside Ray, instead.")
    ] = False,
    many: Annotated[
        bool, typer.Option("--many", help="With --live: also 100,000 calls in flight.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Balance small tasks over nodes in simulation.

    The nodes are alike or not. Writes a report on the claims of the paper.
    """
    from headgate.experiments.spillover import PAPER, report
    from headgate.experiments.spillover.runs import FULL, QUICK

    def prepare() -> Experiment[Any]:
        if live:
            return _live(many=many)
        return report.experiment(QUICK if quick else FULL, range(1, seeds + 1), POLICIES)

    wrong = report_options.invalid_seeds(seeds)
    report_options.reproduce(
        PAPER, prepare, out=out, fmt=fmt, workers=workers, strict=strict, wrong=wrong
    )


def _live(*, many: bool) -> Experiment[LiveResults]:
    """Return what is measured live; see `headgate.experiments.spillover.live`."""
    from headgate.cli.reproduce.spillover_live import run_live
    from headgate.experiments.frame.experiment import Experiment
    from headgate.experiments.spillover.live import LiveOptions
    from headgate.experiments.spillover.live_page import report

    in_flight = (*LiveOptions().in_flight, 100_000) if many else LiveOptions().in_flight
    options = LiveOptions(in_flight=in_flight)
    return Experiment(measure=lambda runner: run_live(options, runner.note), report=report)
