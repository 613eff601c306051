"""Lost nodes of a local cluster are restarted with backoff, as often as it takes."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.live.cluster.node_supervisor import STARTS, NodeSupervisor
from headgate.live.cluster.ray_nodes import LocalCluster, Seat
from headgate.model import Gpu, Node

NODES = tuple(Node(id=f"n{number}", rack="r0", gpus=(Gpu(memory_bytes=1),)) for number in range(3))
NO_PROCESS = 2**22 + 1  # above the greatest process id


class _Bed:
    """A record of three nodes, those that Ray lists, and a clock that only looks move on."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.present = {node.id for node in NODES}
        self.spawned: list[Node] = []
        self.spawn_fails = False
        self.now_s = 0.0
        self.supervisor = NodeSupervisor(state, present=lambda: self.present, spawn=self._spawn)
        self.record({node.id: NO_PROCESS for node in NODES})

    def record(self, sessions: dict[str, int]) -> None:
        cluster = LocalCluster(
            address="127.77.0.1:1",
            mark="0123456789abcdef",
            temp=str(self.state / "gone"),
            logs=str(self.state / "logs"),
            token=str(self.state / "token"),
            seats={name: Seat(address="127.77.0.1") for name in ("head", *sessions)},
            sessions=sessions,
            nodes={node.id: node for node in NODES},
        )
        (self.state / "ray.json").write_text(json.dumps(asdict(cluster)))

    def _spawn(self, state: Path, node: Node) -> None:
        self.spawned.append(node)
        if self.spawn_fails:
            raise OSError("no room for a process")

    def look(self, times: int = 1, *, every_s: float = 2.0) -> None:
        for _ in range(times):
            self.now_s += every_s
            asyncio.run(self.supervisor.look(self.now_s))


@pytest.fixture
def bed(tmp_path: Path) -> _Bed:
    return _Bed(tmp_path)


def test_node_that_ray_lost_is_restarted_and_the_others_are_not(bed: _Bed) -> None:
    bed.look(5)
    assert bed.spawned == []
    bed.present.discard("n1")
    bed.look(5)
    assert bed.spawned == [NODES[1]]
    bed.present.add("n1")
    bed.look(100)
    assert bed.spawned == [NODES[1]]


def test_node_that_was_ended_on_purpose_stays_down(bed: _Bed) -> None:
    bed.record({"n0": NO_PROCESS, "n2": NO_PROCESS})
    bed.present.discard("n1")
    bed.look(100)
    assert bed.spawned == []


@pytest.mark.parametrize("fails", [False, True])
def test_node_that_never_comes_up_is_restarted_with_growing_pauses_without_end(
    bed: _Bed, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    bed.spawn_fails = fails
    bed.look()
    bed.present.discard("n1")
    attempts_at = []
    for _ in range(1000):
        before = len(bed.spawned)
        try:
            bed.look(every_s=5.0)
        except OSError:
            assert fails  # its own supervision logs it and looks again
        if len(bed.spawned) > before:
            attempts_at.append(bed.now_s)
    pauses = [later - at for at, later in pairwise(attempts_at)]
    assert pauses == sorted(pauses)
    assert len(attempts_at) > 2 * STARTS
    assert pauses[-1] <= 310.0, "the longest pause, and the next looks"
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert f"n1 did not stay up in {STARTS} starts" in errors[0]
    assert len(errors) >= len(attempts_at) - STARTS


def test_node_that_comes_up_and_is_lost_again_is_restarted_as_often_as_one_that_never_does(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.look()
    for number in range(1, STARTS + 1):
        bed.present.discard("n1")
        bed.look(2, every_s=300.0)
        assert len(bed.spawned) == number
        bed.present.add("n1")
        bed.look()
    assert f"attempt {STARTS}" in caplog.text
    bed.present.discard("n1")
    bed.look(2, every_s=300.0)
    assert len(bed.spawned) == STARTS + 1
    assert "n1 did not stay up" in caplog.text


def test_node_that_ended_after_a_steady_time_is_started_as_if_for_the_first_time(
    bed: _Bed,
) -> None:
    for _ in range(20):
        bed.look(2, every_s=1000)
        bed.present.discard("n1")
        bed.look(5)
        bed.present.add("n1")
        bed.look()
    assert len(bed.spawned) == 20


def test_directory_without_a_recorded_cluster_starts_no_node(tmp_path: Path) -> None:
    supervisor = NodeSupervisor(tmp_path, present=set, spawn=lambda *_: pytest.fail("started"))
    asyncio.run(supervisor.look(1.0))
