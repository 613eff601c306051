"""Moves: a run ends, and the next run of its task starts on the place that was held for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import kinds
from tests.engine.conftest import stops as stopped_runs

from headgate.engine import Engine
from headgate.journal.codec import decode, encode
from headgate.journal.snapshots import decode_snapshot, encode_snapshot
from headgate.machine import outstanding
from headgate.model import Demand, RunId, Task
from headgate.protocol import (
    Admitted,
    FailureKind,
    GpusWithheld,
    Group,
    JobCancelled,
    JobsArchived,
    LaunchGang,
    LaunchTask,
    Move,
    Moved,
    MoveRequested,
    NodeLost,
    Plan,
    PlanAdmitted,
    PlanReady,
    Steps,
    Stop,
    StopKind,
    StopTask,
    TaskStopped,
)
from headgate.protocol.reasons import MovedFor
from headgate.state import check, compact, thaw
from headgate.state.moves import is_moving
from headgate.testing.digest import digest

Bench = Any  # of conftest.py

To = tuple[str, int, str, tuple[int, ...]]


def move(bench: Bench, *targets: To, winner: str = "k") -> list[Any]:
    """Have these tasks moved in one group by a plan on the state of now."""
    bench.job(
        f"reason-{bench.at}", [Task(demand=Demand(gpus=1, gpu_memory_bytes=1 << 40))]
    )  # to decide
    bench.up_to_date()
    rows = bench.engine.state.names.node_rows
    steps = tuple(Move(bench.row(job, n), rows[node], gpus) for job, n, node, gpus in targets)
    plan = Plan(steps=Steps.of([Group(steps, MovedFor(job=winner))]))
    assert bench.decide is not None
    decide, bench.decide = bench.decide, None
    commands: list[Any] = bench.give(PlanReady(at=bench.at, seen=decide.seen, plan=plan))
    return [c for c in commands if isinstance(c, StopTask | LaunchTask | LaunchGang)]


def free(bench: Bench, node: str) -> int:
    state = bench.engine.state
    count: int = state.nodes.free_gpus[state.names.node_rows[node]]
    return count


@pytest.fixture
def moving(bench: Bench) -> Bench:
    """A run on `a` that is stopped to move to `b`."""
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(checkpoint_s=1.0)])
    bench.run("j", 0, "a")
    commands = move(bench, ("j", 0, "b", (0,)))
    assert stopped_runs(commands) == [RunId("j", 0, 1)]
    assert bench.tasks("j") == ["stopping"]
    assert (free(bench, "a"), free(bench, "b")) == (0, 0)
    return bench


@pytest.fixture
def gang(bench: Bench) -> Bench:
    """A gang of two on `a` and `b`, of which the second member is to move to `c`."""
    for name in "abc":
        bench.node(name)
    bench.job("g", [Task()] * 2, gang=True, retries=1)
    for launch in bench.plan(("g", 0, "a", (0,)), ("g", 1, "b", (0,))):
        bench.started(launch)
    commands = move(bench, ("g", 0, "a", (0,)), ("g", 1, "c", (0,)))
    assert stopped_runs(commands) == [RunId("g", 0, 1), RunId("g", 1, 1)]
    return bench


def migrations(bench: Bench, job: str) -> int:
    state = bench.engine.state
    count: int = state.jobs.migrations[state.names.job_rows[job]]
    return count


def test_next_run_starts_on_the_target_in_the_transition_that_ends_the_run(moving: Bench) -> None:
    commands = moving.stopped(moving.launches[-1])
    launch = next(c for c in commands if isinstance(c, LaunchTask))
    assert (launch.run, launch.node, launch.gpus) == (RunId("j", 0, 2), "b", (0,))
    assert launch.progress_s > 0, "work up to its last checkpoint is kept"
    assert moving.tasks("j") == ["starting"]
    assert (free(moving, "a"), free(moving, "b")) == (1, 0)
    assert migrations(moving, "j") == 1
    moving.started(launch)
    moving.finished(launch)
    assert moving.job_state("j") == "finished"
    assert (free(moving, "a"), free(moving, "b")) == (1, 1)


def test_move_is_recorded_with_where_to_and_for_which_job(moving: Bench) -> None:
    (stop,) = moving.engine.state.stops[moving.row("j", 0)]
    assert (stop.cause.kind, stop.cause.job) == (StopKind.MOVED, "k")
    assert stop.cause.text == "moved from a to b: to make room for k"


def test_move_counts_no_failure_and_loses_what_is_computed_since_the_checkpoint(
    moving: Bench,
) -> None:
    state, row = moving.engine.state, moving.row("j", 0)
    launched_at = state.tasks.launched_at[row]
    moving.stopped(moving.launches[-1])
    lost = state.now - launched_at - state.tasks.progress_s[row]
    assert state.jobs.lost_gpu_s[0] == pytest.approx(lost)
    assert state.tasks.failures[row] == 0
    assert state.tasks.attempts[row] == 2


@pytest.mark.parametrize("node", ["a", "b"])
def test_move_ends_when_either_node_is_lost(moving: Bench, node: str) -> None:
    moving.lose(node)
    if node == "b":
        assert moving.tasks("j") == ["stopping"]
        moving.stopped(moving.launches[-1])
    assert moving.tasks("j") == ["waiting"]
    assert free(moving, "b" if node == "a" else "a") == 1
    assert migrations(moving, "j") == 0


def test_target_that_is_lost_when_the_run_has_just_ended_gets_no_launch(moving: Bench) -> None:
    stopped = TaskStopped(at=moving.at, run=moving.launches[-1].run)
    commands = moving.give(stopped, NodeLost(at=moving.at, node="b"))
    assert not any(isinstance(command, LaunchTask) for command in commands)
    assert moving.tasks("j") == ["waiting"]
    assert free(moving, "a") == 1


def test_gang_that_has_just_moved_is_launched_without_a_member_whose_node_is_lost(
    gang: Bench,
) -> None:
    ended = [TaskStopped(at=gang.at, run=launch.run) for launch in gang.launches]
    commands = gang.give(*ended, NodeLost(at=gang.at, node="c"))
    launched = [c for c in commands if isinstance(c, LaunchGang)]
    stops = set(stopped_runs(commands))
    assert {m.run for c in launched for m in c.members} == stops, "and the others are stopped"


def test_finished_run_releases_its_target(moving: Bench) -> None:
    moving.finished(moving.launches[-1])
    assert moving.job_state("j") == "finished"
    assert (free(moving, "a"), free(moving, "b")) == (1, 1)


def test_cancelled_run_releases_its_target_before_and_its_place_at_its_end(moving: Bench) -> None:
    moving.give(JobCancelled(at=moving.at, job="j", by="ada"))
    assert (free(moving, "a"), free(moving, "b")) == (0, 1)
    moving.stopped(moving.launches[-1])
    assert moving.job_state("j") == "cancelled"
    assert (free(moving, "a"), free(moving, "b")) == (1, 1)


@pytest.mark.parametrize("kind", [FailureKind.ERROR, FailureKind.LOST, FailureKind.TIMED_OUT])
def test_run_that_fails_while_it_is_stopped_moves(moving: Bench, kind: FailureKind) -> None:
    moving.failed(moving.launches[-1], kind)
    assert moving.tasks("j") == ["starting"]
    assert moving.launches[-1].node == "b"
    assert moving.engine.state.tasks.failures[moving.row("j", 0)] == 0


def test_target_that_other_programs_use_is_released(moving: Bench) -> None:
    moving.give(GpusWithheld(at=moving.at, node="b", incarnation="", gpus=(0,)))
    assert free(moving, "b") == 0
    moving.stopped(moving.launches[-1])
    assert moving.tasks("j") == ["waiting"]
    moving.give(GpusWithheld(at=moving.at, node="b", incarnation=""))
    assert free(moving, "b") == 1


@pytest.mark.parametrize("again", [Stop(0), Move(0, 2, (0,))], ids=["stop", "move"])
def test_moving_task_is_not_stopped_or_moved_again(moving: Bench, again: Stop | Move) -> None:
    moving.node("c")
    moving.job("k", [Task(demand=Demand(gpus=1, gpu_memory_bytes=1 << 40))])
    moving.up_to_date()
    decide, moving.decide = moving.decide, None
    plan = Plan(steps=Steps.of([again]))
    moving.give(PlanReady(at=moving.at, seen=decide.seen, plan=plan))
    (refusal,) = moving.engine.state.refusals
    assert "task 0 does not run" in refusal.reason.cause()


def test_gang_starts_again_when_its_last_run_has_ended(gang: Bench) -> None:
    first, second = gang.launches[-2:]
    commands = gang.stopped(second)
    assert "LaunchGang" not in kinds(commands)
    assert gang.tasks("g") == ["stopping", "moving"]
    assert [free(gang, node) for node in "abc"] == [0, 1, 0]
    assert not [c for c in outstanding(gang.engine.state) if getattr(c, "run", "") == second.run]
    launch = next(c for c in gang.stopped(first) if isinstance(c, LaunchGang))
    assert [(m.run.attempt, m.node) for m in launch.members] == [(2, "a"), (2, "c")]
    assert launch.nodes == ("a", "c")
    assert migrations(gang, "g") == 1, "a member that stays does not migrate"
    for member in launch.members:
        gang.started(member)
        gang.finished(member)
    assert gang.job_state("g") == "finished"
    assert [free(gang, node) for node in "abc"] == [1, 1, 1]


def test_events_of_an_ended_run_of_a_moving_task_are_stale(gang: Bench) -> None:
    second = gang.launches[-1]
    gang.stopped(second)
    stale = gang.engine.stale
    gang.stopped(second)
    gang.finished(second)
    gang.started(second)
    assert gang.engine.stale == stale + 3
    assert gang.tasks("g") == ["stopping", "moving"]


@pytest.mark.parametrize("node", ["a", "c"])
def test_gang_waits_as_a_whole_when_a_node_of_the_move_is_lost(gang: Bench, node: str) -> None:
    first, second = gang.launches[-2:]
    gang.stopped(second)
    gang.lose(node)
    if node == "c":
        assert gang.tasks("g") == ["stopping", "waiting"]
        gang.stopped(first)
    assert gang.tasks("g") == ["waiting", "waiting"]
    assert sum(free(gang, name) for name in "abc") == 2


def test_gang_waits_as_a_whole_when_a_member_finishes_instead(gang: Bench) -> None:
    first, second = gang.launches[-2:]
    gang.finished(first)
    assert [free(gang, node) for node in "abc"] == [1, 0, 1], "the target is released"
    gang.stopped(second)
    assert gang.tasks("g") == ["waiting", "waiting"]


def test_member_that_finishes_after_another_has_ended_moves_with_the_gang(gang: Bench) -> None:
    first, second = gang.launches[-2:]
    gang.stopped(second)
    gang.finished(first)
    assert gang.tasks("g") == ["starting", "starting"]


def test_gang_whose_members_all_finish_instead_has_finished(gang: Bench) -> None:
    for launch in gang.launches[-2:]:
        gang.finished(launch)
    assert gang.job_state("g") == "finished"
    assert [free(gang, node) for node in "abc"] == [1, 1, 1]


def test_cancelled_gang_releases_the_places_of_members_whose_runs_have_ended(gang: Bench) -> None:
    first, second = gang.launches[-2:]
    gang.stopped(second)
    gang.cancel("g")
    assert gang.tasks("g") == ["stopping", "cancelled"]
    gang.stopped(first)
    assert gang.job_state("g") == "cancelled"
    assert [free(gang, node) for node in "abc"] == [1, 1, 1]


def rejected(bench: Bench, *targets: To) -> str:
    assert move(bench, *targets) == []
    (refusal,) = bench.engine.state.refusals
    cause: str = refusal.reason.cause()
    return cause


def test_infeasible_moves_are_rejected_with_the_reason(bench: Bench) -> None:
    def ready(members: int = 1, **more: object) -> Bench:
        again = type(bench)()
        for name in "abc":
            again.node(name)
        again.job("j", [Task()] * members, **more)
        starts = [("j", n, "abc"[n], (0,)) for n in range(members)]
        for launch in again.plan(*starts):
            again.started(launch)
        return again

    two = ready(2)
    assert "is not free" in rejected(two, ("j", 0, "b", (0,)), ("j", 1, "c", (0,)))
    assert "would move to where it is" in rejected(ready(), ("j", 0, "a", (0,)))
    assert "needs 1 GPUs, not 0" in rejected(ready(), ("j", 0, "b", ()))
    gang = {"gang": True}
    assert "not moved as a whole" in rejected(ready(2, **gang), ("j", 1, "c", (0,)))
    lost = ready()
    lost.lose("b")
    assert "is not up" in rejected(lost, ("j", 0, "b", (0,)))
    twice = ready(2, **gang, distinct_nodes=True)
    twice.node("d", gpus=2)
    problem = rejected(twice, ("j", 0, "d", (0,)), ("j", 1, "d", (1,)))
    assert "two members on one node" in problem


def test_group_whose_target_was_taken_meanwhile_is_dropped(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j")
    bench.run("j", 0, "a")
    bench.job("k", [Task(demand=Demand(gpus=1, gpu_memory_bytes=1 << 40))])
    plan = Plan(steps=Steps.of([Group((Move(0, 1, (0,)),), MovedFor(job="k"))]))
    decide, bench.decide = bench.decide, None
    bench.lose("b")
    bench.give(PlanReady(at=bench.at, seen=decide.seen, plan=plan))
    assert bench.tasks("j") == ["running"]
    assert bench.engine.state.policy_failures == 0


def test_moves_survive_snapshots_and_the_same_events_give_the_same_state(gang: Bench) -> None:
    engine, (first, second) = gang.engine, gang.launches[-2:]
    gang.stopped(second)
    state = thaw(decode_snapshot(encode_snapshot(engine.snapshot())), hypothetical=False)
    assert is_moving(state, gang.row("g", 0))
    copy = Engine(state)
    gang.engine = copy
    gang.stopped(first)
    gang.at -= 1
    gang.engine = engine
    gang.stopped(first)
    assert digest(copy.state) == digest(engine.state)
    assert gang.tasks("g") == ["starting", "starting"]


def test_move_survives_the_compaction_of_tables(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.node("b")
    bench.job("gone")
    bench.finished(bench.run("gone", 0, "a"))
    bench.job("j")
    launch = bench.run("j", 0, "a", (1,))
    move(bench, ("j", 0, "b", (0,)))
    bench.give(JobsArchived(at=bench.at, jobs=("gone",)))
    compact(bench.engine.state)
    check(bench.engine.state)
    bench.stopped(launch)
    assert (bench.launches[-1].run, bench.launches[-1].node) == (RunId("j", 0, 2), "b")


def request(bench: Bench, run: RunId, node: str, gpus: tuple[int, ...] = (0,)) -> list[Any]:
    asked = Moved((Admitted(run, node, gpus),), "requested by grace")
    event = MoveRequested(at=bench.at, move=asked)
    assert decode(encode(event)) == event
    commands: list[Any] = bench.give(event)
    return commands


def test_requested_move_needs_no_decision(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    assert stopped_runs(request(bench, launch.run, "b")) == [launch.run]
    (stop,) = bench.engine.state.stops[0]
    assert stop.cause.text == "moved from a to b: requested by grace"
    bench.stopped(launch)
    assert bench.launches[-1].node == "b"


def test_requested_move_that_is_infeasible_by_now_changes_nothing(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    stale = bench.engine.stale
    for run, node in ((launch.run, "a"), (launch.run, "gone"), (RunId("j", 0, 7), "a")):
        assert stopped_runs(request(bench, run, node)) == []
    assert bench.engine.stale == stale + 3
    assert bench.tasks("j") == ["running"]


def test_admitted_moves_of_a_journal_are_read_as_they_were_written() -> None:
    moved = Moved((Admitted(RunId("j", 0, 1), "b", (0, 1)),), "moved for k", "k")
    event = PlanAdmitted(at=1.0, moves=(moved,))
    assert decode(encode(event)) == event
    before = '["PlanAdmitted",{"at":1.0,"starts":[],"stops":[],"memo":{},"dropped":0}]'
    assert decode(before) == PlanAdmitted(at=1.0)
