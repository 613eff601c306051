"""`headgate simulate`: figures, errors, and equal output in every process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
THREE_TASKS = EXAMPLES / "three-tasks.yaml"
PHILLY = EXAMPLES / "philly-500.parquet"
HEADGATE = Path(sys.executable).with_name("headgate")

FIGURES = {
    "policy",
    "seed",
    "makespan_s",
    "jobs_finished",
    "mean_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "gpu_utilisation",
    "fairness",
    "bytes",
    "decisions",
}


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program in this process, without the start of an interpreter."""
    command = ["simulate", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def printed_by_a_process(*arguments: str | Path, hash_seed: str) -> str:
    return subprocess.run(
        [HEADGATE, "simulate", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    ).stdout


def figures(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def refused(*arguments: str | Path) -> dict[str, Any]:
    """Return the one JSON object on stderr of a call that ends with exit code 2."""
    return error_with_code(2, *arguments)


def error_with_code(code: int, *arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "-o", "json")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    result: dict[str, Any] = json.loads(done.stderr)
    assert set(result) >= {"code", "problems"}
    assert result["problems"]
    for problem in result["problems"]:
        assert {"path", "problem", "hint"} <= set(problem)
    return result


def history(path: Path, *rows: tuple[float, float, float]) -> Path:
    """Write a trace of (submit, duration, GPUs)."""
    submit_s, duration_s, gpus = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        {
            "job_id": pa.array([f"j{n}" for n in range(len(rows))], pa.string()),
            "submit_s": pa.array(submit_s, pa.float64()),
            "duration_s": pa.array(duration_s, pa.float64()),
            "gpus": pa.array(gpus, pa.float64()),
        }
    )
    pq.write_table(table, path)
    return path


def test_the_three_tasks_example_is_fair_and_local() -> None:
    result = figures(THREE_TASKS)
    assert result.keys() >= FIGURES | {"placements"}
    assert result["placements"][:2] == [
        {"task": "task11", "node": "node1", "locality": "node", "at_s": 0.0},
        {"task": "task21", "node": "node2", "locality": "node", "at_s": 0.0},
    ]
    assert result["placements"][2]["task"] == "task12"
    assert result["makespan_s"] == 50.0
    assert result["bytes"] == {"node": 3 * 10**9, "rack": 0, "cluster": 0}
    # alone on one of two GPUs (1.4 jobs are active on average): 60 s and 20 s, here 50 s and 20 s
    assert result["fairness"] == {"mean": pytest.approx(1.1), "deviation": pytest.approx(0.1)}


def test_a_trace_has_the_figures_computed_by_hand(tmp_path: Path) -> None:
    """4 GPUs; the second job is the head and holds back the third until both fit."""
    trace = history(
        tmp_path / "t.parquet",
        (10.0, 100.0, 2.5),  # 3 GPUs from 10 to 110
        (20.0, 50.0, 2),  # waits for 110, to 160
        (30.0, 10.0, 1),  # would fit immediately, but is behind the second: 110 to 120
        (110.0, 0.0, 4),  # equal time: after the end at 110, first in the queue, starts at 160
        (120.0, 1.0, 5),  # more than the cluster has
    )
    out = tmp_path / "jobs.parquet"
    result = figures("--trace", trace, "--gpus", "4", "--policy", "fifo", "--jobs-out", out)
    assert result["jobs_rejected"] == 1
    assert result["jobs_finished"] == 4
    assert result["makespan_s"] == 150.0
    assert result["mean_wait_s"] == (0 + 90 + 80 + 50) / 4
    assert result["mean_jct_s"] == (100 + 140 + 90 + 50) / 4
    assert result["median_jct_s"] == 95.0
    assert result["p99_jct_s"] == pytest.approx(100 + 0.97 * 40)
    assert result["gpu_utilisation"] == pytest.approx((300 + 100 + 10) / (4 * 150))
    assert result["fairness"] is None
    assert result["bytes"] == {"node": 0, "rack": 0, "cluster": 0}
    assert result["decisions"]["mean_s"] == result["decisions"]["max_s"] == 0.0
    rows = pq.read_table(out).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("j0", 10.0, 10.0, 110.0, 3, None),
        ("j1", 20.0, 110.0, 160.0, 2, None),
        ("j2", 30.0, 110.0, 120.0, 1, None),
        ("j3", 110.0, 160.0, 160.0, 4, None),
    ]


def test_jobs_without_a_gpu_keep_their_place_in_the_queue(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", (0, 10, 2), (1, 5, 2), (2, 5, 0))
    out = tmp_path / "jobs.parquet"
    figures("--trace", trace, "--gpus", "2", "--policy", "fifo", "--jobs-out", out)
    assert pq.read_table(out)["start_s"].to_pylist() == [0.0, 10.0, 10.0]


def test_a_modelled_latency_delays_starts(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", (0, 10, 1))
    result = figures(
        "--trace", trace, "--gpus", "1", "--policy", "fifo", "--decision-latency", "2.5"
    )
    assert result["makespan_s"] == 12.5
    assert result["decisions"] == {"count": 1, "mean_s": 2.5, "max_s": 2.5}


def test_measured_times_are_written_to_a_separate_file(tmp_path: Path) -> None:
    timings = tmp_path / "timings.json"
    with_timings = figures(THREE_TASKS, "--timings", timings)
    assert with_timings == figures(THREE_TASKS)
    measured = json.loads(timings.read_text())
    assert measured["decisions"]["count"] == with_timings["decisions"]["count"]
    assert measured["decisions"]["max_s"] >= measured["decisions"]["mean_s"] > 0


def test_jobs_that_the_policy_does_not_place_are_counted(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", (0, 10, 1), (0, 10, 2), (0, 10, 9))
    result = figures("--trace", trace, "--gpus", "4", "--policy", "fs")
    assert result["jobs_finished"] == 1
    assert result["jobs_rejected"] == 2
    assert result["rejected"] == {"NothingFits": 1, "PolicyRefuses": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        (THREE_TASKS,),
        (THREE_TASKS, "--policy", "fifo", "--seed", "5"),
        ("--trace", PHILLY, "--gpus", "48", "--policy", "fs"),
    ],
    ids=["scenario", "options", "trace"],
)
def test_output_is_equal_for_every_hash_seed(arguments: tuple[str | Path, ...]) -> None:
    outputs = {printed_by_a_process(*arguments, "-o", "json", hash_seed=s) for s in "012"}
    assert len(outputs) == 1
    assert json.loads(outputs.pop())["jobs_finished"] > 0


def test_the_seed_option_changes_the_placement_of_replicas(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        """
cluster:
  racks: [{name: r1, nodes: 8, node: {gpus: 1, gpu_memory: 1GB}}]
  bandwidths:
    {disk_bytes_per_s: 1GB, node_link_bytes_per_s: 1GB, rack_uplink_bytes_per_s: 1GB}
policy: fs
seed: 1
jobs: [{name: a, for_each: {count: 8, compute_s: 1, size_bytes: 1GB, replicas: 1}}]
"""
    )
    written, other = figures(scenario), figures(scenario, "--seed", "2")
    assert written["seed"] == 1
    assert other["seed"] == 2
    assert written["placements"] != other["placements"]
    assert figures(scenario, "--seed", "1") == written


def test_the_default_output_is_a_table() -> None:
    done = run(THREE_TASKS)
    assert done.returncode == 0
    assert "task21" in done.stdout
    assert "makespan" in done.stdout


def edited(tmp_path: Path, old: str, new: str) -> Path:
    text = THREE_TASKS.read_text()
    assert old in text
    path = tmp_path / "edited.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("policy: fs", "polcy: fs", "polcy", "policy"),
        ("policy: fs", "policy: fss", "policy", "fs"),
        ("policy: fs", "policy: {name: fs, alpha9: 2}", "policy.alpha9", "alpha"),
        ("policy: fs", "policy: {name: fs, alpha1: 0.5}", "policy.alpha1", "not above 1"),
        ("seed: 1", "seed: -1", "seed", ""),
        ("seed: 1", "seed: soon", "seed", ""),
        ("size_bytes: 1GB", "size_bytes: -5", "size_bytes", ""),
        ("replicas: [node2]", "replicas: [node3]", "replicas", "node"),
        ("compute_s: 20", "compute_s: 20\n        gpu_memory: 11GB", "tasks", ""),
        ("compute_s: 20", "compute_s: 20\n        after: [task12]", "tasks", ""),
        ("name: job2", "name: job1", "jobs", ""),
    ],
)
def test_problems_of_a_scenario_are_reported_with_their_place(
    tmp_path: Path, old: str, new: str, path: str, words: str
) -> None:
    if "after" in new:
        scenario = edited(tmp_path, old, new)
        text = scenario.read_text()
        after = "compute_s: 20\n        after: [task11]\n        shards:\n          - {name: d12"
        scenario.write_text(
            text.replace("compute_s: 20\n        shards:\n          - {name: d12", after)
        )
    else:
        scenario = edited(tmp_path, old, new)
    result = refused(scenario)
    found = " ".join(f"{p['path']}: {p['problem']} {p['hint']}" for p in result["problems"])
    assert path in found
    assert words in found


def test_all_problems_of_a_scenario_are_reported_together(tmp_path: Path) -> None:
    scenario = edited(tmp_path, "policy: fs\nseed: 1", "policy: nope\nseed: -3\nsed: 1")
    assert len(refused(scenario)["problems"]) == 3


def test_missing_and_invalid_files_are_rejected(tmp_path: Path) -> None:
    trace = ("--gpus", "4", "--policy", "fifo")
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(PHILLY.read_bytes()[:3000])
    empty = history(tmp_path / "empty.parquet")
    negative = history(tmp_path / "negative.parquet", (0, -1, 1), (0, 1, -1))
    refused(tmp_path / "none.yaml")
    refused(tmp_path)
    refused("--trace", tmp_path / "none.parquet", *trace)
    refused("--trace", cut, *trace)
    refused("--trace", empty, *trace)
    assert len(refused("--trace", negative, *trace)["problems"]) == 2
    refused("--trace", THREE_TASKS, *trace)
    refused(PHILLY)


def test_invalid_options_are_rejected() -> None:
    refused()
    refused(THREE_TASKS, "--trace", PHILLY)
    refused(THREE_TASKS, "--gpus", "3")
    refused("--trace", PHILLY)
    refused("--trace", PHILLY, "--gpus", "0", "--policy", "fifo")
    refused("--trace", PHILLY, "--gpus", "many", "--policy", "fifo")
    refused("--trace", PHILLY, "--gpus", "4", "--policy", "fif")
    refused("--trace", PHILLY, "--gpus", "4", "--policy", "fifo", "--seed", "-1")
    refused("--trace", PHILLY, "--gpus", "4", "--policy", "fifo", "--decision-latency", "nan")
    refused(THREE_TASKS, "--decision-latency", "1.7e308")
    refused(THREE_TASKS, "--jobs-out", "/nowhere/at/all.parquet")
    refused(THREE_TASKS, "--polic", "fs")


def test_a_gang_under_fs_is_rejected_with_the_reason(tmp_path: Path) -> None:
    scenario = edited(tmp_path, "name: job1", "name: job1\n    gang: true")
    result = error_with_code(104, scenario)
    assert "fifo" in result["problems"][0]["problem"]
    assert figures(scenario, "--policy", "fifo")["jobs_finished"] == 2


def test_every_verb_takes_a_policy_with_parameters(headgate: Any) -> None:
    file = str(THREE_TASKS)
    assert headgate("simulate", file, "--policy", "fsp,slack=0", "-o", "json").code == 0
    trace = ("--trace", str(PHILLY), "--gpus", "8")
    for verb in (("simulate", file), ("simulate", *trace), ("up",), ("demo",)):
        output = headgate(*verb, "--policy", "fs,alpa1=2", "-o", "json")
        (problem,) = output.error["problems"]
        assert (output.code, problem["path"]) == (2, "policy.alpa1")
        assert problem["hint"] == "did you mean 'alpha1'?"


def test_a_failed_write_keeps_devices_and_leaves_no_part(headgate: Any, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    for option in ("--jobs-out", "--timings"):
        output = headgate(
            "simulate", str(THREE_TASKS), option, str(tmp_path / "full"), "-o", "json"
        )
        assert (output.code, output.error["code"]) == (1, "cannot_write")
        (problem,) = output.error["problems"]
        assert problem["path"] == str(tmp_path / "full")
        assert problem["problem"] == "cannot be written: No space left on device"
    assert (tmp_path / "full").is_symlink()
    assert Path("/dev/full").is_char_device()
