"""`headgate top`: contention of running jobs, and of a simulation's report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
    found = up("top", "-o", "json").json
    assert {key: len(value) for key, value in found.items()} == {
        "jobs": 0, "links": 0, "undeclared": 0, "nodes": 2, "gpus": 4, "queues": 2, "running": 0,
    }  # fmt: skip
    used = {"node": "n0", "index": 1, "actual_memory_bytes": 1 << 30, "utilisation": 0.75}
    assert found["gpus"][1].items() >= used.items()


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


def test_page_is_printed_once_where_it_cannot_be_drawn(up: Any, controller: Any) -> None:
    controller.submit("{run: train}", user="ann", key=None)
    out = up("top").out
    assert up("top", "--once").out == out
    assert up("top", "-o", "wide").out.split() == out.split()
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("0", "must be from 0.1 s to 3600 s"),
        ("0.01", "must be from"),
        ("1e9", "must be from"),
        ("2d", "must be from"),
        ("-1", "'-1' is not a time"),
        ("nan", "'nan' is not a time"),
        ("inf", "'inf' is not a time"),
        ("1e999", "'1e999' is not a time"),
        ("fast", "'fast' is not a time"),
        ("2", "needs a terminal"),
        ("0.5s", "needs a terminal"),
        ("2 --once", "with --once the page is printed once"),
        ("2 -o wide", "with -o wide the page is printed once"),
    ],
)
def test_interval_is_checked(up: Any, given: str, problem: str) -> None:
    output = up("top", "--interval", *given.split())
    assert (output.code, output.out) == (2, "")
    assert f"--interval: {problem}" in output.err


def test_interval_of_json_is_an_error(up: Any) -> None:
    error = up("top", "--interval", "2", "-o", "json").error
    assert error["problems"][0]["hint"] == "leave out -o json, or --interval"
