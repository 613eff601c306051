"""The flow paper's experiments in the simulator, and their report.

The page is built as plain text: it has no logic that a template language would simplify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape

from headgate.experiments.flow import PAPER, charts
from headgate.experiments.flow.assumptions import ASSUMPTIONS
from headgate.experiments.flow.claims import CLAIMS
from headgate.experiments.flow.jobs import MB, SimulatorConstants, nodes
from headgate.experiments.flow.overhead import Clock, overhead
from headgate.experiments.flow.runs import NETWORKS, FlowRun, Policies, Setup, measure_run, plan
from headgate.experiments.flow.tables import (
    IDEALS,
    PUBLISHED,
    TABLES,
    Figures,
    FlowResults,
    PolicyTable,
    Published,
    Rounds,
    as_json,
    base,
    gather,
    job_kinds,
    job_rows,
    run_rows,
)
from headgate.experiments.frame import report as frame
from headgate.experiments.frame.claims import judge, judged
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Claims, Report
from headgate.reports.drawing import bars, stacked
from headgate.reports.pages import legend


def experiment(
    chosen: Sequence[str], seeds: Sequence[int], parallel: int, known: Policies, clock: Clock
) -> Experiment[FlowResults]:
    """Return the simulations under the chosen policies; before them rounds are measured."""
    runs = plan(chosen, seeds, parallel)

    def words(run: FlowRun) -> str:
        return f"Simulated {run.setup}, {run.network}, {run.policy}, seed {run.seed}"

    def measured(runner: Runner) -> FlowResults:
        rounds = overhead(chosen, known, clock, parallel=parallel)
        return gather(runner.all(runs, measure_run, dict(known), words), seeds, parallel, rounds)

    return Experiment(
        plan=runs, measure=measured, report=report, doing="Measuring how long rounds take"
    )


def report(results: FlowResults) -> Report:
    """Return the page, and the tables of runs, jobs and measured rounds."""
    seeds = ", ".join(map(str, results.seeds))
    runs, jobs = run_rows(results), job_rows(results)
    measured = {n: [getattr(r, n) for r in results.overhead] for n in Rounds.__slots__}
    shown = [*_tables(results), *([_overhead(results)] if results.overhead else [])]
    tables = "".join(table.html() for table in shown) + (_MEASURED if results.overhead else "")
    return Report(
        paper=PAPER,
        title="The flow paper, reproduced",
        words="Published figures and claims of Tang, Zhu, Mao, Fu and Li, <cite>Algorithm of "
        "scheduling for data-intensive computing operations onto GPU cluster</cite> (Journal of "
        "Software 33(12), 2022), beside those of Headgate's simulator. "
        f"Jobs in parallel: {results.parallel}. Seeds: {seeds}; figures are means over them, with "
        "the range of the makespan.",
        claims=Claims(rows=judged(judge(CLAIMS, results))),
        sections=(
            ("Tables", tables),
            ("Jobs on GPUs over time", _gantts(results)),
            ("Time per job against its ideals", _completion(results)),
            ("Fairness", _fairness(results)),
            ("Bytes by locality", _bytes(results)),
            ("Assumptions and calibration", _assumed()),
        ),
        files={
            "runs.csv": runs,
            "runs.parquet": runs,
            "jobs.csv": jobs,
            "jobs.parquet": jobs,
            "overhead.csv": measured,
        },
        shown=shown,
        facts={
            "seeds": list(results.seeds),
            "parallel": results.parallel,
            "tables": as_json(results),
        },
    )


# --- tables --------------------------------------------------------------------------------------


def _tables(results: FlowResults) -> Iterator[frame.Table]:
    """Yield a row per policy for each comparison, with the published figures that exist."""
    for table in TABLES:
        if figures := results.figures[table.name]:
            yield frame.Table(
                title=table.title,
                head=(
                    "policy", "makespan", "published", "least to most", "mean time per job",
                    "fairness (share)", "published deviation", "fairness (alone)", "local",
                    "in rack", "published", "across racks", "published", "lost GPU time", "rounds",
                ),
                brief=(
                    "POLICY", "MAKESPAN", "PAPER", None, None, "FAIRNESS", None, "ALONE", "LOCAL",
                    "RACK", None, "CROSS", None, "LOST", None,
                ),
                rows=[
                    _row(policy, own, PUBLISHED.get((table.name, policy), Published()))
                    for policy, own in figures.items()
                ],
            )  # fmt: skip


def _row(policy: str, own: Figures, published: Published) -> list[str | None]:
    def figure(value: float | None, form: str) -> str | None:
        return None if value is None else form.format(value)

    low, high = own.makespan_range_s
    share, alone = (own.fairness.get(ideal) for ideal in IDEALS)
    return [
        policy,
        f"{own.makespan_s:.1f} s",
        figure(published.makespan_s, "{:.1f} s"),
        None if low == high else f"{low:.0f} to {high:.0f}",
        f"{own.mean_run_s:.1f} s",
        None if share is None else "{:.3f} ± {:.3f}".format(*share),
        figure(published.deviation, "{:.2f}"),
        None if alone is None else "{:.3f} ± {:.3f}".format(*alone),
        f"{own.shares[0]:.1%}",
        f"{own.shares[1]:.1%}",
        figure(published.rack_share, "{:.0%}"),
        f"{own.shares[2]:.1%}",
        figure(published.cluster_share, "{:.0%}"),
        f"{own.lost_gpu_s:.0f} s",
        f"{own.rounds:.0f}",
    ]


def _overhead(results: FlowResults) -> frame.Table:
    published = {"test bed": "mean 5.04 ms, max 10.23 ms", "large": "1 to 2 s"}
    return frame.Table(
        title="Rounds, measured on this machine",
        head=("policy", "where", "of", "rounds", "mean", "max", "published"),
        brief=("POLICY", "WHERE", None, None, "MEAN", "MAX", None),
        rows=[
            (
                r.policy,
                r.where,
                f"{r.gpus:,} GPUs, {r.jobs} jobs",
                f"{r.count:,}",
                f"{1e3 * r.mean_s:.2f} ms",
                f"{1e3 * r.max_s:.2f} ms",
                published[r.where],
            )
            for r in results.overhead
        ],
    )


_MEASURED = (
    "<p>Rounds were measured on the machine that wrote this page, not simulated. In the large "
    "round all GPUs are free.</p>"
)


# --- charts --------------------------------------------------------------------------------------


def _jobs_legend(jobs: Iterable[str], *more: tuple[str, str]) -> str:
    kinds = job_kinds()
    drawn = {base(job): None for job in jobs}
    ordered = sorted(drawn, key=lambda job: int(job[1:]))
    return legend(more, [(job, f"{job} {kinds[job][0]}") for job in ordered])


def _gantts(results: FlowResults) -> str:
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


def _per_network(
    results: FlowResults, draw: Callable[[PolicyTable, Mapping[str, Figures]], str]
) -> str:
    return "".join(
        f"<h3>{escape(table.title)}</h3>{draw(table, results.figures[table.name])}"
        for table in TABLES
        if table.setup in (Setup.PARALLEL, Setup.USERS) and results.figures[table.name]
    )


def _completion(results: FlowResults) -> str:
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


def _fairness(results: FlowResults) -> str:
    """Return bars of the mean and of the deviation of s = ideal / time, for both ideals."""

    def draw(_: PolicyTable, figures: Mapping[str, Figures]) -> str:
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


def _bytes(results: FlowResults) -> str:
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

    def draw(_: PolicyTable, figures: Mapping[str, Figures]) -> str:
        rows = {policy: own.read_bytes for policy, own in figures.items()}
        return stacked(rows, names, most=most or 1.0)

    named = legend((f"b{number}", name) for number, name in enumerate(names))
    return named + _per_network(results, draw)


def _assumed() -> str:
    speeds = SimulatorConstants()
    fitted = (
        f"The only fitted constant is the speed at which GPUs compute: "
        f"{speeds.gpu_bytes_per_s / MB:,.0f} MB/s, chosen once so that the jobs in turn take "
        "825.6 s under GS in the mean of seeds 1 to 5. Nothing else is fitted; disks are assumed "
        f"to read {speeds.disk_bytes_per_s / MB:,.0f} MB/s."
    )
    return "".join(f"<p>{escape(text)}</p>" for text in (*ASSUMPTIONS.split("\n\n"), fitted))
