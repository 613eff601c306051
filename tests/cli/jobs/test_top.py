"""`headgate top`: contention of running jobs, and of a simulation's report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headgate.model.topology import ClusterTree
from headgate.protocol import TopologyChanged

GANG = """\
num_nodes: 2
run: train
communication: {pattern: all-reduce-ring, bytes_per_step: 10, step_s: 1.0}
"""
TREE = ClusterTree(
    level_names=("core", "rack", "node"),
    names=("core", "r0", "r1", "n0", "n1"),
    parents=(-1, 0, 0, 1, 2),
    levels=(0, 1, 1, 2, 2),
    bytes_per_s=(float("inf"), 10.0, 10.0, 100.0, 100.0),
)
SCENARIO = """\
cluster:
  racks:
    - {name: r0, nodes: 1, node: {gpus: 2, gpu_memory: 10GB}}
    - {name: r1, nodes: 1, node: {gpus: 2, gpu_memory: 10GB}}
  bandwidths: {disk_bytes_per_s: 9e8, node_link_bytes_per_s: 1e8, rack_uplink_bytes_per_s: 1e8}
policy: fifo
jobs:
  - name: a
    num_nodes: 2
    tasks: [{compute_s: 10}]
    communication: {pattern: all-reduce-ring, bytes_per_step: 1e8, step_s: 1.0}
  - name: b
    num_nodes: 2
    tasks: [{compute_s: 10}]
    communication: {pattern: all-reduce-ring, bytes_per_step: 1e8, step_s: 1.0}
"""


def test_top_shows_slowed_jobs_and_busy_links(up: Any, controller: Any) -> None:
    controller.handle(TopologyChanged(at=controller.clock, topology=TREE))
    for _ in range(2):
        controller.submit(GANG, user="ann", key=None)
    lines = up("top").out.splitlines()
    assert lines[0].split() == ["JOB", "SLOWDOWN", "STEP", "BEST", "STEP", "HOPS", "SHARES",
                                "LINKS", "WITH"]  # fmt: skip
    assert lines[1].split() == ["job-1", "1.31x", "2.6", "s", "2.0", "s", "6", "job-2"]
    lines = up("top", "--links").out.splitlines()
    assert lines[0].split() == ["LINK", "CAPACITY", "LOAD", "USE", "JOBS"]
    assert lines[1].split()[3:] == ["10", "B/s", "7.6", "B/s", "76%", "job-1,", "job-2"]
    assert up("top", "--links", "-o", "json").json["links"][0]["use"] > 0.7


def test_top_of_a_cluster_without_jobs_is_an_empty_table(up: Any) -> None:
    assert len(up("top", "--links").out.splitlines()) == 1
    assert up("top", "-o", "json").json == {"jobs": [], "links": [], "undeclared": []}


def test_simulation_reports_its_links(headgate: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    figures = headgate("simulate", str(path), "-o", "json").json
    assert figures["slowdown"]["mean"] > 1
    assert figures["mean_diameter"] == 6
    assert figures["shared_links"] > 0
    assert figures["links"][0]["jobs"] == ["a", "b"]
    text = headgate("simulate", str(path)).out
    assert "mean diameter" in text
    assert "6.00 hops" in text
    assert "LINK" in text


def test_top_shows_nodes_and_running_jobs_where_none_communicates(up: Any, controller: Any) -> None:
    controller.submit("{run: train}", user="ann", key=None)
    lines = [line.split() for line in up("top").out.splitlines()]
    assert lines[1][:4] == ["n0", "UP", "1/2", "75%"]
    assert lines[2][:3] == ["n1", "UP", "0/2"]
    assert lines[-1][:3] == ["job-1", "ann", "RUNNING"]
