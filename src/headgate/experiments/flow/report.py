"""The report of the flow paper's experiments: a self-contained page, and tables.

The page is built as plain text: it has no logic that a template language would simplify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from headgate.experiments.flow import COMMAND, charts
from headgate.experiments.flow.assumptions import ASSUMPTIONS
from headgate.experiments.flow.jobs import MB, Speeds, nodes
from headgate.experiments.flow.runs import NETWORKS, Setup
from headgate.experiments.flow.tables import (
    IDEALS,
    PUBLISHED,
    TABLES,
    Figures,
    Published,
    Results,
    Rounds,
    Table,
    base,
    job_kinds,
    job_rows,
    run_rows,
)
from headgate.experiments.frame.claims import Verdict, numbers_text, summary
from headgate.reports import pages
from headgate.reports.drawing import bars, stacked
from headgate.reports.pages import grid, legend, mark

PAGE = "report.html"


def write(directory: Path, results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    """Write the page, and the tables of runs, jobs and measured rounds, as CSV and Parquet."""
    for name, columns in (("runs", run_rows(results)), ("jobs", job_rows(results))):
        table = pa.table(columns)
        pa.csv.write_csv(table, directory / f"{name}.csv")
        pa.parquet.write_table(table, directory / f"{name}.parquet")
    measured = {n: [getattr(r, n) for r in results.overhead] for n in Rounds.__slots__}
    pa.csv.write_csv(pa.table(measured), directory / "overhead.csv")
    (directory / PAGE).write_text(page(results, verdicts), encoding="utf-8")


def page(results: Results, verdicts: Sequence[Verdict[Results]]) -> str:
    """Return the whole page."""
    parts = (
        ("Claims", _claims(verdicts)),
        ("Tables", "".join(_table(table, results) for table in TABLES) + _overhead(results)),
        ("Jobs on GPUs over time", _gantts(results)),
        ("Time per job against its ideals", _completion(results)),
        ("Fairness", _fairness(results)),
        ("Bytes by locality", _bytes(results)),
        ("Assumptions and calibration", _assumed()),
    )
    seeds = ", ".join(map(str, results.seeds))
    nav, body = pages.sections(parts)
    return pages.document(
        "The flow paper, reproduced",
        "<h1>The flow paper, reproduced</h1>"
        "<p>Published figures and claims of Tang, Zhu, Mao, Fu and Li, <cite>Algorithm of "
        "scheduling for data-intensive computing operations onto GPU cluster</cite> (Journal of "
        "Software 33(12), 2022), beside those of Headgate's simulator. "
        f"Jobs in parallel: {results.parallel}. Seeds: {seeds}; figures are means over them, with "
        f"the range of the makespan.</p>{nav}{body}",
        command=COMMAND,
    )


# --- claims --------------------------------------------------------------------------------------


def _claims(verdicts: Sequence[Verdict[Results]]) -> str:
    papers = [v for v in verdicts if not v.claim.is_goal]
    goals = [v for v in verdicts if v.claim.is_goal]
    return (
        f"<p>{summary(papers)}</p>{_verdicts(papers)}"
        f"<h3>Headgate's own goals for the policy <code>headgate</code></h3>"
        f"<p>{summary(goals)}</p>{_verdicts(goals)}"
    )


def _verdicts(verdicts: Sequence[Verdict[Results]]) -> str:
    rows = []
    for v in verdicts:
        reading = f'<span class="aside">{escape(v.claim.reading)}</span>'
        rows.append(
            (
                mark(v.holds),
                f"{escape(v.claim.text)}<br>{reading}",
                escape(numbers_text(v.claim.published, v.claim.unit)) or "-",
                escape(numbers_text(v.ours, v.claim.unit)) or "-",
            )
        )
    kinds = ("", "long", "numbers theirs", "numbers mine")
    return f'<div class="claims">{grid(("", "claim", "published", "ours"), rows, kinds)}</div>'


# --- tables --------------------------------------------------------------------------------------

_HEAD = (
    "policy", "makespan", "mean time per job", "fairness (share)", "fairness (alone)",
    "local", "in rack", "across racks", "lost GPU time", "rounds",
)  # fmt: skip


def _table(table: Table, results: Results) -> str:
    figures = results.figures[table.name]
    if not figures:
        return ""
    rows = [
        _row(policy, own, PUBLISHED.get((table.name, policy), Published()))
        for policy, own in figures.items()
    ]
    return f"<h3>{escape(table.title)}</h3>{grid(_HEAD, rows)}"


def _row(policy: str, own: Figures, published: Published) -> tuple[str, ...]:
    low, high = own.makespan_range_s
    spread = "" if low == high else f'<br><span class="aside">{low:.0f} to {high:.0f}</span>'
    return (
        f"<b>{escape(policy)}</b>",
        _beside(published.makespan_s, f"{own.makespan_s:.1f} s", "{:.1f} s") + spread,
        f"{own.mean_run_s:.1f} s",
        _fair(own, "share", published.deviation),
        _fair(own, "alone", None),
        f"{own.shares[0]:.1%}",
        _beside(published.rack_share, f"{own.shares[1]:.1%}", "{:.0%}"),
        _beside(published.cluster_share, f"{own.shares[2]:.1%}", "{:.0%}"),
        f"{own.lost_gpu_s:.0f} s",
        f"{own.rounds:.0f}",
    )


def _beside(published: float | None, ours: str, form: str) -> str:
    """Return our figure, with the published one beside it if there is one."""
    if published is None:
        return ours
    return f'{ours} <span class="published">{form.format(published)}</span>'


def _fair(own: Figures, ideal: str, published: float | None) -> str:
    if ideal not in own.fairness:
        return "-"
    mean, deviation = own.fairness[ideal]
    return f"{mean:.3f} &plusmn; {_beside(published, f'{deviation:.3f}', '{:.2f}')}"


def _overhead(results: Results) -> str:
    if not results.overhead:
        return ""
    published = {"test bed": "mean 5.04 ms, max 10.23 ms", "large": "1 to 2 s"}
    rows = [
        (
            f"<b>{escape(r.policy)}</b>",
            f"{r.gpus:,} GPUs, {r.jobs} jobs",
            f"{r.count:,}",
            f"{1e3 * r.mean_s:.2f} ms",
            f"{1e3 * r.max_s:.2f} ms",
            f'<span class="published">{published[r.where]}</span>',
        )
        for r in results.overhead
    ]
    head = ("policy", "where", "rounds", "mean", "max", "published")
    return (
        "<h3>Times of rounds</h3><p>Measured on the machine that wrote this page, not "
        f"simulated. In the large round all GPUs are free.</p>{grid(head, rows)}"
    )


# --- charts --------------------------------------------------------------------------------------


def _jobs_legend(jobs: Iterable[str], *more: tuple[str, str]) -> str:
    kinds = job_kinds()
    drawn = {base(job): None for job in jobs}
    ordered = sorted(drawn, key=lambda job: int(job[1:]))
    return legend(more, [(job, f"{job} {kinds[job][0]}") for job in ordered])


def _gantts(results: Results) -> str:
    seed = results.seeds[0]
    words = (
        f"<p>Jobs in parallel, seed {seed}; a row per GPU, a colour and hatch per job. All charts "
        "of a network have one scale.</p>"
    )
    drawn_jobs = [one.job for run in results.runs.values() for one in run.held]
    parts = [
        words,
        _jobs_legend(drawn_jobs, ("bidle", "idle"), ("blost", "ended without a result")),
    ]
    rows = [(node.id, len(node.gpus)) for node in nodes()]
    for network in NETWORKS:
        made = {
            run.policy: measured
            for run, measured in results.runs.items()
            if run.setup is Setup.PARALLEL and run.network == network and run.drawn
        }
        span_s = max((m.makespan_s for m in made.values()), default=0.0)
        drawn = "".join(
            f"<h4>{escape(policy)}: {m.makespan_s:.1f} s</h4>{charts.gantt(m.held, rows, span_s)}"
            for policy, m in made.items()
        )
        opened = " open" if network == NETWORKS[0] else ""
        title = f"{network.capitalize()} network"
        parts.append(f"<details{opened}><summary>{title}</summary>{drawn}</details>")
    return "".join(parts)


def _per_network(results: Results, draw: Callable[[Table, Mapping[str, Figures]], str]) -> str:
    return "".join(
        f"<h3>{escape(table.title)}</h3>{draw(table, results.figures[table.name])}"
        for table in TABLES
        if table.setup in (Setup.PARALLEL, Setup.USERS) and results.figures[table.name]
    )


def _completion(results: Results) -> str:
    words = (
        "<p>Means over the seeds, jobs by their numbers; the marks are the job's time alone on its "
        "share of the cluster, and alone on the whole cluster.</p>"
    )
    tables = [t for t in TABLES if t.setup is Setup.PARALLEL]
    timed = [job for t in tables for own in results.figures[t.name].values() for job in own.times]
    ideals = (("bshare", "ideal: its share"), ("balone", "ideal: all of it"))
    parts = [words, _jobs_legend(timed, *ideals)]
    for table in tables:
        figures = results.figures[table.name]
        most_s = max((_longest_s(own) for own in figures.values()), default=0.0)
        drawn = "".join(
            f"<h4>{escape(policy)}</h4>{charts.completion(own.times, most_s)}"
            for policy, own in figures.items()
        )
        opened = " open" if table.network == NETWORKS[0] else ""
        parts.append(f"<details{opened}><summary>{escape(table.title)}</summary>{drawn}</details>")
    return "".join(parts)


def _longest_s(own: Figures) -> float:
    return max(max((t.run_s, *t.ideal_s.values())) for t in own.times.values())


def _fairness(results: Results) -> str:
    """Return bars of the mean and of the deviation of s = ideal / time, for both ideals."""

    def draw(_: Table, figures: Mapping[str, Figures]) -> str:
        charted = ""
        for which, title in ((0, "Mean"), (1, "Deviation")):
            rows = {
                policy: {ideal: pair[which] for ideal, pair in own.fairness.items()}
                for policy, own in figures.items()
            }
            most = max((v for row in rows.values() for v in row.values()), default=0.0)
            drawn = bars(rows, IDEALS, most=most or 1.0, form="{:.3f}", title=f"fairness: {title}")
            charted += f"<h4>{title}</h4>{drawn}"
        return charted

    named = legend((("b0", "ideal: alone on its share"), ("b1", "ideal: alone on all of it")))
    words = "<p>s = ideal time / time of a job; a mean of 1 is fair, a deviation of 0 even.</p>"
    return words + named + _per_network(results, draw)


def _bytes(results: Results) -> str:
    most = max(
        (
            sum(own.read_bytes)
            for table in TABLES
            if table.setup in (Setup.PARALLEL, Setup.USERS)
            for own in results.figures[table.name].values()
        ),
        default=0.0,
    )
    names = ("local", "in rack", "across racks")

    def draw(_: Table, figures: Mapping[str, Figures]) -> str:
        rows = {policy: own.read_bytes for policy, own in figures.items()}
        return stacked(rows, names, most=most or 1.0)

    named = legend((f"b{number}", name) for number, name in enumerate(names))
    return named + _per_network(results, draw)


def _assumed() -> str:
    speeds = Speeds()
    fitted = (
        f"The only fitted constant is the speed at which GPUs compute: "
        f"{speeds.gpu_bytes_per_s / MB:,.0f} MB/s, chosen once so that the jobs in turn take "
        "825.6 s under GS in the mean of seeds 1 to 5. Nothing else is fitted; disks are assumed "
        f"to read {speeds.disk_bytes_per_s / MB:,.0f} MB/s."
    )
    return "".join(f"<p>{escape(text)}</p>" for text in (*ASSUMPTIONS.split("\n\n"), fitted))
