"""`headgate simulate`: figures and errors; tests/sim/test_determinism.py has equal output."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.app import POLICIES
from headgate.cli import main

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
THREE_TASKS = EXAMPLES / "three-tasks.yaml"
PHILLY = EXAMPLES / "philly-500.parquet"

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


def history(path: Path, *rows: tuple[float, float, float], **columns: list[Any]) -> Path:
    """Write a trace of (submit, duration, GPUs), and further columns."""
    submit_s, duration_s, gpus = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        {
            "job_id": pa.array([f"j{n}" for n in range(len(rows))], pa.string()),
            "submit_s": pa.array(submit_s, pa.float64()),
            "duration_s": pa.array(duration_s, pa.float64()),
            "gpus": pa.array(gpus, pa.float64()),
        }
        | columns
    )
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("place", ["closed-minimum", "best-fit-subtree"])
def test_gangs_in_racks_of_their_own_run_faster_than_in_numeric_order(place: str) -> None:
    spread, near = (
        figures(EXAMPLES / "links.yaml"),
        figures(EXAMPLES / "links.yaml", "--place", place),
    )
    shared = [link["link"] for link in spread["links"] if link["jobs"]]
    assert sorted(shared) == ["core -> rack2", "rack2 -> core"]
    assert (spread["shared_links"], near["shared_links"]) == (2, 0)
    assert near["slowdown"] == {"mean": 1.0, "p95": 1.0}
    assert near["makespan_s"] == pytest.approx(600)
    assert spread["makespan_s"] > 1.4 * near["makespan_s"]


def test_gangs_are_placed_by_a_topology_and_a_placer(tmp_path: Path) -> None:
    tasks = ", ".join(["{compute_s: 10, gpus: 1}"] * 9)
    scenario, mesh = tmp_path / "scenario.yaml", tmp_path / "mesh.yaml"
    scenario.write_text(f"""
cluster:
  racks: [{{name: r, nodes: 16, node: {{gpus: 1, gpu_memory: 1GB}}}}]
  bandwidths: {{disk_bytes_per_s: 1GB, node_link_bytes_per_s: 1GB, rack_uplink_bytes_per_s: 1GB}}
policy: {{order: arrival, place: closed-minimum, backfill: easy}}
jobs: [{{name: one, gang: true, tasks: [{tasks}]}}]
""")
    mesh.write_text('mesh: {shape: [4, 4], nodes: "r-n[1-16]", bandwidth: 1GB}')
    shown = figures(scenario, "--topology", mesh)["placements"]
    boxed = [f"r-n{n}" for n in (1, 2, 3, 5, 6, 7, 9, 10, 11)]
    assert [each["node"] for each in shown] == boxed
    shown = figures(scenario, "--topology", mesh, "--place", "sequential")["placements"]
    assert [each["node"] for each in shown] == [f"r-n{n}" for n in range(1, 10)]
    warned = run(scenario, "--topology", mesh, "--place", "best-fit-subtree")
    assert "1 job (such as one) with a number of GPUs that is no power of two" in warned.stderr
    problems = refused(scenario, "--place", "closed-minimun")["problems"]
    assert problems[0]["path"] == "policy.place"
    assert problems[0]["hint"] == "did you mean 'closed-minimum'?"


@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill", "gs"])
def test_processes_of_num_nodes_run_together_on_a_node_each(tmp_path: Path, policy: str) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(f"""
cluster:
  racks: [{{name: r, nodes: 3, node: {{gpus: 2, gpu_memory: 1GB}}}}]
  bandwidths: {{disk_bytes_per_s: 1GB, node_link_bytes_per_s: 1GB, rack_uplink_bytes_per_s: 1GB}}
policy: {policy}
jobs:
  - {{name: before, tasks: [{{compute_s: 5, gpus: 2}}]}}
  - {{name: train, num_nodes: 3, tasks: [{{compute_s: 9}}]}}
""")
    placements = figures(scenario)["placements"]
    train = [place for place in placements if place["task"].startswith("train/")]
    assert sorted(place["node"] for place in train) == ["r-n1", "r-n2", "r-n3"]
    assert {place["at_s"] for place in train} == {5.0}


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
    assert result["reservations"] == {
        "made": 0, "broken": 0, "mean_delay_s": None,
        "kept_ratio": None, "superseded": 0, "hardened": 0,
        "longest_hardened_wait_s": None,
    }  # fmt: skip
    sizes = {row.pop("gpus_at_least"): row for row in result["wait_by_size"]}
    assert [*sizes] == [1, 2, 4, 8, 16, 32, 64]
    assert sizes[1] == {"jobs": 4, "mean_wait_s": 55.0, "p99_wait_s": pytest.approx(89.7)}
    assert sizes[2] == {"jobs": 3, "mean_wait_s": 140 / 3, "p99_wait_s": pytest.approx(89.2)}
    assert sizes[4] == {"jobs": 1, "mean_wait_s": 50.0, "p99_wait_s": 50.0}
    assert sizes[8] == {"jobs": 0, "mean_wait_s": None, "p99_wait_s": None}
    # fluid: 3 GPUs from 10 s, 2 and 2 from 20 s, 1.5, 1.5 and 1 from 30 s to 40 s, 2 and 2 to
    # 72.5 s, when the second job ends; the first one then has 3 again until 129.1667 s
    rho = [100 / (119 + 1 / 6), 140 / 52.5, 90 / 10]  # a job that takes no time has none
    assert result["finish_time_fairness"] == {
        "mean": pytest.approx(sum(rho) / 3),
        "p95": pytest.approx(rho[1] + 0.9 * (rho[2] - rho[1])),
        "worst": pytest.approx(9.0),
    }
    assert result["bytes"] == {"node": 0, "rack": 0, "cluster": 0}
    assert result["decisions"]["mean_s"] == result["decisions"]["max_s"] == 0.0
    rows = pq.read_table(out).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("j0", 10.0, 10.0, 110.0, 3, None),
        ("j1", 20.0, 110.0, 160.0, 2, None),
        ("j2", 30.0, 110.0, 120.0, 1, None),
        ("j3", 110.0, 160.0, 160.0, 4, None),
    ]


def test_finish_time_fairness_is_between_the_parts_of_a_trace(tmp_path: Path) -> None:
    """One GPU, in order of arrival; fluid: half of it for the part with one job."""
    rows = [(0.0, 10.0, 1.0)] * 3
    path = tmp_path / "t.parquet"
    run_there = ("--trace", path, "--gpus", "1", "--policy", "fifo")
    for column in ("vc", "user"):
        history(path, *rows, **{column: ["x", "x", "y"]})
        # ends of fluid sharing: the third at 20 s, the others at 30 s
        rho = figures(*run_there)["finish_time_fairness"]
        assert rho["mean"] == pytest.approx((10 / 30 + 20 / 30 + 30 / 20) / 3)
        assert rho["worst"] == pytest.approx(1.5)


def test_one_part_of_a_trace_is_simulated(tmp_path: Path) -> None:
    rows = ((0, 10, 1), (1, 10, 1), (2, 30, 1))
    trace = history(tmp_path / "t.parquet", *rows, vc=["x", "y", "x"])
    result = figures("--trace", trace, "--gpus", "1", "--policy", "fifo", "--vc", "x")
    assert (result["jobs_finished"], result["makespan_s"]) == (2, 40.0)


def test_queues_of_a_trace_share_equally(tmp_path: Path) -> None:
    """4 GPUs, 8 jobs of one queue before 4 of another; `fs` entitles each queue to half."""
    rows = [(0.0, 10.0, 1.0)] * 12
    trace = history(tmp_path / "t.parquet", *rows, vc=["x"] * 8 + ["y"] * 4)
    out = tmp_path / "jobs.parquet"
    run_there = ("--trace", trace, "--gpus", "4", "--policy", "fs", "--jobs-out", out)
    waits: dict[str, list[float]] = {}
    for options in ((), ("--queue-column", "vc")):
        figures(*run_there, *options)
        waits[str(options)] = sorted(pq.read_table(out)["start_s"].to_pylist()[8:])
    assert waits["('--queue-column', 'vc')"] == [0.0, 0.0, 10.0, 10.0]
    assert waits["()"] != waits["('--queue-column', 'vc')"]


def test_options_of_traces_hold_for_the_trace_of_a_scenario(tmp_path: Path) -> None:
    rows = ((0, 10, 1), (1, 10, 1), (2, 30, 2))
    history(tmp_path / "t.parquet", *rows, vc=["x", "y", "x"])
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        """
cluster:
  racks: [{name: r1, nodes: 2, node: {gpus: 1, gpu_memory: 1GB}}]
  bandwidths:
    {disk_bytes_per_s: 1GB, node_link_bytes_per_s: 1GB, rack_uplink_bytes_per_s: 1GB}
policy: fifo
trace: t.parquet
queues: [{name: x, max_gpus: 1}]
"""
    )
    assert figures(scenario)["jobs_finished"] == 3
    result = figures(scenario, "--vc", "x", "--queue-column", "vc")
    assert (result["jobs_finished"], result["rejected"]) == (1, {"QueueTooSmall": 1})
    assert result["wait_by_size"][0]["jobs"] == 1


def test_scenario_without_a_trace_has_no_figures_of_traces() -> None:
    result = figures(THREE_TASKS)
    assert result["wait_by_size"] is None
    assert result["finish_time_fairness"] is None
    assert result["reservations"]["made"] == 0


def test_exact_and_declared_estimates_reach_a_policy_that_learns_nothing_else(
    tmp_path: Path,
) -> None:
    """The same run under each source of estimates ends, and two need the column."""
    trace = history(tmp_path / "t.parquet", *[(n, 10, 1) for n in range(9)])
    run_there = ("--trace", trace, "--gpus", "2", "--policy", "headgate", "--estimates")
    for source in ("learnt", "exact", "modelled"):
        assert figures(*run_there, source)["jobs_finished"] == 9
    for source in ("declared", "corrected"):
        (problem,) = refused(*run_there, source)["problems"]
        assert problem["path"] == f"{trace}:estimate_s"
        assert "learnt" in problem["hint"]
    history(trace, *[(n, 10, 1) for n in range(9)], estimate_s=[60.0] * 9)
    for source in ("declared", "corrected"):
        assert figures(*run_there, source)["jobs_finished"] == 9


def test_declared_estimates_are_those_of_the_trace_and_corrected_ones_learn(
    tmp_path: Path,
) -> None:
    """After jobs that took a tenth of their declared times, a late one backfills if it is alike."""
    jobs = [(0, 10, 1)] * 6 + [(700, 1000, 1), (701, 10, 2), (1500, 30, 1)]
    trace = history(tmp_path / "t.parquet", *jobs, estimate_s=[100.0] * 6 + [1000.0, 10.0, 300.0])
    out = tmp_path / "jobs.parquet"
    run_there = ("--trace", trace, "--gpus", "2", "--policy", "easy-backfill", "--jobs-out", out)
    starts = {}
    for source in ("declared", "corrected"):
        figures(*run_there, "--estimates", source)
        starts[source] = pq.read_table(out)["start_s"].to_pylist()[-1]
    assert starts == {"declared": 1710.0, "corrected": 1500.0}


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


def test_jobs_that_can_never_run_are_counted(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", (0, 10, 1), (0, 10, 2), (0, 10, 9))
    result = figures("--trace", trace, "--gpus", "4", "--policy", "fs")
    assert result["jobs_finished"] == 2
    assert result["jobs_rejected"] == 1
    assert result["rejected"] == {"NothingFits": 1}


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


def test_table_of_a_trace_shows_waits_by_size_and_finish_time_fairness(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", (0, 10, 2), (0, 10, 1))
    done = run("--trace", trace, "--gpus", "2", "--policy", "fifo")
    assert "wait, 2 GPUs or more" in done.stdout
    assert "wait, 4 GPUs or more" not in done.stdout, "no job is that large"
    assert "finish-time fairness" in done.stdout
    assert "reservations" not in done.stdout, "there are none"


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


def test_forecasts_are_among_the_figures_on_request(tmp_path: Path) -> None:
    trace = history(tmp_path / "t.parquet", *((n, 20 + 7 * n % 30, 1 + n % 3) for n in range(60)))
    options = ("--trace", trace, "--gpus", "4", "--policy", "fifo")
    plain, found = figures(*options), figures(*options, "--forecasts", "0.1")
    forecasts = found.pop("forecasts")
    assert found == plain
    assert 0 < forecasts["answered"] <= forecasts["asked"]
    assert 0 <= forecasts["within"] <= 1
    table = run(*options, "--forecasts", "0.1").stdout
    assert f"{forecasts['answered']} of {forecasts['asked']} answered" in table
    assert "in their 80 % interval" in table


@pytest.mark.parametrize("share", ["0", "-0.1", "1.5", "nan"])
def test_share_of_rounds_with_a_forecast_is_above_0_and_at_most_1(share: str) -> None:
    done = run(THREE_TASKS, "--forecasts", share, "-o", "json")
    assert done.returncode == 2
    problem = json.loads(done.stderr)["problems"][0]
    assert problem["path"] == "--forecasts"
    assert "must be above 0 and at most 1" in problem["problem"]


@pytest.mark.parametrize("resume", ["-1", "nan", "inf", "soon"])
def test_time_to_resume_is_none_or_seconds(resume: str) -> None:
    options = ("--trace", PHILLY, "--gpus", "4", "--policy", "fifo", "--resume", resume)
    (problem,) = refused(*options)["problems"]
    assert problem["path"] == "--resume"
    assert problem["hint"] == "none, or seconds"


def test_unknown_source_of_estimates_is_rejected() -> None:
    options = ("--trace", PHILLY, "--gpus", "4", "--policy", "fifo", "--estimates", "guessed")
    (problem,) = refused(*options)["problems"]
    assert "learnt" in problem["problem"] + problem["hint"]


def test_options_of_traces_are_rejected_for_a_scenario_without_one() -> None:
    options = {"--queue-column": "vc", "--vc": "x", "--estimates": "exact", "--resume": "none"}
    for option, value in options.items():
        (problem,) = refused(THREE_TASKS, option, value)["problems"]
        assert (problem["path"], problem["problem"]) == (option, "requires a trace")
    everything = [text for pair in options.items() for text in pair]
    assert len(refused(THREE_TASKS, *everything)["problems"]) == 4


def test_trace_whose_users_are_half_null_is_rejected(tmp_path: Path) -> None:
    rows = [(0, 10, 1)] * 4
    trace = history(tmp_path / "t.parquet", *rows, user=["ada", None, "bob", None])
    error = refused("--trace", trace, "--gpus", "4", "--policy", "fifo")
    assert error["code"] == "bad_trace"
    (problem,) = error["problems"]
    assert problem["path"] == f"{trace}:user"
    assert "null in 2 of 4 rows" in problem["problem"]


@pytest.mark.parametrize("value", [None, 0.0, float("nan"), -3.0, float("inf")])
def test_bad_declared_estimate_is_rejected_with_its_row(
    tmp_path: Path, value: float | None
) -> None:
    rows = [(0, 10, 1)] * 2
    trace = history(tmp_path / "t.parquet", *rows, estimate_s=[5.0, value])
    options = ("--trace", trace, "--gpus", "4", "--policy", "fifo", "--estimates")
    (problem,) = refused(*options, "declared")["problems"]
    assert problem["path"] == f"{trace}:estimate_s[1]"
    assert figures(*options, "learnt")["jobs_finished"] == 2


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_gang_runs_under_every_policy(tmp_path: Path, policy: str) -> None:
    scenario = edited(tmp_path, "name: job1", "name: job1\n    gang: true")
    assert figures(scenario, "--policy", policy)["jobs_finished"] == 2


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


def test_units_lose_patience_here_as_they_do_live() -> None:
    of = ("--trace", PHILLY, "--gpus", "64", "--policy", "easy-backfill", "--estimates", "learnt")
    found = figures(*of)["reservations"]
    assert found["hardened"] > 0
    assert found["longest_hardened_wait_s"] > 0
