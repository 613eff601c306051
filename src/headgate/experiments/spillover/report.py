"""The experiments on balancers, and their report: charts and tables, and the figures as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headgate.experiments.frame.claims import judge, judged
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Claims, Report, Table
from headgate.experiments.spillover import PAPER
from headgate.experiments.spillover.claims import CLAIMS
from headgate.experiments.spillover.engine import Policies
from headgate.experiments.spillover.results import TITLES, SpilloverResults, as_json, gather
from headgate.experiments.spillover.runs import (
    CLUSTERS,
    IDENTICAL,
    SpilloverRun,
    SpilloverSizes,
    measure,
    plan,
)
from headgate.experiments.spillover.scaling import POD_S, as_rows, measure_scaling
from headgate.planning.balancers import BALANCERS
from headgate.reports import pages
from headgate.reports.drawing import Axis, curves, ticks


def experiment(
    sizes: SpilloverSizes, seeds: Sequence[int], policies: Policies
) -> Experiment[SpilloverResults]:
    """Return the simulations; `policies` are all by name."""
    runs = plan(sizes, seeds)

    def words(run: SpilloverRun) -> str:
        return f"Simulated {run.experiment} {run.count:,}, {run.balancer}, seed {run.seed}"

    def measured(runner: Runner) -> SpilloverResults:
        ended = runner.all(runs, measure, dict(policies), words)
        return gather(ended, seeds, measure_scaling(policies))

    return Experiment(plan=runs, measure=measured, report=report)


def report(results: SpilloverResults) -> Report:
    """Return the page, and the figures of all experiments as CSV."""
    tables = as_json(results)
    nodes = "; ".join(f"{c.name}: {_nodes(c.name)}" for c in CLUSTERS.values())
    words = (
        "A simulation of dispatch and of tasks that queue at nodes, which calls Headgate's "
        f"balancers; seeds: {', '.join(map(str, results.seeds))}. The driver is on node 1. "
        f"Nodes: {nodes}."
    )
    cpu, scaling = _cpu(results), _scaling(results)
    rates = {
        experiment: {cluster: _rates(results, experiment, cluster) for cluster in CLUSTERS}
        for experiment in TITLES
    }
    return Report(
        paper=PAPER,
        title="Balancing of small tasks over nodes",
        words=escape(words),
        claims=Claims(rows=judged(judge(CLAIMS, results)), ours="simulated"),
        sections=[
            *(
                (title, "".join(_section(results, name, c, of) for c, of in rates[name].items()))
                for name, title in TITLES.items()
            ),
            ("CPU use", f"<p>{_CPU_WORDS}</p>{cpu.html(titled=False)}"),
            ("Scaling", f"<p>{_SCALING_WORDS}</p>{scaling.html(titled=False)}"),
        ],
        files={"rows.csv": [{"experiment": name, **r} for name in TITLES for r in tables[name]]},
        shown=[*(table for of in rates.values() for table in of.values()), cpu, scaling],
        facts={"seeds": list(results.seeds), "tables": tables},
    )


def _nodes(cluster: str) -> str:
    own = CLUSTERS[cluster]
    return ", ".join(
        f"{cpus} CPUs and {gib} GiB at speed {speed:g}"
        for (cpus, _, gib), speed in zip(own.total, own.speed, strict=True)
    )


def _rates(results: SpilloverResults, experiment: str, cluster: str) -> Table:
    """Return a row per balancer: its name, and tasks per second for each count."""
    counts = results.counts(experiment)
    names = [f"{count:,}" for count in counts]
    return Table(
        title=f"{TITLES[experiment]}, {cluster} nodes: tasks/s",
        head=("tasks/s", *names),
        brief=("BALANCER", *names),
        rows=[
            [name, *(f"{results.rate(experiment, cluster, c, name):,.1f}" for c in counts)]
            for name in BALANCERS
        ],
    )


def _section(results: SpilloverResults, experiment: str, cluster: str, rates: Table) -> str:
    many = len(results.counts(experiment)) > 1
    chart = _chart(results, experiment, cluster) if many else ""
    return f"<h3>{escape(cluster)} nodes</h3>{chart}{rates.html(titled=False)}"


def _chart(results: SpilloverResults, experiment: str, cluster: str) -> str:
    """Return the rate of each balancer over the counts, which are evenly spaced."""
    counts = results.counts(experiment)
    spaced = [(float(x), count) for x, count in enumerate(counts)]
    series = {
        name: [(x, results.rate(experiment, cluster, count, name)) for x, count in spaced]
        for name in BALANCERS
    }
    most = max(rate for points in series.values() for _, rate in points)
    across = Axis(
        least=0.0,
        most=len(counts) - 1.0,
        marks={x: f"{count:,}" for x, count in spaced},
        words="tasks",
    )
    up = Axis(
        least=0.0,
        most=most,
        marks={tick: f"{tick:,g}" for tick in ticks(most)},
        words="tasks per second",
    )
    title = f"{experiment}, {cluster} nodes: tasks per second"
    named = pages.legend((f"b{number}", name) for number, name in enumerate(BALANCERS))
    return named + curves(series, across, up, title=title)


_CPU_WORDS = (
    f"Percent of one CPU on {IDENTICAL} nodes, of tasks alone: the services of the first node, "
    "which the published figures of node 1 include, are not simulated as CPU use."
)


def _cpu(results: SpilloverResults) -> Table:
    """Return a row per balancer and number of tasks: CPU percent of each node, and the gap."""
    return Table(
        title="CPU percent of nodes, identical nodes",
        head=("balancer", "tasks", "node 1", "node 2", "node 3", "gap of 2 and 3"),
        brief=("BALANCER", "TASKS", "1", "2", "3", "GAP"),
        rows=[
            [name, f"{count:,}", *(f"{value:.0f}" for value in nodes), f"{gap:.1f}"]
            for (count, name), (gap, *nodes) in results.cpu.items()
        ],
    )


_SCALING_WORDS = f"Four pods of 1 CPU and 512 MB; a pod is up {POD_S:g} s after its order."


def _scaling(results: SpilloverResults) -> Table:
    """Return a row per kind of task: tasks, those finished without and with scaling, and pods."""
    return Table(
        title="Scaling: each kind of task alone, 10 s a pod",
        head=("kind", "tasks", "finished without", "finished with", "time", "pods made"),
        brief=("KIND", "TASKS", "WITHOUT", "WITH", "TIME", "PODS"),
        rows=[
            [
                row["kind"],
                row["tasks"],
                row["finished_without_scaling"],
                row["finished"],
                f"{row['seconds']:.1f} s",
                ", ".join(f"{count} {shape}" for shape, count in row["pods"].items()) or "-",
            ]
            for row in as_rows(results.scaled)
        ],
    )
