"""`headgate reproduce spillover`: balancers of small tasks, beside what was published of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.app import POLICIES
from headgate.cli import output, report_options
from headgate.cli.errors import OUTSIDE
from headgate.cli.settings import FormatOption, settle

if TYPE_CHECKING:
    from headgate.experiments.frame.claims import Verdict
    from headgate.experiments.spillover.results import Results
    from headgate.experiments.spillover.runs import Sizes


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
    from headgate.experiments.frame import claims
    from headgate.experiments.spillover import report, results
    from headgate.experiments.spillover.claims import CLAIMS
    from headgate.experiments.spillover.runs import FULL, QUICK

    as_json = settle(None, fmt).as_json
    _check(seeds, workers, out)
    report_options.make(out)
    if live:
        _live(out, many=many, strict=strict, as_json=as_json)
        return
    sizes = QUICK if quick else FULL
    found = _run(sizes, range(1, seeds + 1), workers or report_options.cpus(), as_json=as_json)
    verdicts = claims.judge(CLAIMS, found)
    with report_options.writing(out):
        report.write(out, found, verdicts)
    page = out / report.PAGE
    if as_json:
        output.print_json(
            {
                "seeds": list(found.seeds),
                "tables": results.as_json(found),
                "shapes": claims.as_json(verdicts),
                "report": str(page),
            }
        )
    else:
        _show(found, verdicts)
        output.print_text("", f"The report, with charts: {page}")
    if strict and any(verdict.holds is False for verdict in verdicts):
        raise typer.Exit(OUTSIDE)


def _live(out: Path, *, many: bool, strict: bool, as_json: bool) -> None:
    """Measure live; see `headgate.experiments.spillover.live`."""
    from headgate.cli.spillover_live import report
    from headgate.experiments.spillover.live import LiveOptions

    in_flight = (*LiveOptions().in_flight, 100_000) if many else LiveOptions().in_flight
    found = report(LiveOptions(in_flight=in_flight), out, as_json=as_json)
    if as_json:
        output.print_json(found)
    else:
        output.print_text("", f"The report: {found['report']}")
    if strict and any(shape["holds"] is False for shape in found["shapes"]):
        raise typer.Exit(OUTSIDE)


def _check(seeds: int, workers: int | None, out: Path) -> None:
    """Raise SpecError `usage` with all invalid options."""
    from headgate.experiments.spillover import COMMAND, live_page, report

    wrong = report_options.invalid_seeds(seeds)
    wrong += report_options.invalid_workers(workers)
    wrong += report_options.invalid_directory(out, (report.PAGE, live_page.PAGE), COMMAND)
    report_options.reject(wrong)


def _run(sizes: Sizes, seeds: Sequence[int], workers: int, *, as_json: bool) -> Results:
    from headgate.experiments.frame.pool import run_all
    from headgate.experiments.spillover.results import gather
    from headgate.experiments.spillover.runs import Run, measure, plan
    from headgate.experiments.spillover.scaling import measure_scaling

    runs = plan(sizes, seeds)
    with report_options.counting("Simulating", len(runs), as_json=as_json) as advance:

        def step(run: Run) -> None:
            advance(f"Simulated {run.experiment} {run.count:,}, {run.balancer}, seed {run.seed}")

        ended = run_all(runs, measure, dict(POLICIES), workers=workers, step=step)
        return gather(ended, seeds, measure_scaling(POLICIES))


def _show(results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    from headgate.experiments.frame.claims import numbers_text, summary
    from headgate.experiments.spillover.report import cells, cpu_cells, scaling_cells
    from headgate.experiments.spillover.results import TITLES
    from headgate.experiments.spillover.runs import CLUSTERS

    for experiment, title in TITLES.items():
        for cluster in CLUSTERS:
            output.print_text("", f"{title}, {cluster} nodes: tasks/s")
            head = ("BALANCER", *(f"{count:,}" for count in results.counts(experiment)))
            output.print_table(head, cells(results, experiment, cluster))
    output.print_text("", "CPU percent of nodes, identical nodes")
    output.print_table(("BALANCER", "TASKS", "1", "2", "3", "GAP"), cpu_cells(results))
    output.print_text("", "Scaling: each kind of task alone, 10 s a pod")
    output.print_table(("KIND", "TASKS", "WITHOUT", "WITH", "TIME", "PODS"), scaling_cells(results))
    output.print_text("", "Claims")
    for v in verdicts:
        published = numbers_text(v.claim.published, v.claim.unit)
        simulated = numbers_text(v.ours, v.claim.unit)
        output.print_wrapped(
            output.verdict(v.holds, v.claim.text, published=published, simulated=simulated)
        )
    output.print_text("", summary(verdicts))
