"""Time limits of runs in virtual time. Disk 100 bytes per second."""

from __future__ import annotations

from typing import Any

from headgate.model import Task
from headgate.protocol import JobCancelled, NodeLost

Stage = Any  # of conftest.py


def test_run_over_its_time_limit_is_stopped_there_and_its_job_fails(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.job("j", Task(compute_s=100), Task(compute_s=100), time_limit_s=30.0),
        stage.job("k", Task(compute_s=5)),
    )
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (30.0, "fails", "j/0@a1"),
        (30.0, "starts", "k/0@a1"), (35.0, "ends", "k/0@a1"),
    ]  # fmt: skip
    message = seen.engine.state.jobs.message[0]
    assert message == "task 0 ran over its time limit of 30 s"


def test_run_that_takes_just_its_time_limit_finishes(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 500, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=25), time_limit_s=30.0),
        launch_delays_s=(2.0,),
    )
    assert seen.lines[-1] == (32.0, "ends", "j/0@a1")


def test_reading_counts_for_the_time_limit_and_is_reported(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 500, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=1), time_limit_s=3.0),
    )
    assert seen.lines[-1] == (3.0, "fails", "j/0@a1")
    assert seen.usage["j/0@a1"].read_s == 3.0
    assert seen.moved_bytes == (300, 0, 0)


def test_every_run_of_a_task_has_the_whole_time_limit(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.job("j", Task(compute_s=9), time_limit_s=10.0),
        NodeLost(at=5.0, node="a1"),
    )  # fmt: skip
    assert seen.lines[-1] == (14.0, "ends", "j/0@a2")


def test_the_time_limit_of_a_run_that_has_ended_is_no_instant(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.job("j", Task(compute_s=1), time_limit_s=1e6),
        stage.job("k", Task(compute_s=9), time_limit_s=1e6),
        JobCancelled(at=3.0, job="k", by="ada"),
    )
    assert seen.engine.state.now == 3.0
    assert len(seen.lines) == 4
