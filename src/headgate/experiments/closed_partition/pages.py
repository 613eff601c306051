"""The reports of `--live`, `--large` and `--traces`: checks and tables of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TypeVar

from headgate.experiments.closed_partition import PAPER
from headgate.experiments.frame.claims import Claim, Judged, judge, judged
from headgate.experiments.frame.report import Claims, Records, Report, Table

R = TypeVar("R")


def report(
    page: str,
    title: str,
    words: str,
    checks: Sequence[Judged],
    tables: Mapping[str, Records],
) -> Report:
    """Return a page with the records of each table, and all of them in a file beside it."""
    shown = [_table(name, rows) for name, rows in tables.items()]
    return Report(
        paper=PAPER,
        page=page,
        title=title,
        words=escape(words),
        claims=Claims(rows=checks, title="Checks", counted=False),
        sections=[("Tables", "".join(table.html() for table in shown))],
        files={
            page.replace(".html", ".csv"): [
                {"table": name, **row} for name, rows in tables.items() for row in rows
            ]
        },
        shown=shown,
        facts={"tables": [{"name": name, "rows": rows} for name, rows in tables.items()]},
        called="The report",
    )


def checked(claims: Sequence[Claim[R]], rows: R) -> tuple[Judged, ...]:
    """Return Headgate's own checks on rows; their figures are written as those of the tables."""
    verdicts = judge(claims, rows)
    return tuple(
        replace(row, ours=", ".join(f"{k} {_text(value)}" for k, value in verdict.ours.items()))
        for row, verdict in zip(judged(verdicts), verdicts, strict=True)
    )


def _table(name: str, rows: Records) -> Table:
    return Table(
        title=name,
        head=[column.replace("_", " ") for column in rows[0]],
        rows=[[_text(value) for value in row.values()] for row in rows],
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
