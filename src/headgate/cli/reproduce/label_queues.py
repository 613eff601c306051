"""`headgate reproduce label-queues`: elastic jobs in labelled queues, beside what was published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.app import POLICIES
from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options

if TYPE_CHECKING:
    from headgate.experiments.frame.experiment import Experiment
    from headgate.experiments.label_queues.results import LabelResults


def label_queues(
    seeds: report_options.SeedsOption = 8,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller experiments, as a check.")
    ] = False,
    out: report_options.OutOption = Path("label-queues-report"),
    workers: report_options.WorkersOption = None,
    strict: report_options.StrictOption = False,
    fmt: FormatOption = None,
) -> None:
    """Share queues among elastic jobs in simulation.

    CPU and GPU jobs on four nodes, beside queues with hard parts. Writes a report on the claims of
    the paper.
    """
    from headgate.experiments.label_queues import PAPER, report
    from headgate.experiments.label_queues.runs import FULL, QUICK

    def prepare() -> Experiment[LabelResults]:
        return report.experiment(QUICK if quick else FULL, range(1, seeds + 1), POLICIES)

    wrong = report_options.invalid_seeds(seeds)
    report_options.reproduce(
        PAPER, prepare, out=out, fmt=fmt, workers=workers, strict=strict, wrong=wrong
    )
