"""The page of `--live`: rates and the use of nodes, by workload and side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from headgate.experiments.frame.claims import Verdict, numbers_text
from headgate.experiments.spillover import COMMAND
from headgate.experiments.spillover.live import LiveResults
from headgate.reports import pages

PAGE = "live.html"
_TITLES = {
    "sync": "One tiny call after the other",
    "async": "Tiny calls in flight together",
    "balance": "Computing calls of one CPU",
    "scan": "Scan of store_sales, a call for each file",
    "join": "Join of store_sales with store, a call for each file",
    "arithmetic": "Computing calls of one and two CPUs",
}


def write(path: Path, results: LiveResults, verdicts: Sequence[Verdict[LiveResults]]) -> None:
    """Write the page, and its rows as CSV beside it."""
    pa.csv.write_csv(pa.Table.from_pylist(records(results)), path.with_suffix(".csv"))
    shapes = pages.grid(
        ("", "claim", "reading", "ours"),
        (
            (
                pages.mark(v.holds),
                escape(v.claim.text),
                escape(v.claim.reading),
                escape(numbers_text(v.ours, v.claim.unit)),
            )
            for v in verdicts
        ),
        ("long",) * 4,
    )
    body = "".join(
        f"<h3>{escape(title)}</h3>{pages.grid(head, [[escape(c) for c in row] for row in rows])}"
        for title, head, rows in tables(results)
    )
    title = "Small calls on unlike nodes, beside Ray"
    path.write_text(
        pages.document(
            title,
            f"<h1>{title}</h1><p>{escape(conditions(results))}</p>"
            f"<h2>Tables</h2>{body}<h2>Claims</h2>{shapes}",
            command=COMMAND,
        ),
        encoding="utf-8",
    )


def conditions(results: LiveResults) -> str:
    """Return under which conditions the figures were measured."""
    nodes = results.options.nodes
    cpus = ", ".join(str(node.cpus) for node in nodes)
    cores = ", ".join(f"{node.cores:g}" for node in nodes)
    limits = (
        f"limited to {cores} cores"
        if results.limited
        else "without limits, as this system has no control groups for us"
    )
    before, after = results.load
    return (
        f"{len(nodes)} nodes of {cpus} CPUs, {limits}, on one machine of {results.cores} cores; "
        f"its load was {before:.1f} before and {after:.1f} after. All sides in turn, medians."
    )


def tables(results: LiveResults) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield title, head and rows of each table."""
    counted = list(dict.fromkeys((row.workload, row.count) for row in results.rows))
    cores = [node.cores for node in results.options.nodes]
    names = [f"n{number} used" for number in range(len(cores))]
    for workload, count in counted:
        rows = [r for r in results.rows if (r.workload, r.count) == (workload, count)]
        ray = results.row(workload, count, "ray")
        yield (
            f"{_TITLES[workload]}: {count:,}",
            ["side", "calls/s", "over Ray", *names, "gap"],
            [
                [
                    row.side,
                    f"{row.per_s:,.0f}",
                    f"{row.per_s / ray.per_s:.2f}x" if ray else "-",
                    *(f"{percent:.0f} %" for percent in row.busy(cores)),
                    f"{results.gap(row):.1f}",
                ]
                for row in rows
            ],
        )


def records(results: LiveResults) -> list[dict[str, Any]]:
    """Return all rows for JSON and CSV."""
    cores = [node.cores for node in results.options.nodes]
    return [
        {
            "workload": row.workload,
            "count": row.count,
            "side": row.side,
            "per_s": row.per_s,
            "rounds": len(row.seconds),
            "least_s": min(row.seconds),
            "most_s": max(row.seconds),
            **{f"n{number}_percent": percent for number, percent in enumerate(row.busy(cores))},
            "gap_points": results.gap(row),
        }
        for row in results.rows
    ]
