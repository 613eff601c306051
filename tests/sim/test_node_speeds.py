"""Nodes of unlike speed: a timeline by hand, checkpoints, estimates and exact forecasts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.engine import Engine, drive
from headgate.foresight.forecast import forecast
from headgate.model import Demand, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted, NodeJoined, NodeLost, QueueChanged
from headgate.sim.run import from_scenario, run
from headgate.sim.world import SimulatedWorld
from headgate.spec import load_scenario

Stage = Any  # of conftest.py

SCENARIO = """\
cluster:
  racks:
    - name: r
      nodes: [{name: n1, cpus: 1, speed: SPEED}]
  bandwidths: {disk_bytes_per_s: 9e8, node_link_bytes_per_s: 1e8, rack_uplink_bytes_per_s: 1e8}
policy: fifo
jobs:
  - {name: a, tasks: [{gpus: 0, compute_s: 6}]}
"""


def joined(stage: Stage, name: str, speed: float) -> NodeJoined:
    event: NodeJoined = stage.node(name)
    return replace(event, node=replace(event.node, speed=speed))


def test_speed_of_a_node_divides_computing_time_but_not_reading_time(stage: Stage) -> None:
    seen = stage.play(
        joined(stage, "a1", 0.5),
        stage.replica("s", 200, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=30)),
    )
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (62.0, "ends", "j/0@a1")]
    learnt = seen.engine.state.runtime_classes
    assert (learnt.compute_s[0], learnt.held_s[0]) == (30, 32), "at speed 1"


def test_checkpoint_of_a_slow_node_counts_work_at_speed_1_on_the_next(stage: Stage) -> None:
    seen = stage.play(
        joined(stage, "a1", 0.5), joined(stage, "a2", 2.0),
        stage.job("j", Task(compute_s=30, checkpoint_s=10)),
        NodeLost(at=50.0, node="a1"),
    )  # fmt: skip
    # 25 s of work, of which 20 are saved, then the other 10 in 5 s; 10 of the 50 s are lost
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (50.0, "starts", "j/0@a2"), (55.0, "ends", "j/0@a2"),
    ]  # fmt: skip
    assert seen.engine.state.jobs.lost_gpu_s[0] == 10


@pytest.mark.parametrize("speed", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill"])
def test_forecast_is_exact_for_a_task_behind_a_run_on_a_node_of_any_speed(
    policy: str, speed: float
) -> None:
    task = Task(compute_s=8.0, demand=Demand(cpus_milli=1000))
    jobs = [
        Job(id=name, name=name, user="u", queue="default", tasks=(task,), estimated_s=8.0)
        for name in ("first", "second", "third")
    ]
    made = make_policy(POLICIES, policy, {})
    engine, answers, starts = Engine(), [], {}

    def see(batch: Any, commands: Any) -> None:
        del commands
        for event in batch:
            for name, _, _ in getattr(event, "starts", ()):
                starts[name.job] = event.at
        if not answers and len(starts) == 1:
            snapshot = engine.snapshot()
            answers.extend(forecast(snapshot, made, [row], 0.0).at for row in (1, 2))

    world = SimulatedWorld(
        [
            QueueChanged(at=0.0, queue=Queue(name="default")),
            NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(), cpus=1, speed=speed)),
            *(JobSubmitted(at=0.0, job=job) for job in jobs),
        ],
        network=FluidNetwork(
            {},
            disk_bytes_per_s=1,
            node_link_bytes_per_s=1,
            rack_uplink_bytes_per_s=1,
            aggregation_bytes_per_s=None,
        ),
        policy=made,
    )
    drive(engine, world, observe=(see,))
    assert starts == {"first": 0.0, "second": 8 / speed, "third": 16 / speed}
    assert answers == [starts["second"], starts["third"]]


@pytest.mark.parametrize(
    ("speed", "problem"),
    [
        ("0", "must be at least 0.001"),
        ("-1", "must be at least 0.001"),
        ("fast", "must be a number, not 'fast'"),
        ("1e9", "must be at most 1000"),
        (".nan", "must be a finite number"),
    ],
)
def test_speed_that_is_no_number_in_its_range_is_rejected_with_its_place(
    tmp_path: Path, speed: str, problem: str
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("SPEED", speed))
    with pytest.raises(SpecError) as error:
        load_scenario(file, {"fifo": []})
    assert [p for p in map(str, error.value.problems) if "nodes[0].speed" in p and problem in p]


def test_tasks_per_s_is_the_number_of_finished_tasks_over_the_makespan(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("SPEED", "2"))
    scenario = load_scenario(file, {"fifo": []})
    policy = make_policy(POLICIES, "fifo", {})
    figures = run(from_scenario(scenario, policy), policy).figures
    assert (figures["makespan_s"], figures["tasks_per_s"]) == (3.0, 1 / 3)
