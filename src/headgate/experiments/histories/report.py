"""The experiment on job histories, and its report: tables and charts, and the rows as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from headgate.base.units import format_compact, format_seconds
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Claims, Report, Table
from headgate.experiments.histories import PAPER
from headgate.experiments.histories.goals import WIDE_GPUS, HistoryGoal, Rows, judge_all, judged
from headgate.experiments.histories.histories import History
from headgate.experiments.histories.runs import (
    ON_BUSY_SIZES,
    HistoryRun,
    Policies,
    PolicyVariant,
    Row,
    Which,
    measure,
    plan,
)
from headgate.experiments.histories.sizes import BUSY_WAIT_S, GOAL_WAIT_S, HistorySizes, find_sizes
from headgate.reports.drawing import Axis, bars, curves, ticks
from headgate.reports.pages import grid, legend

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResults:
    """All that was run, and the goals."""

    histories: Sequence[History]
    sizes: Mapping[History, HistorySizes]
    rows: Rows
    goals: Sequence[HistoryGoal]

    def on(self, history: History) -> dict[int, dict[PolicyVariant, Row]]:
        """Return the rows of a history by size, the first that was run first, and variant."""
        found: dict[int, dict[PolicyVariant, Row]] = {}
        for run, row in self.rows.items():
            if run.source == history.source:
                found.setdefault(run.gpus, {})[run.variant] = row
        return found


def experiment(
    histories: Sequence[History],
    variants: Sequence[PolicyVariant],
    on: Which | Sequence[int],
    known: Policies,
) -> Experiment[HistoryResults]:
    """Return the simulations of histories on these sizes; those of long ones are started first."""
    sizes = {history: find_sizes(history) for history in histories}
    runs = plan(histories, sizes, variants, on)
    jobs = {history.source: len(history) for history in histories}

    def words(run: HistoryRun) -> str:
        return f"Simulated {run.source.name} on {run.gpus} GPUs, {run.variant.name}"

    def measured(runner: Runner) -> HistoryResults:
        ordered = sorted(runs, key=lambda run: -jobs[run.source])
        found = runner.all(ordered, measure, dict(known), words)
        rows = {run: found[run] for run in runs}
        return HistoryResults(
            histories=histories, sizes=sizes, rows=rows, goals=judge_all(histories, sizes, rows)
        )

    return Experiment(plan=runs, measure=measured, report=report)


def report(results: HistoryResults) -> Report:
    """Return the page, and the rows as CSV and Parquet."""
    rows = [flat(row) for row in results.rows.values()]
    return Report(
        paper=PAPER,
        title="Job histories under several policies",
        words=f"Recorded jobs in Headgate's simulator, on pools of equal GPUs. {escape(_READING)}",
        claims=Claims(rows=judged(results.goals), title="Goals", key="goals"),
        sections=[(h.name, _history(results, h)) for h in results.histories if results.on(h)],
        files={"rows.csv": rows, "rows.parquet": rows},
        shown=[
            _brief(f"{history.name}, {len(history)} jobs, {gpus} GPUs", rows)
            for history in results.histories
            for gpus, rows in results.on(history).items()
        ],
        facts={"rows": [*results.rows.values()]},
    )


def flat(row: Row) -> dict[str, Any]:
    """Return a row with a column per figure, such as `wait_by_size_16_p99_wait_s`."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            for entry in value:
                size = entry["gpus_at_least"]
                found |= {f"{name}_{size}_{k}": v for k, v in entry.items() if k != "gpus_at_least"}
        elif name == "rejected":
            continue  # a count per reason; `jobs_rejected` has the sum
        elif isinstance(value, Mapping):
            found |= {f"{name}_{key}": v for key, v in value.items()}
        else:
            found[name] = value
    return found


_READING = (
    "Goals hold on the largest power of two of GPUs, at least the widest job, at which jobs wait "
    f"{GOAL_WAIT_S / 60:.0f} minutes or more in the mean under fifo; the one on mean completion "
    f"times also on other powers of two at which they wait {BUSY_WAIT_S / 60:.0f} minutes or more. "
    "Estimates are exact or learnt from the jobs that ended before. Preempted jobs lose their "
    "work, except those of policies marked as resumed."
)


# --- one history ---------------------------------------------------------------------------------

_HEAD = (
    "policy", "mean completion", "median", "p99", "mean wait", "p99",
    f"{WIDE_GPUS} GPUs or more: mean wait", "p99", "fairness: mean", "p95", "worst",
    "utilisation", "lost GPU time", "reservations", "broken",
)  # fmt: skip


def _history(results: HistoryResults, history: History) -> str:
    found, sizes = results.on(history), results.sizes[history]
    widest = int(history.gpus.max())
    words = f"<p>{len(history):,} jobs of up to {widest} GPUs. {escape(_size_words(sizes))}</p>"
    tables = "".join(
        f"<h3>{gpus} GPUs</h3>{grid(_HEAD, [_row(c, row) for c, row in rows.items()])}"
        for gpus, rows in found.items()
    )
    charts = _charts(next(iter(found.values()))) if found else ""
    return words + charts + _patience(found) + _by_size(found) + tables


def _size_words(sizes: HistorySizes) -> str:
    if sizes.goal is None:
        return "There is no size for the goals."
    return (
        f"The goals hold on {sizes.goal} GPUs, where the mean wait under fifo is "
        f"{format_seconds(sizes.fifo_wait_s[sizes.goal])}."
    )


def _row(variant: PolicyVariant, row: Row) -> tuple[str, ...]:
    wide = wide_of(row)
    fair, reserved = row["finish_time_fairness"], row["reservations"]
    times_s = (
        row["mean_jct_s"], row["median_jct_s"], row["p99_jct_s"], row["mean_wait_s"],
        row["p99_wait_s"], wide["mean_wait_s"], wide["p99_wait_s"],
    )  # fmt: skip
    return (
        f"<b>{escape(variant.name)}</b>",
        *("-" if s is None else escape(format_seconds(s)) for s in times_s),
        *("-" if fair[k] is None else f"{fair[k]:.2f}" for k in ("mean", "p95", "worst")),
        f"{row['gpu_utilisation']:.1%}",
        f"{row['lost_gpu_s'] / _HOUR_S:,.0f} GPU h",
        f"{reserved['made']:,}",
        f"{reserved['broken']:,}",
    )


def _brief(title: str, rows: Mapping[PolicyVariant, Row]) -> Table:
    """Return the rows of one size for a terminal."""

    def times_s(row: Row) -> tuple[float | None, ...]:
        names = ("mean_jct_s", "median_jct_s", "p99_jct_s", "mean_wait_s")
        return *(row[name] for name in names), wide_of(row)["p99_wait_s"]

    def p95(row: Row) -> str | None:
        found = row["finish_time_fairness"]["p95"]
        return None if found is None else f"{found:.2f}"

    return Table(
        title=title,
        head=(
            "policy", "mean jct", "median", "p99", "wait", "wide p99", "fair p95", "used", "lost"
        ),
        rows=[
            [
                variant.name,
                *(None if s is None else format_compact(s) for s in times_s(row)),
                p95(row),
                f"{row['gpu_utilisation']:.1%}",
                format_compact(row["lost_gpu_s"]),
            ]
            for variant, row in rows.items()
        ],
    )  # fmt: skip


def wide_of(row: Row) -> Mapping[str, Any]:
    """Return the waits of wide jobs, from a row."""
    (found,) = (s for s in row["wait_by_size"] if s["gpus_at_least"] == WIDE_GPUS)
    return dict(found)


def _charts(rows: Mapping[PolicyVariant, Row]) -> str:
    """Return bars for each variant on one size."""

    def chart(title: str, form: str, **series: Callable[[Row], float | None]) -> str:
        shown = {
            variant.name: {
                name: value for name, of in series.items() if (value := of(row)) is not None
            }
            for variant, row in rows.items()
        }
        most = max((v for values in shown.values() for v in values.values()), default=0.0)
        drawn = bars(shown, [*series], most=most or 1.0, form=form, title=title)
        named = legend((f"b{n}", name) for n, name in enumerate(series)) if len(series) > 1 else ""
        return f"<h4>{escape(title)}</h4>{named}{drawn}"

    def hours(value_s: float | None) -> float | None:
        return None if value_s is None else value_s / _HOUR_S

    return (
        chart("Mean completion time", "{:.2f} h", mean=lambda row: hours(row["mean_jct_s"]))
        + chart(
            "p99 wait",
            "{:.2f} h",
            all=lambda row: hours(row["p99_wait_s"]),
            wide=lambda row: hours(wide_of(row)["p99_wait_s"]),
        )
        + chart(
            "Finish-time fairness, p95",
            "{:.2f}",
            p95=lambda row: row["finish_time_fairness"]["p95"],
        )
        + chart("Lost GPU time", "{:,.0f} GPU h", lost=lambda row: hours(row["lost_gpu_s"]))
    )


def _patience(found: Mapping[int, Mapping[PolicyVariant, Row]]) -> str:
    """Return curves over patience on each size: waits of wide jobs by mean completion time."""
    return "".join(_patience_on(gpus, rows) for gpus, rows in found.items())


def _patience_on(gpus: int, rows: Mapping[PolicyVariant, Row]) -> str:
    points: dict[str, list[tuple[float, float, str]]] = {}
    for variant, row in rows.items():
        wait_s, jct_s = wide_of(row)["p99_wait_s"], row["mean_jct_s"]
        if variant.patience_s is not None and wait_s is not None and jct_s is not None:
            point = jct_s / _HOUR_S, wait_s / _HOUR_S, variant.patience
            points.setdefault(variant.policy, []).append(point)
    if not points:
        return ""
    title = f"Patience, on {gpus} GPUs"
    jct_h, wait_h = zip(*(each[:2] for of in points.values() for each in of), strict=True)
    drawn = curves(
        {name: [each[:2] for each in of] for name, of in points.items()},
        _axis(max(jct_h), "mean completion time, in hours"),
        _axis(max(wait_h), f"p99 wait of jobs of {WIDE_GPUS} GPUs or more, in hours"),
        title=title,
    )
    table = grid(
        ("policy", "patience", "mean completion, h", "wide p99 wait, h"),
        [
            (f"<b>{escape(name)}</b>", escape(patience), f"{jct:.2f}", f"{wait:.2f}")
            for name, of in points.items()
            for jct, wait, patience in of
        ],
    )
    named = legend((f"b{n}", name) for n, name in enumerate(points))
    return f"<h4>{title}</h4>{named}{drawn}{table}"


def _axis(most: float, words: str) -> Axis:
    marks = {value: f"{value:g}" for value in ticks(most or 1.0)}
    return Axis(least=0.0, most=max(most, *marks), marks=marks, words=words)


def _by_size(found: Mapping[int, Mapping[PolicyVariant, Row]]) -> str:
    """Return bars of the mean completion time on each size, if there are several."""
    if len(found) < 2:
        return ""
    names = [c.name for c in ON_BUSY_SIZES]
    shown = {
        f"{gpus} GPUs": {
            c.name: rows[c]["mean_jct_s"] / _HOUR_S
            for c in ON_BUSY_SIZES
            if c in rows and rows[c]["mean_jct_s"] is not None
        }
        for gpus, rows in sorted(found.items())
    }
    most = max((v for values in shown.values() for v in values.values()), default=0.0)
    title = "Mean completion time by size of the cluster"
    drawn = bars(shown, names, most=most or 1.0, form="{:.2f} h", title=title)
    named = legend((f"b{n}", name) for n, name in enumerate(names))
    return f"<h4>{title}</h4>{named}{drawn}"
