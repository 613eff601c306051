"""The report of the live comparison: a page, and a row for each policy and network."""

from __future__ import annotations

from headgate.experiments.flow import PAPER
from headgate.experiments.flow.live import Comparison, MeasuredPolicy
from headgate.experiments.flow.live_checks import as_json, by_uplink, cells, judge
from headgate.experiments.flow.tables import LOCALITIES
from headgate.experiments.frame.claims import agreed
from headgate.experiments.frame.paper import LIVE
from headgate.experiments.frame.report import Claims, Report, Table


def report(comparison: Comparison) -> Report:
    """Return the page, and the pairs as CSV."""
    given = comparison.overhead
    tables = [
        Table(
            title=f"Uplinks of {uplink:g} Mbit/s; bytes: simulated | measured, MB",
            head=(
                "policy", "simulated", "measured", "error", "on the node", "in the rack",
                "across racks",
            ),
            brief=("POLICY", "SIMULATED", "MEASURED", "", "ON NODE", "IN RACK", "ACROSS"),
            rows=[cells(pair) for pair in pairs],
        )
        for uplink, pairs in by_uplink(comparison.pairs).items()
    ]  # fmt: skip
    overhead = (
        f"Launch overhead given to the simulator: {given.gpu_s:.2f} s with GPUs, "
        f"{given.cpu_s:.2f} s without"
    )
    return Report(
        paper=PAPER,
        page=LIVE,
        title="The flow policies live, beside the simulator",
        words="A task computes for a stated duration; the "
        f"simulator adds a launch overhead of {given.gpu_s:.2f} s for tasks with GPUs and "
        f"{given.cpu_s:.2f} s for others, in the mean, measured beforehand by jobs without data. "
        "Its figures are means over draws of that overhead for each task; in brackets the minimum "
        "and the maximum.",
        claims=Claims(rows=agreed(judge(comparison)), title="Shapes", counted=False),
        sections=[("Tables", "".join(table.html() for table in tables))],
        files={"live.csv": [_flat(pair) for pair in comparison.pairs]},
        shown=[*tables, ("", overhead)],
        facts=as_json(comparison),
        called="The same as a page",
    )


def _flat(pair: MeasuredPolicy) -> dict[str, object]:
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
