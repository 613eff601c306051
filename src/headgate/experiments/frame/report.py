"""The report of an experiment: a self-contained page, its figures as files, and what is printed.

A paper says what is in it; how it looks is decided here and in `headgate.reports`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from headgate.experiments.frame.claims import Judged, summary
from headgate.experiments.frame.paper import PAGE, Paper
from headgate.reports import pages

Records = Sequence[Mapping[str, Any]]
"""The rows of a table; all have the same columns."""

Columns = Mapping[str, Sequence[Any]]
"""The same by column, which exist without rows, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells as text, None for an empty one.

    `brief` are the headings of all columns in a terminal, None for a column that is on the page
    only; by default those of the page.
    """

    title: str = ""
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    brief: Sequence[str | None] = ()

    def html(self, *, titled: bool = True) -> str:
        """Return the table in HTML, below its title if it has one; without its empty columns."""
        title = f"<h3>{escape(self.title)}</h3>" if self.title and titled else ""
        kept = [n for n in range(len(self.head)) if any(row[n] is not None for row in self.rows)]
        rows = [["-" if row[n] is None else escape(str(row[n])) for n in kept] for row in self.rows]
        return title + pages.grid([escape(self.head[n]) for n in kept], rows)

    def lines(self) -> tuple[list[str], list[list[object]]]:
        """Return the headings and the rows for a terminal."""
        named = enumerate(self.brief or [name.upper() for name in self.head])
        kept = {n: name for n, name in named if name is not None}
        return [*kept.values()], [[row[n] for n in kept] for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a report: their title, their key in JSON, and what our figures are called.

    `counted`: how many hold is printed.
    """

    rows: Sequence[Judged]
    title: str = "Claims"
    key: str = "shapes"
    ours: str = "measured"
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an experiment reports; its claims come first on the page, then the sections.

    `words` and the sections, pairs of a title and what is below it, are HTML. `files` are rows or
    columns by file name, whose suffix is .csv or .parquet. `shown` is printed: tables, and lines.
    `facts` are the values in JSON before the claims. `called` is the page where it is named.
    """

    paper: Paper
    page: str = PAGE
    title: str
    words: str
    claims: Claims | None
    sections: Sequence[tuple[str, str]]
    files: Mapping[str, Records | Columns]
    shown: Sequence[Table | tuple[str, ...]]
    facts: Mapping[str, Any]
    called: str = "The report, with charts"

    def as_json(self) -> dict[str, Any]:
        """Return the facts and the claims as JSON values."""
        if self.claims is None:
            return dict(self.facts)
        return {**self.facts, self.claims.key: [row.values for row in self.claims.rows]}

    @property
    def fails(self) -> bool:
        """Whether a claim does not hold; one whose runs were not made does not count."""
        return self.claims is not None and any(row.holds is False for row in self.claims.rows)


def write(directory: Path, report: Report) -> Path:
    """Write the files and the page to a directory that exists; return the path of the page."""
    for name, values in report.files.items():
        path = directory / name
        by_column = isinstance(values, Mapping)
        table = pa.table(values) if by_column else pa.Table.from_pylist(list(values))
        if path.suffix == ".parquet":
            pa.parquet.write_table(table, path)
        else:
            pa.csv.write_csv(table, path)
    path = directory / report.page
    path.write_text(page(report), encoding="utf-8")
    return path


def page(report: Report) -> str:
    """Return the whole page."""
    parts = list(report.sections)
    if report.claims is not None:
        parts.insert(0, (report.claims.title, _claims(report.claims)))
    nav, body = pages.sections(parts)
    title = escape(report.title)
    head = f"<h1>{title}</h1><p>{report.words}</p>"
    return pages.document(report.title, f"{head}{nav}{body}", command=report.paper.command)


def _claims(claims: Claims) -> str:
    """Return the published claims, then Headgate's own; a report with one kind has one table."""
    published = [row for row in claims.rows if not row.is_goal]
    own = [row for row in claims.rows if row.is_goal]
    if not published or not own:
        return _judged(claims.rows, claims.ours)
    return (
        f"<p>{summary(claims.rows)}</p>"
        f"<h3>Published</h3>{_judged(published, claims.ours)}"
        f"<h3>Headgate's own goals and checks</h3>{_judged(own, claims.ours)}"
    )


def _judged(rows: Sequence[Judged], ours: str) -> str:
    columns = {
        "": [pages.mark(row.holds) for row in rows],
        "claim": [_claim(row) for row in rows],
        "published": [escape(row.published) or "-" for row in rows],
        ours: [escape(row.ours) or "-" for row in rows],
    }
    css_classes = {"claim": "long", "published": "numbers theirs", ours: "numbers mine"}
    if not any(row.published for row in rows):
        del columns["published"]
    cells = zip(*columns.values(), strict=True)
    table = pages.grid([*columns], cells, [css_classes.get(name, "") for name in columns])
    return f'<p>{summary(rows)}</p><div class="claims">{table}</div>'


def _claim(row: Judged) -> str:
    reading = f'<br><span class="aside">{escape(row.reading)}</span>' if row.reading else ""
    return escape(row.claim) + reading
