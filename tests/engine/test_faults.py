"""Regressions: cases that once lost a run, a decision or a job."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from headgate.engine import Engine
from headgate.machine import CRASHES_MOST
from headgate.model import Job, Queue, Task
from headgate.protocol import (
    Event,
    FailureKind,
    Group,
    JobSubmitted,
    PlanAdmitted,
    PlanRejected,
    QueueChanged,
    Steps,
    Stop,
    StopTask,
    WakeAt,
)
from headgate.protocol.reasons import PreemptedFor
from headgate.testing.digest import digest

Bench = Any  # of conftest.py


def preempt(bench: Bench, *tasks: int, winner: str = "") -> list[Any]:
    """Answer the Decide with a plan that stops the runs of these tasks, by row."""
    ready, reason = bench.plan_event(), PreemptedFor(job=winner)
    groups = [Group((Stop(task),), reason) for task in tasks]
    commands: list[Any] = bench.give(
        replace(ready, plan=replace(ready.plan, steps=Steps.of(groups)))
    )
    return commands


# --------------------------------------------------------------------------------- preemption


def test_a_preempted_run_that_finishes_before_its_stop_counts(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(output_bytes=5)])
    launch = bench.run("j", 0, "a")
    bench.job("k")
    (stop,) = preempt(bench, 0)
    assert isinstance(stop, StopTask)
    bench.finished(launch, 5)
    assert (bench.tasks("j"), bench.job_state("j")) == (["finished"], "finished")


def test_a_finished_run_of_a_job_that_is_cancelled_does_not_count(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.cancel("j")
    bench.finished(launch)
    assert (bench.tasks("j"), bench.job_state("j")) == (["cancelled"], "cancelled")


def gang_of_two(bench: Bench) -> list[Any]:
    bench.node("a", gpus=2)
    bench.job("g", [Task()] * 2, gang=True)
    launched: list[Any] = bench.plan(("g", 0, "a", (0,)), ("g", 1, "a", (1,)))
    for launch in launched:
        bench.started(launch)
    bench.job("k")
    return launched


@pytest.mark.parametrize("named", [(0,), (1,), (0, 1), (1, 0)])
def test_gang_is_preempted_as_a_whole_when_a_plan_names_some_members(
    bench: Bench, named: tuple[int, ...]
) -> None:
    launched = gang_of_two(bench)
    stops = preempt(bench, *named)
    assert [type(c) for c in stops] == [StopTask, StopTask]
    for launch in launched:
        bench.stopped(launch)
    assert bench.tasks("g") == ["waiting", "waiting"]


def test_members_of_a_preempted_gang_count_as_finished_only_if_all_of_them_finish(
    bench: Bench,
) -> None:
    first, second = gang_of_two(bench)
    preempt(bench, 0)
    bench.finished(first)
    assert bench.tasks("g") == ["finished", "stopping"]
    bench.stopped(second)
    assert bench.tasks("g") == ["waiting", "waiting"]
    bench.up_to_date()
    again = bench.plan(("g", 0, "a", (0,)), ("g", 1, "a", (1,)))
    bench.queue("default")  # a reason to decide
    preempt(bench, 0)
    for launch in again:
        bench.finished(launch)
    assert bench.job_state("g") == "finished"


# --------------------------------------------------------------------------------- executors


def test_task_that_crashes_its_executor_three_times_fails_with_a_message(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", retries=5)
    for _ in range(CRASHES_MOST):
        assert bench.job_state("j") == "active"
        run = bench.run("j", 0, "a")
        bench.failed(run, FailureKind.CRASHED, "the executor on node a is gone")
    assert bench.job_state("j") == "failed"
    assert bench.message("j") == (
        "task 0 was lost, on nodes that stayed up, 3 times: the executor on node a is gone"
    )


def test_lost_nodes_count_neither_as_crashes_nor_as_failures(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", retries=0)
    for kind in (FailureKind.CRASHED, FailureKind.LOST, FailureKind.LOST, FailureKind.CRASHED):
        bench.failed(bench.run("j", 0, "a"), kind)
    bench.lose("a")
    bench.node("a")
    bench.finished(bench.run("j", 0, "a"))
    assert bench.job_state("j") == "finished"


# --------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    "wrong",
    [
        {"memo": {"skips": {7: 1.0}}},
        {"memo": {"skips": {-1: 1.0}}},
        {"memo": {"skips": {0: math.nan}}},
        {"memo": {"skips": {0: math.inf}}},
        {"memo": {"skips": {0: "many"}}},
        {"memo": [(0, 1)]},
        {"again_at": math.nan},
        {"again_at": math.inf},
        {"again_at": "soon"},
        {"steps": Steps.of([Stop(0)])},
        {"steps": Steps.of([Stop(99)])},
        {"steps": ((0,),)},
        {"steps": ()},
        {"steps": None},
    ],
    ids=str,
)
def test_infeasible_plan_changes_only_the_time_of_the_next_round(
    bench: Bench, wrong: dict[str, Any]
) -> None:
    bench.node("a")
    bench.job("j")
    ready = bench.plan_event(("j", 0, "a", (0,)))  # right but for ...
    recorded: list[Event] = []

    def record(batch: tuple[Event, ...]) -> tuple[Event, ...]:
        recorded.extend(batch)
        return batch

    ready = replace(ready, plan=replace(ready.plan, **wrong))
    (wake,) = bench.engine.handle(ready, record=record)
    assert isinstance(wake, WakeAt)
    (rejected,) = recorded
    assert isinstance(rejected, PlanRejected), "the journal never holds what would raise again"
    assert bench.tasks("j") == ["waiting"]
    assert bench.engine.state.memos == {}


def test_events_before_a_plan_are_recorded_and_applied_before_it_is_checked(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.job("j")
    bench.job("k")
    ready = bench.plan_event(("j", 0, "a", (0,)))
    parts: list[tuple[str, ...]] = []

    def record(batch: tuple[Event, ...]) -> tuple[Event, ...]:
        parts.append(tuple(type(event).__name__ for event in batch))
        return batch

    job = Job(id="l", name="l", user="ada", queue="default", tasks=(Task(),))
    queue = QueueChanged(at=9.0, queue=Queue(name="default", max_gpus=0))
    submitted = JobSubmitted(at=9.0, job=job)
    bench.engine.handle(queue, ready, submitted, record=record)
    assert parts == [("QueueChanged",), ("PlanAdmitted", "JobSubmitted")]
    assert bench.tasks("j") == ["waiting"], "the ceiling came first"
    assert bench.engine.stale == 1


def test_replay_gives_the_same_state_under_any_policy(
    bench: Bench,
) -> None:
    recorded: list[tuple[Event, ...]] = []

    def record(batch: tuple[Event, ...]) -> tuple[Event, ...]:
        recorded.append(batch)
        return batch

    engine = bench.engine = Engine()
    bench.give = lambda *events: engine.handle(*events, record=record)
    bench.queue("default")
    bench.node("a")
    (decide,) = bench.job("j")
    bench.decide = decide
    bench.give(bench.plan_event(("j", 0, "a", (0,))))
    again = Engine()
    for batch in recorded:
        again.replay(batch)
    assert digest(again.state) == digest(engine.state)
    assert any(isinstance(e, PlanAdmitted) for batch in recorded for e in batch)
    assert again.outstanding() == engine.outstanding()
