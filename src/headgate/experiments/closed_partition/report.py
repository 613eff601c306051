"""The report of the simulated sets: a self-contained page, and the rows as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from headgate.experiments.closed_partition import COMMAND
from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, Size, published_mean_s
from headgate.experiments.closed_partition.runs import (
    CLOSED,
    DEFAULT,
    PLACERS,
    SEQUENTIAL,
    Variant,
)
from headgate.experiments.closed_partition.tables import Results, calibration_rows
from headgate.experiments.frame.claims import Verdict, numbers_text, summary
from headgate.reports import pages
from headgate.reports.drawing import bars
from headgate.reports.pages import grid, legend, mark

PAGE, TABLE = "report.html", "rows.csv"


def write(directory: Path, results: Results, verdicts: Sequence[Verdict[Results]]) -> None:
    """Write the page, and a row for each variant, set and placement."""
    pa.csv.write_csv(pa.Table.from_pylist(list(_flat(results))), directory / TABLE)
    (directory / PAGE).write_text(page(results, verdicts), encoding="utf-8")


def _flat(results: Results) -> Iterable[dict[str, object]]:
    for (variant, size, placer), row in results.rows.items():
        yield {
            "variant": variant.name,
            "set": size.name,
            "placement": placer,
            "mean_s": results.mean_s(size, placer, variant),
            **{f"{k.name}_s": row.mean_s[k.name] for k in KERNELS},
            "mean_wait_s": row.wait_s,
            "mean_slowdown": row.slowdown,
            "mean_diameter": row.diameter,
            "least_diameter_ratio": row.closed,
            "utilisation": row.utilisation,
            "shared_links": row.shared_links,
        }


def page(results: Results, verdicts: Sequence[Verdict[Results]]) -> str:
    """Return the whole page."""
    parts = (
        ("Claims", verdict_tables(verdicts)),
        ("Sets", "".join(_set(results, size) for size in SIZES)),
        ("Part saved by kernel", _gains(results)),
        ("Other assumptions", _variants(results)),
        ("Training", _trainings(results)),
        ("Calibration", _calibration(results)),
    )
    nav, body = pages.sections(parts)
    return pages.document(
        "Closed-minimum placement, reproduced",
        "<h1>Closed-minimum placement, reproduced</h1>"
        "<p>Published figures and claims of Zhang and Lin, <cite>Multi-job assignment optimization "
        "approach based on closed minimum graph-partitioning model</cite>, beside those of a "
        "simulation on the published machine, 32 nodes in a tree, in which jobs slow each other "
        "down where their messages share links. Seeds: "
        f"{', '.join(map(str, results.seeds))}; figures are means over them.</p>{nav}{body}",
        command=COMMAND,
    )


def verdict_tables(verdicts: Sequence[Verdict[Results]]) -> str:
    """Return the published claims and the own goals as HTML."""
    papers = [v for v in verdicts if not v.claim.is_goal]
    goals = [v for v in verdicts if v.claim.is_goal]
    return (
        f"<p>{summary(papers)}</p>{_verdicts(papers)}"
        f"<h3>Own checks</h3><p>{summary(goals)}</p>{_verdicts(goals)}"
    )


def _verdicts(verdicts: Sequence[Verdict[Results]]) -> str:
    rows = [
        (
            mark(v.holds),
            f'{escape(v.claim.text)}<br><span class="aside">{escape(v.claim.reading)}</span>',
            escape(numbers_text(v.claim.published, v.claim.unit)) or "-",
            escape(numbers_text(v.ours, v.claim.unit)) or "-",
        )
        for v in verdicts
    ]
    kinds = ("", "long", "numbers theirs", "numbers mine")
    return f'<div class="claims">{grid(("", "claim", "published", "ours"), rows, kinds)}</div>'


def _set(results: Results, size: Size) -> str:
    head = (
        "placement", "mean", "saved", *(k.name for k in KERNELS), "wait", "slowdown", "diameter",
        "least", "used", "shared links",
    )  # fmt: skip
    published = (
        "published, sequential",
        f"{published_mean_s(size):.2f} s",
        "",
        *(f"{k.published_s(size):.2f}" for k in KERNELS),
        *("",) * 6,
    )
    rows = [published, *(_row(results, size, placer, DEFAULT) for placer in PLACERS)]
    nodes = f"{size.nodes} node{'s' * (size.nodes > 1)}"
    return f"<h3>{size.name}, {nodes} a job</h3>{grid(head, rows)}"


def _row(results: Results, size: Size, placer: str, variant: Variant) -> tuple[str, ...]:
    row = results.row(size, placer, variant)
    return (
        f"<b>{escape(placer)}</b>",
        f"{results.mean_s(size, placer, variant):.2f} s",
        f"{results.gain(size, placer, variant):.1%}",
        *(f"{row.mean_s[k.name]:.2f}" for k in KERNELS),
        f"{row.wait_s:.1f} s",
        f"{row.slowdown:.3f}",
        "-" if row.diameter is None else f"{row.diameter:.2f}",
        "-" if row.closed is None else f"{row.closed:.0%}",
        f"{row.utilisation:.0%}",
        f"{row.shared_links:.2f}",
    )


def _gains(results: Results) -> str:
    shown = {
        kernel.name: {
            size.name: 100 * max(0.0, results.kernel_gain(kernel.name, size, CLOSED))
            for size in SIZES
        }
        for kernel in KERNELS
    }
    most = max(value for values in shown.values() for value in values.values())
    drawn = bars(
        shown, [s.name for s in SIZES], most=most or 1.0, form="{:.1f} %", title="part saved"
    )
    return legend((f"b{n}", size.name) for n, size in enumerate(SIZES)) + drawn


def _variants(results: Results) -> str:
    head = ("assumption", *(f"saved, {s.name}" for s in SIZES), "EP C/64", "IS C/64", "FT C/64")
    rows = [
        (
            escape(variant.name),
            *(f"{results.gain(size, CLOSED, variant):.1%}" for size in SIZES),
            *(
                f"{results.kernel_gain(name, SIZES[-1], CLOSED, variant):.1%}"
                for name in ("EP", "IS", "FT")
            ),
        )
        for variant in results.splits
    ]
    words = "<p>Each is calibrated on its own, so that sequential placement takes the published "
    return f"{words}means; then closed-minimum is compared with it.</p>{grid(head, rows)}"


def _trainings(results: Results) -> str:
    head = ("server's link", "4 GPUs in one server", "4 GPUs on 4 servers", "ratio")
    rows = [
        (
            f"{t.gbit_per_s:g} Gbit/s",
            f"{t.one_server:.1f} steps/s",
            f"{t.four_servers:.1f} steps/s",
            f"{t.ratio:.2f}",
        )
        for t in results.trainings
    ]
    return grid(head, rows)


def _calibration(results: Results) -> str:
    head = (
        "kernel", "set", "pattern", "published", "computing", "communication", SEQUENTIAL,
    )  # fmt: skip
    rows = [
        (
            row["kernel"],
            row["set"],
            row["pattern"],
            *(
                f"{row[name]:.3f} s"
                for name in ("published_s", "compute_s", "communication_s", "simulated_s")
            ),
        )
        for row in calibration_rows(results)
    ]
    return (
        "<p>Computing is the published time of class A on 4 processes, which run in one node, "
        "times the ratio of operations for each process. The rest of the published mean is "
        "communication in the best set, alone, times the slowdown that it has under sequential "
        f"placement in the simulation, with seeds of its own.</p>{grid(head, rows)}"
    )
