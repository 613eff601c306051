"""Topology files on the command line."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

from headgate.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"
THREE_TASKS = EXAMPLES / "three-tasks.yaml"
TREE = """\
levels: [{name: core}, {name: rack, bandwidth: 2e8}, {name: node, bandwidth: 1e8}]
tree: {r1: [node1], r2: [node2]}
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program in this process, without the start of an interpreter."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([*map(str, arguments)])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    return file


def test_simulation_with_a_topology_gives_the_engine_its_event(tmp_path: Path) -> None:
    file = written(tmp_path, TREE)
    with_it = run("simulate", THREE_TASKS, "--topology", file, "-o", "json")
    assert with_it.returncode == 0
    assert json.loads(with_it.stdout)["jobs_finished"] == 2


def scenario_with(tmp_path: Path, topology: str) -> Path:
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{THREE_TASKS.read_text()}\ntopology:{topology}\n")
    return file


def test_topology_of_a_scenario_is_a_file_beside_it_or_a_mapping(tmp_path: Path) -> None:
    file = written(tmp_path, TREE)
    expected = run("simulate", THREE_TASKS, "--topology", file, "-o", "json").stdout
    inline = "".join(f"\n  {line}" for line in TREE.splitlines())
    for topology in (f" {file.name}", inline):
        scenario = scenario_with(tmp_path, topology)
        assert run("simulate", scenario, "-o", "json").stdout == expected
    twice = run("simulate", scenario, "--topology", file)
    assert twice.returncode == 2
    assert "--topology: the scenario has the key 'topology' already" in twice.stderr


def test_problems_of_a_topology_file_are_those_of_the_scenario(tmp_path: Path) -> None:
    file = written(tmp_path, TREE.replace("2e8", "0").replace("[node2]", "[node2, node1]"))
    result = run("simulate", scenario_with(tmp_path, f" {file.name}"))
    assert result.returncode == 2
    for problem in ("levels[1].bandwidth (line 1): must be", "tree.r2[1] (line 2): 'node1' is in"):
        assert f"topology.yaml: {problem}" in result.stderr


def test_simulation_rejects_a_topology_of_another_cluster(tmp_path: Path) -> None:
    file = written(tmp_path, TREE.replace("node", "host").replace("name: host", "name: node"))
    result = run("simulate", THREE_TASKS, "--topology", file)
    assert result.returncode == 2
    assert "does not name the nodes node1, node2 of the cluster" in result.stderr
    trace = ("--trace", EXAMPLES / "philly-500.parquet", "--gpus", "64", "--policy", "fifo")
    assert (
        "--topology: requires a scenario file" in run("simulate", *trace, "--topology", file).stderr
    )


def test_simulation_reports_every_problem_of_a_topology(tmp_path: Path) -> None:
    file = written(tmp_path, TREE.replace("2e8", "0").replace("[node2]", "[node2, node1]"))
    result = run("simulate", THREE_TASKS, "--topology", file)
    assert result.returncode == 2
    assert "levels[1].bandwidth (line 1): must be at least 1, not 0" in result.stderr
    assert "tree.r2[1] (line 2): 'node1' is in r1 already" in result.stderr


def test_file_is_checked_and_drawn_without_a_cluster(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """\
levels: [{name: core}, {name: rack, bandwidth: 2e8}, {name: node, bandwidth: 1e8}]
tree: {r1: [a, b], r2: [c]}
gpus: {count: 4, bandwidth: 16e9, levels: [{name: socket, bandwidth: 20e9, each: 2}]}
nodes: {b: {bandwidth: 1e9}}
""",
    )
    result = run("topology", file, "--svg", tmp_path / "drawing.svg")
    assert result.returncode == 0
    assert (
        result.stdout
        == """\
core   9 of 9 free
  r1   5 of 5 free  190.7 MiB/s
    a  .. ..  4 of 4 free
    b  .
  r2   4 of 4 free  190.7 MiB/s
    c  .. ..  4 of 4 free

. free
"""
    )
    root = ET.parse(tmp_path / "drawing.svg").getroot()
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "a:0: free" in titles
    assert json.loads(run("topology", file, "-o", "json").stdout)["kind"] == "tree"


def test_wrong_file_and_options_are_reported(tmp_path: Path) -> None:
    file = written(tmp_path, TREE.replace("2e8", "0"))
    result = run("topology", file)
    assert (result.returncode, result.stdout) == (2, "")
    assert "levels[1].bandwidth (line 1): must be at least 1, not 0" in result.stderr
    assert "--set: requires a FILE" in run("topology", "--set").stderr
    assert "--reset: takes no FILE" in run("topology", file, "--reset").stderr


def test_output_of_nvidia_smi_becomes_part_of_a_file(tmp_path: Path) -> None:
    matrix = tmp_path / "topo.txt"
    matrix.write_text("  GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X SYS\nGPU2 SYS SYS X\n")
    result = run("topology", "--nvidia-smi", matrix)
    assert (
        result.stdout
        == """\
gpus:
  bandwidth: 1.6e+10
  levels:
    - {name: switch, bandwidth: 1.6e+10, groups: [[0, 1], [2]]}
"""
    )
