"""The report on balancers: claims, charts and tables on a page, and the figures as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from headgate.experiments.frame.claims import Verdict, numbers_text, summary
from headgate.experiments.spillover import COMMAND
from headgate.experiments.spillover.results import TITLES, Results, as_json
from headgate.experiments.spillover.runs import CLUSTERS, IDENTICAL
from headgate.experiments.spillover.scaling import POD_S, as_rows
from headgate.planning.balancers import BALANCERS
from headgate.reports import pages
from headgate.reports.drawing import Axis, curves, ticks

PAGE = "report.html"


def write(directory: Path, results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    """Write the page, and the figures of all experiments as CSV."""
    tables = as_json(results)
    rows = [{"experiment": name, **row} for name in TITLES for row in tables[name]]
    pa.csv.write_csv(pa.Table.from_pylist(rows), directory / "rows.csv")
    (directory / PAGE).write_text(page(results, verdicts), encoding="utf-8")


def page(results: Results, verdicts: Sequence[Verdict[Results]]) -> str:
    """Return the whole page."""
    parts = [("Claims", _claims(verdicts))]
    parts += [
        (title, "".join(_experiment(results, name, cluster) for cluster in CLUSTERS))
        for name, title in TITLES.items()
    ]
    parts.append(("CPU use", _cpu(results)))
    parts.append(("Scaling", _scaling(results)))
    nav, body = pages.sections(parts)
    title = "Balancing of small tasks over nodes"
    nodes = "; ".join(f"{c.name}: {_nodes(c.name)}" for c in CLUSTERS.values())
    words = (
        "A simulation of dispatch and of tasks that queue at nodes, which calls Headgate's "
        f"balancers; seeds: {', '.join(map(str, results.seeds))}. The driver is on node 1. "
        f"Nodes: {nodes}."
    )
    return pages.document(
        title, f"<h1>{title}</h1><p>{escape(words)}</p>{nav}{body}", command=COMMAND
    )


def _nodes(cluster: str) -> str:
    own = CLUSTERS[cluster]
    return ", ".join(
        f"{cpus} CPUs and {gib} GiB at speed {speed:g}"
        for (cpus, _, gib), speed in zip(own.total, own.speed, strict=True)
    )


def _claims(verdicts: Sequence[Verdict[Results]]) -> str:
    rows = [
        (
            pages.mark(v.holds),
            f'{escape(v.claim.text)}<br><span class="aside">{escape(v.claim.reading)}</span>',
            escape(numbers_text(v.claim.published, v.claim.unit)) or "-",
            escape(numbers_text(v.ours, v.claim.unit)),
        )
        for v in verdicts
    ]
    table = pages.grid(
        ("", "claim", "published", "simulated"),
        rows,
        ("", "long", "numbers theirs", "numbers mine"),
    )
    return f'<p>{summary(verdicts)}</p><div class="claims">{table}</div>'


def cells(results: Results, experiment: str, cluster: str) -> list[list[str]]:
    """Return a row per balancer: its name, and tasks per second for each count."""
    return [
        [
            name,
            *(
                f"{results.rate(experiment, cluster, count, name):,.1f}"
                for count in results.counts(experiment)
            ),
        ]
        for name in BALANCERS
    ]


def _experiment(results: Results, experiment: str, cluster: str) -> str:
    counts = results.counts(experiment)
    head = ("tasks/s", *(f"{count:,}" for count in counts))
    rows = [[escape(cell) for cell in row] for row in cells(results, experiment, cluster)]
    chart = _chart(results, experiment, cluster) if len(counts) > 1 else ""
    return f"<h3>{escape(cluster)} nodes</h3>{chart}{pages.grid(head, rows)}"


def _chart(results: Results, experiment: str, cluster: str) -> str:
    """Return the rate of each balancer over the counts, which are evenly spaced."""
    counts = results.counts(experiment)
    spaced = [(float(at), count) for at, count in enumerate(counts)]
    series = {
        name: [(at, results.rate(experiment, cluster, count, name)) for at, count in spaced]
        for name in BALANCERS
    }
    most = max(rate for points in series.values() for _, rate in points)
    across = Axis(
        least=0.0,
        most=len(counts) - 1.0,
        marks={at: f"{count:,}" for at, count in spaced},
        words="tasks",
    )
    up = Axis(
        least=0.0, most=most, marks={at: f"{at:,g}" for at in ticks(most)}, words="tasks per second"
    )
    title = f"{experiment}, {cluster} nodes: tasks per second"
    named = pages.legend((f"b{number}", name) for number, name in enumerate(BALANCERS))
    return named + curves(series, across, up, title=title)


def cpu_cells(results: Results) -> list[list[str]]:
    """Return a row per balancer and number of tasks: CPU percent of each node, and the gap."""
    return [
        [name, f"{count:,}", *(f"{value:.0f}" for value in nodes), f"{gap:.1f}"]
        for (count, name), (gap, *nodes) in results.cpu.items()
    ]


def scaling_cells(results: Results) -> list[list[str]]:
    """Return a row per kind of task: tasks, those finished without and with scaling, and pods."""
    return [
        [
            str(row["kind"]),
            str(row["tasks"]),
            str(row["finished_without_scaling"]),
            str(row["finished"]),
            f"{row['seconds']:.1f} s",
            ", ".join(f"{count} {shape}" for shape, count in row["pods"].items()) or "-",
        ]
        for row in as_rows(results.scaled)
    ]


def _scaling(results: Results) -> str:
    head = ("kind", "tasks", "finished without", "finished with", "time", "pods made")
    words = f"Four pods of 1 CPU and 512 MB; a pod is up {POD_S:g} s after its order."
    return f"<p>{words}</p>{pages.grid(head, scaling_cells(results))}"


def _cpu(results: Results) -> str:
    head = ("balancer", "tasks", "node 1", "node 2", "node 3", "gap of 2 and 3")
    words = (
        f"Percent of one CPU on {IDENTICAL} nodes, of tasks alone: the services of the first node, "
        "which the published figures of node 1 include, are not simulated as CPU use."
    )
    return f"<p>{words}</p>{pages.grid(head, cpu_cells(results))}"
