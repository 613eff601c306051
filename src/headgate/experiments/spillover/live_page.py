"""The report of `--live`: rates and the use of nodes, by workload and side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape
from typing import Any

from headgate.experiments.frame.claims import judge, judged
from headgate.experiments.frame.paper import LIVE
from headgate.experiments.frame.report import Claims, Report, Table
from headgate.experiments.spillover import PAPER
from headgate.experiments.spillover.live import LiveResults
from headgate.experiments.spillover.live_claims import CLAIMS

_TITLES = {
    "sync": "One tiny call after the other",
    "async": "Tiny calls in flight together",
    "balance": "Computing calls of one CPU",
    "scan": "Scan of store_sales, a call for each file",
    "join": "Join of store_sales with store, a call for each file",
    "arithmetic": "Computing calls of one and two CPUs",
}


def report(results: LiveResults) -> Report:
    """Return the page, and its rows as CSV."""
    rows, found = records(results), [*tables(results)]
    claims = judged(judge(CLAIMS, results))
    return Report(
        paper=PAPER,
        page=LIVE,
        title="Small calls on unlike nodes, beside Ray",
        words=escape(conditions(results)),
        claims=Claims(rows=[replace(claim, published="") for claim in claims]),
        sections=[("Tables", "".join(table.html() for table in found))],
        files={"live.csv": rows},
        shown=[(conditions(results),), *found],
        facts={
            "tables": [{"name": "live", "rows": rows}],
            "limited": results.limited,
            "load": list(results.load),
        },
        called="The report",
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


def tables(results: LiveResults) -> Iterator[Table]:
    """Yield a table for each workload."""
    counted = list(dict.fromkeys((row.workload, row.count) for row in results.rows))
    cores = [node.cores for node in results.options.nodes]
    names = [f"n{number} used" for number in range(len(cores))]
    for workload, count in counted:
        rows = [r for r in results.rows if (r.workload, r.count) == (workload, count)]
        ray = results.row(workload, count, "ray")
        yield Table(
            title=f"{_TITLES[workload]}: {count:,}",
            head=["side", "calls/s", "over Ray", *names, "gap"],
            rows=[
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
