"""Gangs: started, failed and restarted as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model import Task
from headgate.protocol import (
    FailureKind,
    Group,
    LaunchGang,
    Plan,
    PlanReady,
    ReplicaLost,
    Steps,
    Stop,
    StopTask,
    TaskStopped,
)
from headgate.state import State

Bench = Any  # of conftest.py

WHOLE = (("g", 0, "a", (0,)), ("g", 1, "b", (0,)), ("g", 2, "c", (0,)))


@pytest.fixture
def gang(bench: Bench) -> Bench:
    """Three nodes with a GPU each, and a gang of three that runs on them."""
    for name in "abc":
        bench.node(name)
    bench.job("g", [Task(output_bytes=7)] * 3, gang=True, retries=1)
    commands = bench.give(bench.plan_event(*WHOLE))
    (launch,) = commands
    assert isinstance(launch, LaunchGang)
    assert [(m.node, m.gpus) for m in launch.members] == [("a", (0,)), ("b", (0,)), ("c", (0,))]
    for member in launch.members:
        bench.started(member)
    return bench


def stopped_again(bench: Bench, commands: list[Any]) -> list[int]:
    """Answer every stop among the commands; return the ordinals stopped."""
    launches = {launch.run: launch for launch in bench.launches}
    stopping = [launches[c.run] for c in commands if isinstance(c, StopTask)]
    for launch in stopping:
        bench.stopped(launch)
    return [launch.run.ordinal for launch in stopping]


def restarts_whole(bench: Bench) -> None:
    assert bench.tasks("g") == ["waiting"] * 3
    bench.up_to_date()
    again = bench.plan(*WHOLE)
    for launch in again:
        bench.finished(launch, 7)
    assert bench.job_state("g") == "finished"


@pytest.mark.parametrize("kind", [k for k in FailureKind if k is not FailureKind.TIMED_OUT])
def test_failed_member_restarts_the_whole_gang(gang: Bench, kind: FailureKind) -> None:
    commands = gang.failed(gang.launches[1], kind)
    assert gang.tasks("g") == ["stopping", "waiting", "stopping"]
    assert stopped_again(gang, commands) == [0, 2]
    restarts_whole(gang)


def test_finished_members_run_again_when_the_gang_restarts(gang: Bench) -> None:
    gang.finished(gang.launches[0], 7)
    commands = gang.failed(gang.launches[1])
    assert gang.tasks("g") == ["waiting", "waiting", "stopping"]
    assert stopped_again(gang, commands) == [2]
    restarts_whole(gang)


def test_member_that_finishes_while_stopping_runs_again(gang: Bench) -> None:
    gang.failed(gang.launches[1])
    gang.finished(gang.launches[0], 7)
    gang.stopped(gang.launches[2])
    restarts_whole(gang)


def test_a_lost_node_restarts_the_gang_that_had_a_member_there(gang: Bench) -> None:
    commands = gang.lose("b")
    assert gang.tasks("g") == ["stopping", "waiting", "stopping"]
    assert stopped_again(gang, commands) == [0, 2]
    gang.node("b")
    restarts_whole(gang)


def test_the_result_of_a_member_lost_with_its_node_restarts_the_gang(gang: Bench) -> None:
    gang.finished(gang.launches[1], 7)
    commands = gang.lose("b")
    assert gang.tasks("g") == ["stopping", "waiting", "stopping"]
    assert stopped_again(gang, commands) == [0, 2]
    gang.node("b")
    restarts_whole(gang)


def test_the_result_of_a_member_lost_alone_restarts_the_gang(gang: Bench) -> None:
    gang.finished(gang.launches[1], 7)
    commands = gang.give(ReplicaLost(at=gang.at, shard="g/1", node="b"))
    assert stopped_again(gang, commands) == [0, 2]
    restarts_whole(gang)


def test_member_stopped_without_a_request_restarts_the_gang(gang: Bench) -> None:
    commands = gang.stopped(gang.launches[0])
    assert stopped_again(gang, commands) == [1, 2]
    restarts_whole(gang)


@pytest.mark.parametrize("last", [1, 2])
def test_gang_fails_when_its_members_have_failed_too_often_together(gang: Bench, last: int) -> None:
    stopped_again(gang, gang.failed(gang.launches[1]))
    gang.up_to_date()
    again = gang.plan(*WHOLE)
    stopped_again(gang, gang.failed(again[last]))
    assert gang.job_state("g") == "failed"
    assert gang.message("g") == f"the gang failed 2 times, last task {last}: it broke"


def test_members_that_fail_because_another_one_did_are_not_counted(gang: Bench) -> None:
    for launch in (gang.launches[1], gang.launches[0], gang.launches[2]):
        gang.failed(launch)  # the first of them makes the engine stop the others
    restarts_whole(gang)


def test_cancelled_gang_is_stopped_as_a_whole(gang: Bench) -> None:
    assert stopped_again(gang, gang.cancel("g")) == [0, 1, 2]
    assert gang.job_state("g") == "cancelled"


def test_gang_that_a_stale_plan_cannot_place_as_a_whole_is_dropped(bench: Bench) -> None:
    for name in "abc":
        bench.node(name)
    bench.job("g", [Task()] * 3, gang=True)
    bench.lose("b")
    assert bench.plan(*WHOLE) == []
    assert bench.tasks("g") == ["waiting"] * 3
    assert bench.engine.stale == 3
    assert bench.decide is not None, "a dropped group needs another decision"


@pytest.mark.parametrize("together", [True, False], ids=["one group", "a group each"])
@pytest.mark.parametrize("members", [10, 100])
def test_preempting_all_members_of_a_gang_costs_a_few_visits_of_each(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, members: int, together: bool
) -> None:
    bench.node("a", gpus=members)
    bench.job("g", [Task()] * members, gang=True)
    launched = bench.plan(*(("g", n, "a", (n,)) for n in range(members)))
    bench.job("k")
    visited: list[int] = []
    tasks_of = State.tasks_of

    def counted(state: State, job: int) -> range:
        visited.append(len(tasks_of(state, job)))
        return tasks_of(state, job)

    monkeypatch.setattr(State, "tasks_of", counted)
    stops = [Stop(bench.row("g", n)) for n in range(members)]
    plan = Plan(steps=Steps.of([Group(tuple(stops))] if together else stops))
    commands = bench.give(PlanReady(at=bench.at, seen=bench.decide.seen, plan=plan))
    assert len([c for c in commands if isinstance(c, StopTask)]) == members
    bench.finished(launched[0])  # it counts until another member waits
    bench.give(*(TaskStopped(at=bench.at, run=c.run) for c in launched[1:]))
    assert bench.tasks("g") == ["waiting"] * members
    assert sum(visited) <= 8 * members


def test_launch_of_a_gang_is_by_ordinal_whatever_the_order_of_the_plan(bench: Bench) -> None:
    for name in "abc":
        bench.node(name)
    bench.job("g", [Task()] * 3, gang=True)
    (launch,) = bench.give(bench.plan_event(*reversed(WHOLE)))
    assert [member.run.ordinal for member in launch.members] == [0, 1, 2]
    assert launch.nodes == ("a", "b", "c")
    bench.finished(launch.members[1])
    (again,) = [c for c in bench.engine.outstanding() if isinstance(c, LaunchGang)]
    assert [member.run.ordinal for member in again.members] == [0, 2]
    assert again.nodes == ("a", "b", "c")
