"""The pages of `--live`, `--large` and `--traces`: checks, then tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from headgate.experiments.closed_partition import COMMAND
from headgate.reports import pages

LIVE, LARGE, TRACES = "live.html", "large.html", "traces.html"

Record = Mapping[str, Any]
"""A row of a table; all rows of one have the same columns."""


def write(
    path: Path,
    title: str,
    words: str,
    checks: Sequence[Record],
    tables: Mapping[str, Sequence[Record]],
) -> None:
    """Write a page, and its rows as CSV beside it; a check has `holds`, `claim` and `ours`."""
    rows = [{"table": name, **row} for name, some in tables.items() for row in some]
    pa.csv.write_csv(pa.Table.from_pylist(rows), path.with_suffix(".csv"))
    shapes = pages.grid(
        ("", "claim", "ours"),
        (
            (pages.mark(check["holds"]), escape(check["claim"]), escape(numbers(check["ours"])))
            for check in checks
        ),
        ("long",) * 3,
    )
    body = "".join(f"<h3>{escape(name)}</h3>{_table(some)}" for name, some in tables.items())
    path.write_text(
        pages.document(
            title,
            f"<h1>{escape(title)}</h1><p>{escape(words)}</p>"
            f"<h2>Tables</h2>{body}<h2>Checks</h2>{shapes}",
            command=COMMAND,
        ),
        encoding="utf-8",
    )


def numbers(ours: object) -> str:
    """Return the figures of a check as text."""
    if isinstance(ours, Mapping):
        return ", ".join(f"{name} {text_of(value)}" for name, value in ours.items())
    return str(ours)


def text_of(value: object) -> str:
    """Return a cell of a table as text."""
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)


def _table(rows: Sequence[Record]) -> str:
    head = [escape(name.replace("_", " ")) for name in rows[0]] if rows else []
    return pages.grid(head, ([escape(text_of(v)) for v in row.values()] for row in rows))
