"""The live comparison's jobs, stated durations, figures of both sides and agreements."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.experiments import bed
from headgate.experiments.flow import PAPER
from headgate.experiments.flow.live import (
    Comparison,
    MeasuredPolicy,
    Overhead,
    Side,
    calibration_jobs,
    make_jobs,
    mean_side,
    places,
    stated_times_s,
)
from headgate.experiments.flow.live_checks import as_json, bytes_errors, judge, makespan_error
from headgate.experiments.flow.live_page import report
from headgate.experiments.frame.paper import LIVE
from headgate.experiments.frame.report import write
from headgate.model import Job, ProgramType, Shard
from headgate.reports.pages import generator, is_ours
from headgate.spec import expand, load_job
from headgate.workloads.padded import STATED, count, duration_s
from headgate.workloads.task import TaskContext, resolve
from headgate.workloads.verify import verify

OVERHEAD = Overhead(start=(0.0, 0.5), gpu=(0.25, 0.75), cpu=(0.25,))


def pair(policy: str, simulated_s: float, measured_s: float, **more: object) -> MeasuredPolicy:
    return replace(
        MeasuredPolicy(
            policy=policy,
            uplink_mbit_per_s=100,
            simulated=Side(makespan_s=simulated_s, read_bytes=(60, 30, 10)),
            simulated_range_s=(simulated_s, simulated_s),
            measured=Side(makespan_s=measured_s, read_bytes=(60, 30, 10)),
            overhead=OVERHEAD,
        ),
        **more,  # type: ignore[arg-type]
    )


def holds(*pairs: MeasuredPolicy) -> dict[str, bool]:
    comparison = Comparison(pairs=pairs, overhead=OVERHEAD)
    return {agreement.id: agreement.holds for agreement in judge(comparison)}


# --- agreements ----------------------------------------------------------------------------------


def test_simulated_makespan_within_tolerance_of_the_measured_one_agrees() -> None:
    assert makespan_error(pair("fs", 12.0, 10.0)) == pytest.approx(0.2)
    assert holds(pair("fs", 11.9, 10.0))["makespan-100-fs"]
    assert not holds(pair("fs", 12.1, 10.0))["makespan-100-fs"]
    assert not holds(pair("fs", 7.9, 10.0))["makespan-100-fs"]


def test_bytes_errors_are_relative_to_all_bytes_read_live() -> None:
    far = pair("fs", 1, 1, simulated=Side(makespan_s=1, read_bytes=(54, 30, 18)))
    assert bytes_errors(far) == pytest.approx((-0.06, 0.0, 0.08))
    assert not holds(far)["bytes-100-fs"]
    near = pair("fs", 1, 1, simulated=Side(makespan_s=1, read_bytes=(56, 32, 12)))
    assert holds(near)["bytes-100-fs"]


def test_order_of_policies_may_differ_only_between_ties() -> None:
    assert holds(pair("a", 10, 10), pair("b", 12, 20))["order-100"]
    assert not holds(pair("a", 10, 20), pair("b", 12, 10))["order-100"]
    assert holds(pair("a", 10.0, 20), pair("b", 10.4, 10))["order-100"], "a tie when simulated"
    assert holds(pair("a", 10, 20.4), pair("b", 12, 20.0))["order-100"], "a tie when measured"
    assert "order-100" not in holds(pair("a", 1, 1)), "one policy has no order"


def test_mean_of_simulations_is_compared() -> None:
    sides = [Side(makespan_s=s, read_bytes=(n, 10, 100 - n)) for s, n in ((8, 30), (12, 50))]
    assert mean_side(sides) == Side(makespan_s=10, read_bytes=(40, 10, 60))


def test_each_network_is_judged_separately() -> None:
    slow, fast = pair("a", 10, 10), pair("a", 10, 20, uplink_mbit_per_s=1000)
    found = holds(slow, fast)
    assert (found["makespan-100-a"], found["makespan-1000-a"]) == (True, False)


def test_wrong_results_are_reported() -> None:
    assert not holds(pair("a", 1, 1, wrong={"sort": "record 7 is out of place"}))["results-100"]
    assert holds(pair("a", 1, 1))["results-100"]


def test_page_and_table_have_both_sides(tmp_path: Path) -> None:
    comparison = Comparison(pairs=(pair("fs", 12.0, 10.0), pair("gs", 9.0, 9.0)), overhead=OVERHEAD)
    assert not is_ours(tmp_path / LIVE, PAPER.command)
    written = write(tmp_path, report(comparison))
    assert written == tmp_path / LIVE
    assert is_ours(written, PAPER.command)
    page = written.read_text()
    assert generator(PAPER.command) in page
    assert "12.0 s" in page
    assert "+20.0%" in page
    with (tmp_path / "live.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == ["fs", "gs"]
    assert (rows[0]["simulated_makespan_s"], rows[0]["measured_cluster_bytes"]) == ("12", "10")
    values = as_json(comparison)
    assert values["launch_overhead_s"] == {
        "decision": 0.0,
        "start": 0.25,
        "gpu": 0.75,
        "cpu": 0.5,
    }
    assert values["tables"][0]["policies"]["fs"]["measured"]["bytes"] == {
        "node": 60,
        "rack": 30,
        "cluster": 10,
    }


# --- the jobs ------------------------------------------------------------------------------------


def expanded(text: str, datasets: dict[str, tuple[Shard, ...]]) -> Job:
    return expand(load_job(text), job_id="j", user="u", datasets=datasets, file_sizes={})


def test_every_task_of_every_job_has_a_stated_duration(tmp_path: Path) -> None:
    for made in make_jobs(tmp_path, shards=3):
        datasets = {
            name: tuple(
                Shard(id=f"{name}:{i}", size_bytes=size_bytes)
                for i in range(-(-path.stat().st_size // size_bytes))
            )
            for name, (path, size_bytes) in made.data.items()
        }
        job = expanded(made.text(made.job_kind), datasets)
        stated = stated_times_s(job)
        on_gpus = [task.demand.gpus > 0 for task in job.tasks]
        assert [s > 1.5 for s in stated] == on_gpus, made.job_kind
        assert min(stated) == 1.0, made.job_kind
        for stage in job.program.stages:
            assert stage.program_type is ProgramType.FUNCTION
            assert resolve(stage.run)


def test_calibration_has_tasks_with_and_without_gpus() -> None:
    jobs = [expanded(json.dumps(body), {}) for body in calibration_jobs(2)]
    assert len({job.name for job in jobs}) == 2
    for job in jobs:
        assert not job.shards
        assert {task.demand.gpus for task in job.tasks} == {0, 1}
        assert len(stated_times_s(job)) == len(job.tasks)


def test_most_shards_are_placed_in_the_first_rack() -> None:
    racks = {"r0": ["n0", "n1"], "r1": ["n2", "n3"]}
    found = places({"a": 200, "b": 3}, racks)
    assert [len(nodes) for nodes in found.values()] == [200, 3]
    assert 0.65 < sum(node in racks["r0"] for node in found["a"]) / 200 < 0.85
    assert set(found["a"]) == {"n0", "n1", "n2", "n3"}
    assert found == places({"a": 200, "b": 3}, racks)


# --- padding -------------------------------------------------------------------------------------


def test_padded_kernel_computes_and_sleeps_until_its_stated_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("headgate.workloads.padded.time.sleep", slept.append)
    made = make_jobs(tmp_path, kinds=["occurrence"], shards=1)[0]
    (shard,) = made.inputs.files.values()
    params = {**made.inputs.params, STATED: 60.0}
    parts = tmp_path / "counted"
    count(TaskContext(index=0, count=1, shards=(shard,), output=parts, params=params))
    assert 0 < slept[0] <= 90
    merged = tmp_path / "merged"
    merge = resolve("headgate.workloads.padded:merge")
    merge(TaskContext(index=0, count=1, shards=(parts,), output=merged, params={STATED: 0}))
    assert slept[1] == 0
    assert verify(made.inputs, [merged]) == ""


def test_tasks_of_a_stage_have_different_durations() -> None:
    durations = [duration_s({STATED: 4.0}, index) for index in range(20)]
    assert durations[0] == 4.0
    assert min(abs(a - b) for n, a in enumerate(durations) for b in durations[:n]) > 0.05
    assert max(durations) < 6.0
    assert duration_s({STATED: 0}, 3) == 0


@pytest.mark.parametrize("stated", [{}, {STATED: -1}, {STATED: "long"}])
def test_task_without_a_valid_stated_duration_is_rejected(
    tmp_path: Path, stated: dict[str, object]
) -> None:
    nothing = resolve("headgate.workloads.padded:nothing")
    with pytest.raises(Exception, match="must be seconds"):
        nothing(TaskContext(index=0, count=1, shards=(), output=tmp_path / "o", params=stated))


# --- rejected input ------------------------------------------------------------------------------


def test_live_comparison_without_root_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bed, "HAS_NETWORK", False)
    out = tmp_path / "report"
    code = main.run(["reproduce", "flow", "--live", "--out", str(out), "-o", "json"])
    assert code == 1
    assert json.loads(capsys.readouterr().err)["code"] == "needs_root"
    assert not out.exists()


def test_unknown_policy_of_a_live_comparison_is_rejected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main.run(["reproduce", "flow", "--live", "--policies", "fss", "-o", "json"])
    assert code == 2
    assert json.loads(capsys.readouterr().err)["problems"][0]["path"] == "--policies"
