"""The live comparison as a self-contained page, and as a table in CSV."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from headgate.experiments.flow import COMMAND
from headgate.experiments.flow.live import Comparison, Pair
from headgate.experiments.flow.live_checks import LOCALITIES, by_uplink, cells, judge
from headgate.reports import pages

PAGE, TABLE = "live.html", "live.csv"


def write(directory: Path, comparison: Comparison) -> None:
    """Write the page, and a row for each policy and network."""
    rows = [_flat(pair) for pair in comparison.pairs]
    pa.csv.write_csv(pa.Table.from_pylist(rows), directory / TABLE)
    (directory / PAGE).write_text(page(comparison), encoding="utf-8")


def page(comparison: Comparison) -> str:
    """Return the whole page."""
    given = comparison.overhead
    shapes = pages.grid(
        ("", "claim", "ours"),
        (
            (pages.mark(agreement.holds), escape(agreement.claim), escape(agreement.ours))
            for agreement in judge(comparison)
        ),
        ("long",) * 3,
    )
    networks = "".join(
        f"<h3>Uplinks of {uplink:g} Mbit/s</h3>{_pairs(pairs)}"
        for uplink, pairs in by_uplink(comparison.pairs).items()
    )
    return pages.document(
        "Flow, live",
        "<h1>The flow policies live, beside the simulator</h1>"
        "<p>Bytes in MB, simulated | measured. A task computes for a stated duration; the "
        f"simulator adds a launch overhead of {given.gpu_s:.2f} s for tasks with GPUs and "
        f"{given.cpu_s:.2f} s for others, in the mean, measured beforehand by jobs without data. "
        "Its figures are means over draws of that overhead for each task; in brackets the minimum "
        "and the maximum.</p>"
        f"<h2>Tables</h2>{networks}<h2>Shapes</h2>{shapes}",
        command=COMMAND,
    )


def _pairs(pairs: Iterable[Pair]) -> str:
    head = (
        "policy",
        "simulated",
        "measured",
        "error",
        "on the node",
        "in the rack",
        "across racks",
    )
    rows = ([escape(cell) for cell in cells(pair)] for pair in pairs)
    return pages.grid(head, rows)


def _flat(pair: Pair) -> dict[str, object]:
    sides = {"simulated": pair.simulated, "measured": pair.measured}
    row: dict[str, object] = {
        "policy": pair.policy,
        "uplink_mbit_per_s": float(pair.uplink_mbit_per_s),
    }
    for name, side in sides.items():
        row[f"{name}_makespan_s"] = side.makespan_s
        for locality, count in zip(LOCALITIES, side.read_bytes, strict=True):
            row[f"{name}_{locality}_bytes"] = count
    return row
