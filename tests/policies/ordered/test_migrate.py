"""Runs that move to make room: when that is cheaper than waiting, and under all laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headgate.app import POLICIES
from headgate.base.column import Array
from headgate.planning.moves.migration import MOVED, MOVED_FOR
from headgate.ports import Policy, make_policy
from headgate.sim.run import Outcome, from_scenario, run
from headgate.spec import load_scenario
from headgate.state.view import View
from headgate.testing.policy_laws import PolicyLaws

BACKFILLING = [name for name, info in POLICIES.items() if name.endswith("backfill")]

CLUSTER = """\
cluster:
  racks: [{name: r, nodes: 2, node: {gpus: 4, gpu_memory: 1GB, cpus: 4}}]
  bandwidths: {disk_bytes_per_s: 1e9, node_link_bytes_per_s: 1e9, rack_uplink_bytes_per_s: 1e9}
policy: fifo
jobs:
  - {name: a, LIMITtasks: [{compute_s: 4000, gpus: 2, cpus: OF_A, checkpoint_s: EVERY}]}
  - {name: b, tasks: [{compute_s: 100, gpus: 2}]}
  - {name: c, tasks: [{compute_s: 5000, gpus: 2, cpus: OF_A}]}
  - {name: d, submit_s: 205, tasks: [{compute_s: 1000, gpus: 4, cpus: OF_D}]}
  - {name: e, tasks: [{compute_s: 9000, gpus: 0, cpus: 1}]}
"""
"""`a` and `b` share a node; when `b` has ended, each node has 2 idle GPUs, and `d` needs 4."""


def simulated(tmp_path: Path, policy: str, *, every: int = 10, **changes: str) -> Outcome:
    text = CLUSTER.replace("EVERY", str(every)).replace("OF_A", changes.get("cpus", "1"))
    text = text.replace("OF_D", changes.get("of_d", "1"))
    file = tmp_path / "scenario.yaml"
    file.write_text(text.replace("LIMIT", changes.get("limit", "")))
    migrate = {"migrate": changes.get("migrate", "when-cheaper")}
    made = make_policy(POLICIES, policy, migrate)
    return run(from_scenario(load_scenario(file, {"fifo": []}), made), made)


@pytest.mark.parametrize("policy", [*BACKFILLING, "headgate", "fifo", "fair-order"])
def test_run_with_the_cheapest_move_makes_room(tmp_path: Path, policy: str) -> None:
    seen = simulated(tmp_path, policy)
    assert seen.figures["migrations"] == 1
    assert seen.jobs.started_at.max() == 205
    assert seen.figures["lost_gpu_s"] == 2 * 5, "what `a` had computed since its checkpoint"


def test_without_checkpoints_the_later_one_moves(tmp_path: Path) -> None:
    seen = simulated(tmp_path, "easy-backfill", every=0)
    assert seen.figures["migrations"] == 1
    assert seen.figures["lost_gpu_s"] == 2 * 205


def test_nothing_moves_unless_asked(tmp_path: Path) -> None:
    seen = simulated(tmp_path, "easy-backfill", migrate="never")
    assert seen.figures["migrations"] == 0
    assert seen.jobs.started_at.max() == 4000


@pytest.mark.parametrize("name", [MOVED, MOVED_FOR])
def test_nothing_moves_if_that_would_not_pay_with_what_earlier_moves_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read = View.memo

    def memo(view: View, column: str) -> Array:
        found = read(view, column)
        return np.full(len(found), 1e6) if column == name else found

    monkeypatch.setattr(View, "memo", memo)
    assert simulated(tmp_path, "easy-backfill").figures["migrations"] == 0


def test_nothing_moves_if_the_wait_costs_less(tmp_path: Path) -> None:
    seen = simulated(tmp_path, "easy-backfill", limit="time_limit_s: 220, ")
    assert seen.figures["migrations"] == 0
    assert seen.jobs.started_at.max() == 220


def test_nothing_moves_to_where_cpus_are_short(tmp_path: Path) -> None:
    assert simulated(tmp_path, "easy-backfill", cpus="3").figures["migrations"] == 0


@pytest.mark.parametrize(("of_d", "moves"), [("3", 1), ("4", 0)])
def test_nothing_moves_if_cpus_are_short_where_room_would_be(
    tmp_path: Path, of_d: str, moves: int
) -> None:
    seen = simulated(tmp_path, "easy-backfill", of_d=of_d)
    assert seen.figures["migrations"] == moves


class TestMigrating(PolicyLaws):
    """The laws of policies when runs move."""

    worlds = 60
    idles_by_choice = True  # the targets of moves

    def make(self) -> Policy:
        return make_policy(POLICIES, "easy-backfill", {"migrate": "when-cheaper"})


class TestDefaultPolicyMigrating(TestMigrating):
    """Those of the default policy."""

    def make(self) -> Policy:
        return make_policy(POLICIES, "headgate", {"migrate": "when-cheaper"})


def test_moves_shorten_the_waits_of_large_tasks_in_a_stream(tmp_path: Path) -> None:
    rng, jobs = np.random.default_rng(7), ""
    for number, at in enumerate(np.cumsum(rng.exponential(60.0, 150)).round(1).tolist()):
        gpus, run_s = int(rng.choice([1, 1, 1, 2, 4, 8])), round(float(rng.exponential(1200.0)), 1)
        task = f"{{compute_s: {run_s}, gpus: {gpus}, checkpoint_s: 60}}"
        jobs += f"  - {{name: j{number}, submit_s: {at}, tasks: [{task}]}}\n"
    file = tmp_path / "scenario.yaml"
    cluster = CLUSTER[: CLUSTER.index("  - {name: a")].replace("cpus: 4", "cpus: 9")
    file.write_text(cluster.replace("nodes: 2, node: {gpus: 4", "nodes: 8, node: {gpus: 8") + jobs)
    scenario = load_scenario(file, {"fifo": []})
    waits = dict[str, float]()
    for migrate in ("never", "when-cheaper"):
        setting = {"migrate": migrate, "place": "best-fit-subtree"}
        policy = make_policy(POLICIES, "easy-backfill", setting)
        seen = run(from_scenario(scenario, policy), policy)
        assert (seen.jobs.ended_at > 0).all()
        assert (seen.figures["migrations"] > 0) == (migrate == "when-cheaper")
        waits[migrate] = seen.figures["mean_wait_s"]
    assert waits["when-cheaper"] < waits["never"]
