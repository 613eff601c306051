"""The benchmark command of the flow core: its output, and the input that it rejects."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import _flow_instance as command
from flow_bench.instances import generate
from flow_bench.problem import Source
from flow_bench.report import Report, measure
from flow_bench.structure import save

COMMAND = Path(__file__).parents[2] / "bench" / "_flow_instance.py"
CONTRACT = {
    "cold_ms", "warm_ms", "warm_recomputed_ms", "build_ms", "ortools_cold_ms", "ortools_solve_ms",
    "lemon_ms", "optimal_cost", "certificate", "peak_rss_mb",
}  # fmt: skip


@pytest.fixture(scope="module", params=[1, 4])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report on a small instance read from a file."""
    path = tmp_path_factory.mktemp("bench") / "small.npz"
    save(generate("S", "base", 7), path)
    return measure(Source(path=path, classes=request.param, seed=7), lemon_limit_s=0)


def test_the_optimum_is_certified_and_equals_that_of_the_peers(report: Report) -> None:
    assert report.optimal_cost == report.ortools_cost
    assert (report.certificate.violations, report.certificate.gap) == (0, 0)
    assert report.disagreements() == []
    assert report.rounds >= 9
    assert report.changes_per_round >= 1
    assert report.peak_rss_mb >= report.start_rss_mb > 0


def test_differing_optima_and_violated_conditions_are_reported(report: Report) -> None:
    wrong = dataclasses.replace(
        report,
        ortools_cost=report.optimal_cost - 1,
        certificate=dataclasses.replace(report.certificate, violations=3, gap=9),
    )
    differ, broken = wrong.disagreements()
    assert f"OR-tools found {report.optimal_cost - 1}" in differ
    assert "3 conditions are broken, the gap is 9" in broken


def test_the_command_prints_one_json_object() -> None:
    asked = ["--size", "S", "--load", "sat", "--seed", "7", "--lemon-limit-s", "0", "-o", "json"]
    ended = subprocess.run(
        [sys.executable, COMMAND, *asked],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(ended.stdout)
    assert said.keys() >= CONTRACT
    assert said["certificate"] == {"violations": 0, "gap": 0}
    assert said["lemon_ms"] is None
    assert said["cold_ms"] > said["build_ms"] > 0


def test_tasks_without_room_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = generate("S", "over5", 1)
    none = np.zeros_like(made.unscheduled_capacity)
    save(dataclasses.replace(made, unscheduled_capacity=none), tmp_path / "tight.npz")
    assert command.main(["--instance", str(tmp_path / "tight.npz")]) == 2
    waiting = len(made.tasks) - int(made.free.sum())
    assert f"{waiting} tasks have no room" in capsys.readouterr().err


def test_costs_too_large_for_the_solver_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = generate("S", "base", 1)
    made.tasks.cluster_cost[3] = np.iinfo(np.int64).max
    save(made, tmp_path / "dear.npz")
    assert command.main(["--instance", str(tmp_path / "dear.npz")]) == 2
    said = capsys.readouterr().err
    assert str(np.iinfo(np.int64).max) in said
    assert "Traceback" not in said


def test_bad_files_are_rejected_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("nodes: 15\n")
    (tmp_path / "empty").write_bytes(b"")
    np.save(tmp_path / "one.npy", np.arange(3))
    np.savez(tmp_path / "objects.npz", rack=np.array([{}], object))
    whole = (tmp_path / "objects.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("text", "empty", "one.npy", "objects.npz", "cut.npz", "absent.npz", "."):
        assert command.main(["--instance", str(tmp_path / name), "-o", "json"]) == 2, name
        said = capsys.readouterr()
        assert said.out == ""
        assert str(tmp_path / name) in said.err
        assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "asked", [[], ["--size", "S", "--classes", "0"], ["--size", "S", "--seed", "one"]]
)
def test_bad_arguments_are_rejected_with_a_message(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(asked)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err
