"""`headgate topology` of a running cluster: jobs, links, a file put in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from headgate.cli.cluster import lifecycle

GANG = """\
num_nodes: 2
run: train
communication: {pattern: all-reduce-ring, bytes_per_step: 1e8, step_s: 1.0}
"""
TREE = """\
levels: [{name: core}, {name: rack, bandwidth: 1e8}, {name: node, bandwidth: 1e9}]
tree: {r0: [n0], r1: [n1]}
"""


def test_drawing_shows_jobs_and_the_use_of_links(up: Any, controller: Any, tmp_path: Path) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text(TREE)
    assert "would be in force" in up("topology", str(file), "--set", "--dry-run").out
    assert up("topology", "-o", "json").json["source"] == "racks"
    assert "is in force" in up("topology", str(file), "--set").out
    job = controller.submit(GANG, user="ann", key=None)
    svg = tmp_path / "cluster.svg"
    lines = up("topology", "--svg", str(svg)).out.splitlines()
    assert lines[0].startswith("core")
    (rack,) = [line for line in lines if line.startswith("  r0")]
    assert "link 5" in rack  # a step of 2 s sends for 1 s
    (node,) = [line for line in lines if line.startswith("    n0")]
    assert "A" in node
    assert f"A {job}" in lines[-1]
    assert f": {job}" in svg.read_text()
    assert up("topology", "--reset").code == main.errors.OK
    assert up("topology", "-o", "json").json["source"] == "racks"


def test_up_puts_a_topology_file_in_force_once_the_controller_runs(
    up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(state: Path, **options: Any) -> dict[str, Any]:
        """Stand for the start of nodes: the controller of the test runs already."""
        started.append(options["policy"])
        return {"already_running": False, "nodes": 2, "policy": "fifo", "notes": []}

    monkeypatch.setattr(lifecycle, "start_cluster", start)
    file = tmp_path / "tree.yaml"
    file.write_text(TREE.replace("1e8", "0"))
    assert "levels[1].bandwidth (line 1): must be" in up("up", "--topology", str(file)).err
    assert not started, "a wrong file starts nothing"
    file.write_text(TREE)
    assert up("up", "--topology", str(file), "--place", "sequential").code == main.errors.OK
    assert started == ["headgate,place=sequential"]
    shown = up("topology", "-o", "json").json
    assert shown["source"] == "file"
    assert shown["level_names"][:3] == ["core", "rack", "node"]
