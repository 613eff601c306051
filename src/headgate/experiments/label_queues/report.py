"""The experiments on labelled queues, and their report: tables, a chart, and the runs as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from statistics import fmean
from typing import Any

from headgate.experiments.frame.claims import judge, judged
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Claims, Report, Table
from headgate.experiments.label_queues import PAPER
from headgate.experiments.label_queues.claims import CLAIMS
from headgate.experiments.label_queues.results import LabelResults, as_json
from headgate.experiments.label_queues.runs import (
    ALONE,
    ASSUMED,
    CAPACITY,
    MIXED,
    VARIANTS,
    LabelRun,
    LabelSizes,
    Policies,
    measure,
    plan,
)
from headgate.reports import pages
from headgate.reports.drawing import Axis, curves, ticks


def experiment(
    sizes: LabelSizes, seeds: Sequence[int], policies: Policies
) -> Experiment[LabelResults]:
    """Return the simulations; `policies` are all by name."""
    runs = plan(sizes, seeds)

    def words(run: LabelRun) -> str:
        return f"Simulated {run.jobs} jobs, {run.experiment}, {run.variant}, seed {run.seed}"

    def measured(runner: Runner) -> LabelResults:
        times = runner.all(runs, measure, dict(policies), words)
        return LabelResults(sizes=sizes, seeds=seeds, times=times)

    return Experiment(plan=runs, measure=measured, report=report)


def report(results: LabelResults) -> Report:
    """Return the page, and a row for each run."""
    mixed, alone, assumed = _mixed(results), _alone(results), _assumptions(results)
    words = (
        "Simulated groups of elastic CPU jobs (WordCount) and GPU jobs (MNIST) on four equal "
        "nodes, in one queue each. Under capacity the parts of queues are limits and jobs hold "
        "what they declare; else the parts are guaranteed and jobs are elastic. Total times are "
        "from the first submission to the last end. Seeds of WordCounts alone: "
        f"{', '.join(map(str, results.seeds))}."
    )
    return Report(
        paper=PAPER,
        title="Elastic jobs in labelled queues",
        words=escape(words),
        claims=Claims(rows=judged(judge(CLAIMS, results)), ours="simulated"),
        sections=[
            ("Mixed jobs", mixed.html(titled=False)),
            ("WordCounts alone", _chart(results) + alone.html(titled=False)),
            ("Other assumptions", f"<p>{_ASSUMED_WORDS}</p>{assumed.html(titled=False)}"),
        ],
        files={"runs.csv": [_flat(run) | asdict(times) for run, times in results.times.items()]},
        shown=[mixed, alone, assumed],
        facts={"seeds": list(results.seeds), "tables": as_json(results)},
    )


def _flat(run: LabelRun) -> dict[str, Any]:
    fields = asdict(run)
    assumed: dict[str, Any] = fields.pop("assumed")
    return fields | assumed


def _mixed(results: LabelResults) -> Table:
    """Return a row per variant: the total time in each order, and figures of jobs."""
    jobs, rows = 2 * results.sizes.mixed, []
    for name in VARIANTS:
        runs = results.of(MIXED, jobs, name)
        rows.append(
            [
                name,
                *(f"{times.total_s:.1f}" for times in runs),
                f"{fmean(times.total_s for times in runs):.1f}",
                f"{results.mixed(name):.1%}",
                f"{fmean(times.completion_s for times in runs):.1f}",
                f"{max(times.longest_wait_s for times in runs):.1f}",
            ]
        )
    orders = [f"order {number}" for number in range(1, len(rows[0]) - 4)]
    last = ("mean", "less than capacity", "mean completion", "longest wait")
    return Table(
        title=f"{results.sizes.mixed} WordCounts and {results.sizes.mixed} MNISTs: seconds",
        head=("variant", *orders, *last),
        brief=("VARIANT", *map(str.upper, orders), "MEAN", "LESS", "COMPLETION", "WAIT"),
        rows=rows,
    )


def _alone(results: LabelResults) -> Table:
    """Return a row per number of jobs and variant."""
    rows = []
    for jobs in results.sizes.alone:
        for name in VARIANTS:
            runs, counted = results.of(ALONE, jobs, name), results.totals(ALONE, jobs, name)
            rows.append(
                [
                    jobs,
                    name,
                    f"{fmean(counted):.1f}",
                    len(runs) - len(counted),
                    f"{results.less(ALONE, jobs, name):.1%}",
                    f"{fmean(times.completion_s for times in runs):.1f}",
                    f"{max(times.longest_wait_s for times in runs):.1f}",
                ]
            )
    figures = ("total", "outliers", "less than capacity", "mean completion", "longest wait")
    return Table(
        title="WordCounts alone: seconds, mean total without outliers",
        head=("jobs", "variant", *figures),
        brief=("JOBS", "VARIANT", "TOTAL", "OUTLIERS", "LESS", "COMPLETION", "WAIT"),
        rows=rows,
    )


_ASSUMED_WORDS = (
    "By which part total times are less than under capacity, if other parts of queues, needs and "
    "gaps between submissions are assumed; at most three runs each, outliers included. By "
    "default deep-learning has 1/3, a WordCount declares 20 executors, and gaps are of 5 s."
)


def _assumptions(results: LabelResults) -> Table:
    """Return a row per assumption and variant: what total times are less than Capacity's."""
    few, many = results.sizes.varied
    rows = []
    for name in results.sizes.assumed:
        for variant in VARIANTS:
            if variant != CAPACITY:
                less = results.less_if(variant, ASSUMED[name]).values()
                rows.append([name, variant, *(f"{part:.1%}" for part in less)])
    return Table(
        title="Total time less than under capacity, by assumption",
        head=("assumption", "variant", "mixed", f"{few} alone", f"{many} alone"),
        brief=("ASSUMPTION", "VARIANT", "MIXED", f"{few} ALONE", f"{many} ALONE"),
        rows=rows,
    )


def _chart(results: LabelResults) -> str:
    """Return the mean total time of each variant over the number of jobs."""
    counts = results.sizes.alone
    series = {
        name: [(float(jobs), fmean(results.totals(ALONE, jobs, name))) for jobs in counts]
        for name in VARIANTS
    }
    most = max(total_s for points in series.values() for _, total_s in points)
    marks = {float(jobs): str(jobs) for jobs in counts}
    across = Axis(least=0.0, most=float(counts[-1]), marks=marks, words="jobs")
    up = Axis(
        least=0.0,
        most=most,
        marks={tick: f"{tick:,g}" for tick in ticks(most)},
        words="mean total time, in seconds",
    )
    named = pages.legend((f"b{number}", name) for number, name in enumerate(series))
    return named + curves(series, across, up, title="Total time of WordCounts alone")
