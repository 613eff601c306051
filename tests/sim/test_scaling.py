"""Scaling in virtual time: nodes join when they are ready, and leave when they are idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cases import cases

from headgate.app import POLICIES
from headgate.model import Demand, Task
from headgate.model.scaling import Scaling, Shape
from headgate.planning.scaling.scaler import holds_last_copies
from headgate.protocol import Event, JobSubmitted, NodeDraining, NodeResumed, ScalingChanged
from headgate.state import JobState
from headgate.testing.storms import storm

Stage = Any  # of conftest.py
MB = 1 << 20
POD1 = Shape(name="pod1", cpus=1, memory_bytes=512 * MB, ready_after_s=10.0)
POD2 = Shape(name="pod2", cpus=2, memory_bytes=512 * MB, ready_after_s=10.0)
POD3 = Shape(name="pod3", cpus=2, memory_bytes=1024 * MB, ready_after_s=10.0)
CATALOGUE = Scaling(shapes=(POD1, POD2, POD3), utilisation=1.0, idle_after_s=30.0)


def scales(scaling: Scaling = CATALOGUE) -> ScalingChanged:
    return ScalingChanged(at=0.0, scaling=scaling)


def task(cpus: float, memory: int = 512 * MB, compute_s: float = 5.0) -> Task:
    return Task(demand=Demand.of(gpus=0, cpus=cpus, memory_bytes=memory), compute_s=compute_s)


def test_parked_tasks_get_their_nodes_and_idle_ones_go(stage: Stage) -> None:
    """Spillover paper, section 6: four pods of one CPU; Task2 and Task3 fit on none of them."""
    pods = [stage.node(f"p{n}", gpus=0, cpus=1) for n in range(4)]
    seen = stage.play(
        *pods,
        scales(),
        stage.job("t1", *[task(1)] * 4),
        stage.job("t2", *[task(2)] * 2),
        stage.job("t3", task(2, 1024 * MB)),
    )
    assert [line for line in seen.lines if line[1] == "starts" and line[0] > 0] == [
        (10.0, "starts", "t2/0@pod3-1"),
        (10.0, "starts", "t2/1@pod2-2"),
        (15.0, "starts", "t3/0@pod3-1"),
    ]
    joined = [
        kinds for kinds in seen.kinds if "NodeJoined" in kinds and "JobSubmitted" not in kinds
    ]
    assert [kinds.count("NodeJoined") for kinds in joined] == [3]
    state = seen.engine.state
    assert [state.node(row).id for row in state.live_nodes()] == ["p0", "p1", "p2", "p3"]
    assert state.now == 15.0 + 5.0 + 30.0, "the last node goes after its timeout"
    assert not state.fleet.made


def test_without_scaling_a_job_that_waits_for_a_node_starts_when_one_joins(stage: Stage) -> None:
    job = stage.job("j", task(2))
    job = replace(job, job=replace(job.job, wait_for_node=True))
    late = replace(stage.node("b", gpus=0, cpus=2), at=70.0)
    seen = stage.play(stage.node("a", gpus=0, cpus=1), job, late)
    assert seen.lines == [(70.0, "starts", "j/0@b"), (75.0, "ends", "j/0@b")]


def test_drained_node_starts_nothing_until_it_is_resumed(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a", gpus=1),
        NodeDraining(at=2.0, node="a", by="root"),
        stage.job("first", Task(compute_s=5.0)),
        stage.job("second", Task(compute_s=5.0), at=3.0),
        NodeResumed(at=20.0, node="a", by="root"),
    )
    assert seen.lines == [
        (0.0, "starts", "first/0@a"), (5.0, "ends", "first/0@a"),
        (20.0, "starts", "second/0@a"), (25.0, "ends", "second/0@a"),
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["fifo", "headgate", "fair", "easy-backfill", "fair-order"])
def test_every_job_of_a_storm_that_some_shape_holds_ends(policy: str, stage: Stage) -> None:
    """Storms without their nodes: all that they need is ordered; no task names its nodes."""
    ended = added = 0
    for seed in range(cases(6)):
        weather = storm(
            seed, calm=True, accepts=lambda job: not any(t.demand.nodes for t in job.tasks)
        )
        first = [event for event in weather.facts if _is_join(event)]
        shapes = tuple(
            Shape(
                name=event.node.id, gpus=event.node.gpus, cpus=event.node.cpus,
                memory_bytes=event.node.memory_bytes, custom=event.node.custom,
                ready_after_s=float(seed),
            )
            for event in first
        )  # fmt: skip
        scaling = Scaling(shapes=shapes, utilisation=1.0, idle_after_s=5.0)
        alone = [event for event in weather.facts if isinstance(event, JobSubmitted)]
        others = [e for e in weather.facts if not _is_join(e) and _is_setting(e)]
        seen = stage.play(first[0], *others, scales(scaling), *alone, policy=_policy(policy))
        state = seen.engine.state
        states = [state.jobs.state[row] for row in range(len(state.names.jobs))]
        assert states == [JobState.FINISHED] * len(states), seed
        assert not state.fleet.orders, seed
        left = {state.names.node_rows[name] for name in state.fleet.made}
        assert {*state.live_nodes()} == {state.names.node_rows[first[0].node.id], *left}, seed
        assert all(holds_last_copies(state.freeze(), row) for row in left), seed
        ended += len(states)
        added += sum(kinds.count("NodeJoined") for kinds in seen.kinds) - 1
    assert min(ended, added) > 10


def _is_join(event: Any) -> bool:
    return type(event).__name__ == "NodeJoined"


def _is_setting(event: Event) -> bool:
    return type(event).__name__ == "QueueChanged"


def _policy(name: str) -> Any:
    return POLICIES[name].make()
