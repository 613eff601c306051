"""Launches with delays. Disk 100, node link 60, uplink 90 bytes per second."""

from __future__ import annotations

from typing import Any

from headgate.model import Task
from headgate.protocol import JobCancelled, NodeLost

Stage = Any  # of conftest.py


def test_each_launch_reads_only_after_its_delay(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 500, "a1"),
        stage.job("j", *(Task(reads=("s",), compute_s=1) for _ in range(3))),
        launch_delays_s=(2.0, 0.0),
    )
    # 2 + 5 + 1, then 0 + 5 + 1, and the delays come round
    assert [line for line in seen.lines if line[1] == "ends"] == [
        (8.0, "ends", "j/0@a1"), (14.0, "ends", "j/1@a1"), (22.0, "ends", "j/2@a1"),
    ]  # fmt: skip
    assert [seen.usage[f"j/{n}@a1"].read_s for n in range(3)] == [5.0, 5.0, 5.0]


def test_run_stopped_during_its_delay_has_read_nothing(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 500, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=1)),
        JobCancelled(at=1.0, job="j", by="ada"),
        launch_delays_s=(2.0,),
    )
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (1.0, "stops", "j/0@a1")]
    assert seen.moved_bytes == (0, 0, 0)
    assert ["TaskStarted"] not in seen.kinds


def test_source_lost_during_the_delay_is_not_read(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2", gpus=0), stage.node("b1", gpus=0),
        stage.replica("s", 600, "a2"), stage.replica("s", 600, "b1"),
        stage.job("j", Task(reads=("s",), compute_s=1)),
        NodeLost(at=1.0, node="a2"),
        launch_delays_s=(2.0,),
    )  # fmt: skip
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (13.0, "ends", "j/0@a1")]
    assert seen.moved_bytes == (0, 0, 600)


def test_run_whose_node_is_lost_during_its_delay_never_starts(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.replica("s", 600, "a2"), stage.replica("s", 600, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=1)),
        NodeLost(at=1.0, node="a1"),
        launch_delays_s=(2.0,),
    )  # fmt: skip
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (1.0, "starts", "j/0@a2"), (10.0, "ends", "j/0@a2"),
    ]  # fmt: skip
    assert seen.moved_bytes == (600, 0, 0)
