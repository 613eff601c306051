"""Training jobs: gangs whose width changes once their present runs have ended."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model import SpeedCurve, Task, Training
from headgate.protocol import (
    Decide,
    Group,
    LaunchTask,
    Plan,
    PlanReady,
    SetWidth,
    Start,
    Steps,
    StopTask,
)
from headgate.protocol.reasons import PreemptedFor
from headgate.state import TaskState

Bench = Any  # of conftest.py

CURVE = SpeedCurve((1, 2, 4), (10.0, 16.0, 24.0))
WORK = 2400.0


@pytest.fixture
def training(bench: Bench) -> Bench:
    """Two nodes of two GPUs, and a training job that waits with one task of four."""
    bench.node("a", gpus=2)
    bench.node("b", gpus=2)
    job = Training(work=WORK, speeds=CURVE)
    bench.job("t", [Task(compute_s=job.narrowest_s)] * 4, gang=True, training=job)
    return bench


def resize(bench: Bench, width: int, reason: PreemptedFor | None = None) -> list[LaunchTask]:
    """Give the job a width on the state of now; answer its stops, and return these runs."""
    if bench.decide is None:
        bench.node(f"n{bench.at}")  # so that there is something to decide
    bench.up_to_date()
    row = bench.engine.state.names.job_rows["t"]
    plan = Plan(widths=(SetWidth(row, width, reason),))
    seen, bench.decide = bench.decide.seen, None
    commands = bench.give(PlanReady(at=bench.at, seen=seen, plan=plan))
    launches = {launch.run: launch for launch in bench.launches}
    return [launches[c.run] for c in commands if isinstance(c, StopTask)]


def start(bench: Bench, *places: tuple[str, int]) -> list[LaunchTask]:
    bench.up_to_date()
    launches: list[LaunchTask] = bench.plan(
        *(("t", n, node, (gpu,)) for n, (node, gpu) in enumerate(places))
    )
    for launch in launches:
        bench.started(launch)
    return launches


def test_only_as_many_tasks_as_its_width_wait(training: Bench) -> None:
    assert training.tasks("t") == ["waiting", "held", "held", "held"]
    assert resize(training, 4) == []
    assert training.tasks("t") == ["waiting"] * 4
    assert resize(training, 2) == []
    assert training.tasks("t") == ["waiting", "waiting", "held", "held"]


def test_running_job_gets_its_width_once_its_runs_have_ended(training: Bench) -> None:
    start(training, ("a", 0))
    assert training.engine.state.speed(training.row("t", 0)) == 1.0
    training.at += 60
    (stopping,) = resize(training, 4, PreemptedFor(job="u"))
    assert training.tasks("t") == ["stopping", "held", "held", "held"]
    training.stopped(stopping)
    assert training.tasks("t") == ["waiting"] * 4
    launches = start(training, ("a", 0), ("a", 1), ("b", 0), ("b", 1))
    assert len(launches) == 4
    saved_s = {launch.progress_s for launch in launches}
    assert len(saved_s) == 1, "all members start from the same progress"
    assert min(saved_s) > 60
    assert training.engine.state.speed(training.row("t", 3)) == 2.4
    stops = training.engine.state.stops[training.row("t", 0)]
    assert "its width changes from 1 to 4: " in stops[-1].cause.text
    for launch in launches:
        training.finished(launch)
    assert training.job_state("t") == "finished"


def test_job_that_ends_with_less_than_all_its_tasks_is_finished(training: Bench) -> None:
    resize(training, 2)
    one, two = start(training, ("a", 0), ("b", 0))
    training.finished(one)
    assert training.job_state("t") == "active"
    training.finished(two)
    assert training.job_state("t") == "finished"
    assert training.tasks("t") == ["finished"] * 4


def test_narrower_gang_starts_with_its_first_tasks(training: Bench) -> None:
    resize(training, 4)
    start(training, ("a", 0), ("a", 1), ("b", 0), ("b", 1))
    stopping = resize(training, 1)
    assert len(stopping) == 4
    for launch in stopping[:3]:
        training.stopped(launch)
    assert sorted(training.tasks("t")) == ["stopping", "waiting", "waiting", "waiting"]
    training.stopped(stopping[3])
    assert training.tasks("t") == ["waiting", "held", "held", "held"]
    start(training, ("b", 1))
    assert training.tasks("t")[0] == "running"


def test_lost_run_loses_what_no_checkpoint_has_saved(training: Bench) -> None:
    resize(training, 2)
    start(training, ("a", 0), ("b", 0))
    training.at += 60
    commands = training.lose("b")
    (stop,) = [c for c in commands if isinstance(c, StopTask)]
    (other,) = [launch for launch in training.launches if launch.run == stop.run]
    training.stopped(other)
    state = training.engine.state
    saved = [state.tasks.progress_s[training.row("t", n)] for n in (0, 1)]
    assert saved[0] > 60, "it had notice"
    assert saved[1] == 0, "it was lost with its node"
    assert not resize(training, 1)
    assert state.tasks.progress_s[training.row("t", 0)] == 0, "the gang starts from the earlier one"


def test_width_that_is_requested_while_it_is_stopped_for_another_counts(training: Bench) -> None:
    start(training, ("a", 0))
    (stopping,) = resize(training, 4)
    assert resize(training, 2) == []
    training.stopped(stopping)
    assert training.tasks("t") == ["waiting", "waiting", "held", "held"]


@pytest.mark.parametrize("width", [0, 3, 8])
def test_plan_with_a_width_that_is_none_of_the_job_is_rejected(training: Bench, width: int) -> None:
    resize(training, width)
    assert training.engine.state.policy_failures == 1
    assert training.tasks("t") == ["waiting", "held", "held", "held"]


def test_plan_that_starts_a_job_and_changes_its_width_is_rejected(training: Bench) -> None:
    training.up_to_date()
    state, decide = training.engine.state, training.decide
    row = state.names.job_rows["t"]
    step = Start(training.row("t", 0), state.names.node_rows["a"], (0,))
    plan = Plan(steps=Steps.of([Group((step,))]), widths=(SetWidth(row, 2),))
    training.give(PlanReady(at=training.at, seen=decide.seen, plan=plan))
    assert state.policy_failures == 1
    assert TaskState(state.tasks.state[training.row("t", 0)]) is TaskState.WAITING


def test_width_of_a_job_that_has_ended_is_dropped(training: Bench) -> None:
    training.up_to_date()
    row = training.engine.state.names.job_rows["t"]
    decide = training.decide
    assert isinstance(decide, Decide)
    training.cancel("t")
    plan = Plan(widths=(SetWidth(row, 2),))
    training.give(PlanReady(at=training.at, seen=decide.seen, plan=plan))
    assert training.job_state("t") == "cancelled"
    assert training.engine.state.policy_failures == 0
