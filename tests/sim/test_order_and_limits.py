"""`after` and `max_running` in simulations: when jobs and tasks start, and what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.app import POLICIES
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import make_policy
from headgate.sim import run as sim_run
from headgate.sim.report import Launches
from headgate.sim.run import Simulation, from_scenario, ideal_times_s, run
from headgate.spec import load_scenario
from headgate.state import JobState

CLUSTER = """\
cluster:
  racks: [{name: r, nodes: 1, node: {gpus: 4, gpu_memory: 1GB}}]
  bandwidths: {disk_bytes_per_s: 1e9, node_link_bytes_per_s: 1e9, rack_uplink_bytes_per_s: 1e9}
policy: fifo
jobs:
"""


def simulated(tmp_path: Path, jobs: str) -> Simulation:
    file = tmp_path / "scenario.yaml"
    file.write_text(CLUSTER + jobs)
    return from_scenario(load_scenario(file, {"fifo": []}), FirstInFirstOut())


@pytest.mark.parametrize("policy", ["fifo", "headgate", "fs", "easy-backfill", "fair", "gs"])
def test_array_runs_as_many_tasks_together_as_it_may(tmp_path: Path, policy: str) -> None:
    text = "  - {name: a, max_running: 2, for_each: {count: 5, size_bytes: 0, compute_s: 10}}\n"
    launches = Launches()
    run(simulated(tmp_path, text), make_policy(POLICIES, policy), observe=(launches,))
    assert [launch.at for launch in launches.seen] == [0, 0, 10, 10, 20]
    assert [launch.ordinal for launch in launches.seen] == [0, 1, 2, 3, 4]


CHAIN = """\
  - {name: a, tasks: [{compute_s: 5}]}
  - {name: b, after: a, tasks: [{compute_s: 7}]}
  - {name: c, submit_s: 1, after: [b, a], tasks: [{compute_s: 1}]}
"""


def test_jobs_start_when_those_before_them_have_finished(tmp_path: Path) -> None:
    records = run(simulated(tmp_path, CHAIN), FirstInFirstOut()).jobs
    assert records.started_at.tolist() == [0, 5, 12]
    assert records.ended_at.tolist() == [5, 12, 13]


def test_job_after_one_that_exceeds_its_time_limit_is_cancelled_and_recorded(
    tmp_path: Path,
) -> None:
    text = CHAIN.replace("{name: a,", "{name: a, time_limit_s: 2,")
    outcome = run(simulated(tmp_path, text), FirstInFirstOut())
    records, figures = outcome.jobs, outcome.figures
    assert (figures["jobs_failed"], figures["jobs_cancelled"]) == (1, 2)
    assert records.state.tolist() == [JobState.FAILED, JobState.CANCELLED, JobState.CANCELLED]
    assert records.ended_at.tolist() == [2, 2, 2]


def test_job_comes_after_one_that_ended_long_before_it_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_run, "ARCHIVED_TOGETHER", 1)
    monkeypatch.setattr("headgate.machine.archiving.COMPACT_ROWS", 1)
    early = "".join(f"  - {{name: e{n}, tasks: [{{compute_s: 1}}]}}\n" for n in range(8))
    late = "  - {name: l, submit_s: 100, after: e0, tasks: [{compute_s: 1}]}\n"
    records = run(simulated(tmp_path, early + late), FirstInFirstOut()).jobs
    assert set(records.state.tolist()) == {JobState.FINISHED}


def test_ideal_time_of_a_job_does_not_wait_for_those_before_it(tmp_path: Path) -> None:
    simulation = simulated(tmp_path, CHAIN)
    outcome = run(simulation, FirstInFirstOut())
    ideal_s = ideal_times_s(simulation, FirstInFirstOut(), outcome)
    assert ideal_s == {"a": 5, "b": 7, "c": 1}
