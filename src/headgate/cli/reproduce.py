"""`headgate reproduce`: repeat published experiments, and compare the figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.app import POLICIES
from headgate.cli import output, report_options
from headgate.cli.errors import OUTSIDE
from headgate.cli.settings import FormatOption, settle

if TYPE_CHECKING:
    from headgate.experiments.flow.tables import Figures, Results
    from headgate.experiments.frame.claims import Verdict


def flow(
    seeds: report_options.SeedsOption = 5,
    parallel: Annotated[
        int, typer.Option("--parallel", "-k", metavar="N", help="Jobs in parallel.")
    ] = 6,
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Which policies.", show_default="those of the paper"),
    ] = None,
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
    from headgate.experiments.flow import report, runs, tables
    from headgate.experiments.flow.claims import CLAIMS
    from headgate.experiments.frame import claims

    as_json = settle(None, fmt).as_json
    _check(seeds, parallel, workers, out)
    if live:
        _live(policies, out, strict=strict, as_json=as_json)
        return
    names = None if policies is None else [name.strip() for name in policies.split(",")]
    chosen = runs.choose(POLICIES, names)
    report_options.make(out)
    workers = workers or report_options.cpus()
    results = _run(chosen, range(1, seeds + 1), parallel, workers, as_json=as_json)
    verdicts = claims.judge(CLAIMS, results)
    with report_options.writing(out):
        report.write(out, results, verdicts)
    page = out / report.PAGE
    if as_json:
        output.print_json(
            {
                "seeds": list(results.seeds),
                "parallel": parallel,
                "tables": tables.as_json(results),
                "shapes": claims.as_json(verdicts),
                "report": str(page),
            }
        )
    else:
        _show(results, verdicts)
        output.print_text("", f"The report, with charts: {page}")
    if strict and any(verdict.holds is False for verdict in verdicts):
        raise typer.Exit(OUTSIDE)


def _live(policies: str | None, out: Path, *, strict: bool, as_json: bool) -> None:
    """Compare live; see `headgate.experiments.flow.live`."""
    from headgate.cli.reproduce_live import compare, need_network, show
    from headgate.experiments.flow import live as flow_live
    from headgate.experiments.flow import live_checks as flow_live_checks
    from headgate.experiments.flow import live_page as flow_live_page
    from headgate.experiments.flow import runs as flow_runs

    names = flow_live.POLICIES if policies is None else [p.strip() for p in policies.split(",")]
    chosen = flow_runs.choose(POLICIES, names)
    need_network()
    report_options.make(out)
    show_progress = (lambda _: None) if as_json else output.print_note
    comparison = compare(chosen, flow_live.UPLINKS_MBIT_PER_S, show_progress=show_progress)
    with report_options.writing(out):
        flow_live_page.write(out, comparison)
    page = out / flow_live_page.PAGE
    if as_json:
        output.print_json({**flow_live_checks.as_json(comparison), "report": str(page)})
    else:
        show(comparison)
        output.print_text("", f"The same as a page: {page}")
    if strict and not all(shape.holds for shape in flow_live_checks.judge(comparison)):
        raise typer.Exit(OUTSIDE)


def _check(seeds: int, parallel: int, workers: int | None, out: Path) -> None:
    """Raise SpecError `usage` with all invalid options, and for a directory of other files."""
    from headgate.experiments.flow import COMMAND, live_page, report
    from headgate.experiments.flow.jobs import JOB_KINDS

    jobs = sum(len(kind.counts) for kind in JOB_KINDS) - 1
    wrong: list[report_options.Wrong] = []
    wrong += report_options.invalid_seeds(seeds)
    if not 1 <= parallel <= jobs:
        hint = f"the experiment has {jobs} jobs; the paper runs 6 of them in parallel"
        wrong.append(("--parallel", f"must be from 1 to {jobs}, not {parallel}", hint))
    wrong += report_options.invalid_workers(workers)
    wrong += report_options.invalid_directory(out, (report.PAGE, live_page.PAGE), COMMAND)
    report_options.reject(wrong)


def _run(
    chosen: Sequence[str], seeds: Sequence[int], parallel: int, workers: int, *, as_json: bool
) -> Results:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from headgate.experiments.flow.overhead import overhead
    from headgate.experiments.flow.runs import Run, measure_run, plan
    from headgate.experiments.flow.tables import gather
    from headgate.experiments.frame.pool import run_all

    runs = plan(chosen, seeds, parallel)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with output.progress(*columns, as_json=as_json) as bar:
        task = bar.add_task("Measuring how long rounds take", total=len(runs))
        measured = overhead(chosen, POLICIES, time.perf_counter, parallel=parallel)

        def step(run: Run) -> None:
            description = f"Simulated {run.setup}, {run.network}, {run.policy}, seed {run.seed}"
            bar.update(task, advance=1, description=description)

        made = run_all(runs, measure_run, dict(POLICIES), workers=workers, step=step)
    return gather(made, seeds, parallel, measured)


# --- tables --------------------------------------------------------------------------------------


def _show(results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    from headgate.experiments.flow.tables import TABLES
    from headgate.experiments.frame.claims import numbers_text, summary

    head = (
        "POLICY", "MAKESPAN", "PAPER", "FAIRNESS", "ALONE", "LOCAL", "RACK", "CROSS", "LOST",
    )  # fmt: skip
    for table in TABLES:
        if figures := results.figures[table.name]:
            output.print_text("", table.title)
            output.print_table(head, (_row(table.name, p, own) for p, own in figures.items()))
    if results.overhead:
        output.print_text("", "Rounds, measured on this machine")
        output.print_table(
            ("POLICY", "WHERE", "MEAN", "MAX"),
            (
                (r.policy, r.where, f"{1e3 * r.mean_s:.2f} ms", f"{1e3 * r.max_s:.2f} ms")
                for r in results.overhead
            ),
        )
    output.print_text("", "Claims")
    for v in verdicts:
        published = numbers_text(v.claim.published, v.claim.unit)
        measured = numbers_text(v.ours, v.claim.unit)
        output.print_wrapped(
            output.verdict(v.holds, v.claim.text, published=published, measured=measured)
        )
    output.print_text("", summary(verdicts))


def _row(table: str, policy: str, own: Figures) -> list[object]:
    from headgate.experiments.flow.tables import IDEALS, PUBLISHED

    published = PUBLISHED.get((table, policy))
    published_s = published.makespan_s if published else None
    pairs = [own.fairness.get(ideal) for ideal in IDEALS]
    return [
        policy,
        f"{own.makespan_s:.1f} s",
        None if published_s is None else f"{published_s:.1f} s",
        *(None if pair is None else f"{pair[0]:.3f} ± {pair[1]:.3f}" for pair in pairs),
        *(f"{share:.1%}" for share in own.shares),
        f"{own.lost_gpu_s:.0f} s",
    ]
