"""`headgate reproduce spillover --live`, very short: all sides, all workloads, one round."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from headgate.cli.reproduce.spillover_live import run_live
from headgate.experiments.frame.report import write
from headgate.experiments.spillover import live_page
from headgate.experiments.spillover.live import RAY, SIDES, LiveNode, LiveOptions

pytestmark = pytest.mark.live


def test_all_sides_execute_all_workloads_correctly_and_nothing_is_left(tmp_path: Path) -> None:
    before = set(Path("/tmp").iterdir())
    options = LiveOptions(
        nodes=tuple(LiveNode(cpus=2, cores=cores) for cores in (0.8, 0.4, 0.4)),
        one_by_one=20,
        in_flight=(200,),
        balance=30,
        arithmetic=(12,),
        megabytes=1.0,
        files=6,
        passes=1,
        rounds=1,
    )
    report = live_page.report(run_live(options, lambda _: None))
    write(tmp_path, report)
    found = report.as_json()

    assert json.loads(json.dumps(found)) == found
    (table,) = found["tables"]
    counts = {"sync": 20, "async": 200, "balance": 30, "scan": 6, "join": 6, "arithmetic": 12}
    rows = table["rows"]
    assert [(row["workload"], row["count"]) for row in rows if row["side"] == RAY] == list(
        counts.items()
    )
    assert len(rows) == len(counts) * len(SIDES)
    for side in SIDES:  # each node takes part
        (row,) = [r for r in rows if (r["workload"], r["side"]) == ("balance", side)]
        assert min(row[f"n{number}_percent"] for number in range(3)) > 0
    holds = {shape["id"]: shape["holds"] for shape in found["shapes"]}
    assert holds["live-right"]
    assert {shape for shape, verdict in holds.items() if verdict is None} == {"live-mixed-swrr"}
    assert "resource-Pick_kx" in (tmp_path / "live.html").read_text()
    assert len((tmp_path / "live.csv").read_text().splitlines()) == len(rows) + 1

    left = {path for path in set(Path("/tmp").iterdir()) - before if str(os.getpid()) in path.name}
    assert left == set()
    groups = list(Path("/sys/fs/cgroup").glob(f"**/hgcpu{os.getpid()}-*"))
    assert groups == []
    mark = f"hgbed{os.getpid()}x"
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if any(mark in word for word in command)]
