"""`headgate reproduce`: repeat published experiments, and compare the figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.cli.common.settings import FormatOption
from headgate.cli.reproduce import report_options

if TYPE_CHECKING:
    from headgate.experiments.flow.live import Comparison
    from headgate.experiments.frame.experiment import Experiment


def flow(
    seeds: report_options.SeedsOption = 5,
    parallel: Annotated[
        int, typer.Option("--parallel", "-k", metavar="N", help="Jobs in parallel.")
    ] = 6,
    policies: report_options.PoliciesOption = None,
    out: report_options.OutOption = Path("flow-report"),
    workers: report_options.WorkersOption = None,
    strict: report_options.StrictOption = False,
    live: Annotated[
        bool, typer.Option("--live", help="Compare real nodes with the simulator instead; as root.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Run the flow paper's experiments in the simulator.

    Writes a report on its claims. With --live, runs a smaller comparison on real nodes with shaped
    links, and reports the error of the simulator.
    """
    from headgate.experiments.flow import PAPER, report, runs
    from headgate.experiments.flow.jobs import JOB_KINDS

    names = report_options.names(policies)
    wrong = report_options.invalid_seeds(seeds)
    jobs = sum(len(kind.counts) for kind in JOB_KINDS) - 1
    if not 1 <= parallel <= jobs:
        hint = f"the experiment has {jobs} jobs; the paper runs 6 of them in parallel"
        wrong.append(("--parallel", f"must be from 1 to {jobs}, not {parallel}", hint))

    def prepare() -> Experiment[Any]:
        if live:
            return _live(names)
        chosen = runs.choose(POLICIES, names)
        every = range(1, seeds + 1)
        return report.experiment(chosen, every, parallel, POLICIES, time.perf_counter)

    report_options.reproduce(
        PAPER, prepare, out=out, fmt=fmt, workers=workers, strict=strict, wrong=wrong
    )


def _live(names: list[str] | None) -> Experiment[Comparison]:
    """Return what is compared live; see `headgate.experiments.flow.live`."""
    from headgate.cli.reproduce.flow_live import compare, need_network
    from headgate.experiments.flow.live import POLICIES as COMPARED
    from headgate.experiments.flow.live import UPLINKS_MBIT_PER_S
    from headgate.experiments.flow.live_page import report
    from headgate.experiments.flow.runs import choose
    from headgate.experiments.frame.experiment import Experiment

    chosen = choose(POLICIES, names or COMPARED)
    need_network()
    return Experiment(
        measure=lambda runner: compare(chosen, UPLINKS_MBIT_PER_S, show_progress=runner.note),
        report=report,
    )
