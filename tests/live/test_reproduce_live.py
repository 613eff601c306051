"""`headgate reproduce flow --live`, very short: one policy, one network, one job of four shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.bed import HAS_NETWORK

from headgate.cli.reproduce.flow_live import compare
from headgate.experiments.flow import live
from headgate.experiments.flow.live import make_jobs
from headgate.experiments.flow.live_checks import judge
from headgate.experiments.flow.live_page import report
from headgate.experiments.frame.report import Table
from headgate.workloads.occurrence import count
from headgate.workloads.task import TaskContext

pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(not HAS_NETWORK, reason="needs root and iproute2"),
]
SHARDS = 4
RACKS = {"r0": 2, "r1": 2}


def test_live_and_simulated_figures_are_reported_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RACKS", RACKS)
    lines: list[str] = []
    found = compare(
        ("gs",), (100,), kinds=("occurrence",), shards=SHARDS, show_progress=lines.append
    )

    (pair,) = found.pairs
    assert (pair.policy, pair.uplink_mbit_per_s, pair.wrong) == ("gs", 100, {})
    assert pair.measured.total_bytes == pair.simulated.total_bytes == _read_bytes(tmp_path)
    assert pair.measured.makespan_s > 6, "five seconds are stated for its tasks, one for the merge"
    assert pair.simulated.makespan_s > 6
    assert 0 < found.overhead.gpu_s < 5
    assert {shape.id for shape in judge(found)} == {
        "results-100", "bytes-100-gs", "makespan-100-gs",
    }  # fmt: skip
    (table, _) = report(found).shown
    assert isinstance(table, Table)
    assert f"{pair.measured.makespan_s:.1f} s" in table.rows[0]
    assert any(line.startswith("gs at 100 Mbit/s: ") for line in lines)


def _read_bytes(folder: Path) -> int:
    """Return the shards that the job reads, and its expected result, counted here."""
    (job,) = make_jobs(folder, kinds=("occurrence",), shards=SHARDS)
    ((path, shard_bytes),) = job.data.values()
    content = path.read_bytes()
    total = len(content)
    for start in range(0, len(content), shard_bytes):
        shard, output = folder / "shard", folder / "output"
        shard.write_bytes(content[start : start + shard_bytes])
        count(
            TaskContext(index=0, count=1, shards=(shard,), output=output, params=job.inputs.params)
        )
        total += output.stat().st_size
    return total
