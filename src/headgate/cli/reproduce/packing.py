"""`headgate reproduce packing`: policies on recorded pods, beside what was published of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options
from headgate.cli.simulate.pack import NodesOption, PodsOption, files


def packing(
    pods: PodsOption = None,
    nodes: NodesOption = None,
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Which policies.", show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many orders of the pods.")] = 10,
    out: report_options.OutOption = Path("packing-report"),
    workers: report_options.WorkersOption = None,
    fmt: FormatOption = None,
) -> None:
    """Pack recorded pods under several policies.

    Writes a report of their figures, beside the published ones if the pods and nodes are those.
    """
    from headgate.experiments.packing import PAPER, report, runs
    from headgate.experiments.packing.reading import read

    where = files(pods, nodes)
    chosen = report_options.names(policies) or runs.POLICIES
    for name in chosen:
        runs.check(name, "--policies")
    wrong = [] if seeds >= 1 else [("--seeds", f"must be 1 or more, not {seeds}", "")]
    report_options.reproduce(
        PAPER,
        lambda: report.experiment(chosen, seeds, read(*where), where),
        out=out,
        fmt=fmt,
        workers=workers,
        wrong=wrong,
    )
