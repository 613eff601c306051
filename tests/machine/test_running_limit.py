"""`max_running`: at most so many tasks of a job are in flight, whatever happens to their runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.engine.conftest import Bench

from headgate.engine import Engine
from headgate.model import RunId, Task
from headgate.protocol import (
    FailureKind,
    Group,
    LaunchTask,
    Plan,
    PlanReady,
    Steps,
    Stop,
    TaskFinished,
)
from headgate.state import check, thaw
from headgate.testing.digest import digest

Launches = list[LaunchTask]


@pytest.fixture
def bench() -> Bench:
    """A node with eight GPUs, one with two, and nothing else."""
    made = Bench()
    made.node("a", gpus=8, cpus=8)
    made.node("b", gpus=2)
    return made


def array(bench: Bench, count: int = 6, most: int = 2, **more: object) -> None:
    bench.job("j", [Task()] * count, max_running=most, **more)


def begin(bench: Bench, *ordinals: int, node: str = "a") -> Launches:
    bench.up_to_date()
    launches = bench.plan(*(("j", n, node, (i,)) for i, n in enumerate(ordinals)))
    for launch in launches:
        bench.started(launch)
    return launches


def begun(bench: Bench) -> Iterator[int]:
    """Yield the ordinals of tasks that are in flight."""
    for ordinal, state in enumerate(bench.tasks("j")):
        if state in ("waiting", "starting", "running", "stopping"):
            yield ordinal


def test_only_the_first_tasks_wait_and_the_others_are_held(bench: Bench) -> None:
    array(bench)
    assert bench.tasks("j") == ["waiting"] * 2 + ["held"] * 4
    assert bench.engine.state.waiting_tasks == 2


def test_next_held_task_waits_when_one_has_finished(bench: Bench) -> None:
    array(bench)
    first, second = begin(bench, 0, 1)
    assert [*begun(bench)] == [0, 1]
    bench.finished(second)
    assert bench.tasks("j") == ["running", "finished", "waiting", "held", "held", "held"]
    bench.finished(first)
    assert [*begun(bench)] == [2, 3]


def test_job_finishes_after_all_its_tasks(bench: Bench) -> None:
    array(bench, count=5, most=2)
    ended = 0
    while bench.job_state("j") == "active":
        for launch in begin(bench, *begun(bench)):
            bench.finished(launch)
            ended += 1
    assert (ended, bench.job_state("j")) == (5, "finished")


def test_limit_above_the_number_of_tasks_holds_none(bench: Bench) -> None:
    array(bench, count=3, most=7)
    assert bench.tasks("j") == ["waiting"] * 3


def test_failed_task_keeps_its_place_for_its_next_run(bench: Bench) -> None:
    array(bench)
    first, _ = begin(bench, 0, 1)
    bench.failed(first)
    assert bench.tasks("j") == ["waiting", "running", "held", "held", "held", "held"]


def test_preempted_task_keeps_its_place(bench: Bench) -> None:
    array(bench)
    first, _ = begin(bench, 0, 1)
    bench.job("other")
    bench.up_to_date()
    assert bench.decide is not None
    stop = Group((Stop(bench.row("j", 0)),))
    bench.give(PlanReady(at=bench.at, seen=bench.decide.seen, plan=Plan(steps=Steps.of([stop]))))
    assert bench.tasks("j")[:3] == ["stopping", "running", "held"]
    bench.stopped(first)
    assert bench.tasks("j")[:3] == ["waiting", "running", "held"]


def test_tasks_of_a_lost_node_keep_their_places(bench: Bench) -> None:
    array(bench)
    begin(bench, 0, 1, node="b")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "waiting", "held", "held", "held", "held"]


def test_lost_result_is_made_again_within_the_limit(bench: Bench) -> None:
    array(bench, count=4, most=1)
    (launch,) = begin(bench, 0, node="b")
    bench.finished(launch, output_bytes=10)
    begin(bench, 1)
    bench.lose("b")  # the user needs the result of task 0
    assert bench.tasks("j") == ["held", "running", "held", "held"]
    bench.finished(bench.launches[-1])
    assert bench.tasks("j") == ["waiting", "finished", "held", "held"]


def test_blocked_tasks_take_no_place_and_are_held_when_unblocked(bench: Bench) -> None:
    tasks = [Task(), Task(), Task(after=(0,)), Task(after=(0, 1))]
    bench.job("j", tasks, max_running=1)
    assert bench.tasks("j") == ["waiting", "held", "blocked", "blocked"]
    (launch,) = begin(bench, 0)
    bench.finished(launch)
    assert bench.tasks("j") == ["finished", "waiting", "held", "blocked"]
    (launch,) = begin(bench, 1)
    bench.finished(launch)
    assert bench.tasks("j") == ["finished", "finished", "waiting", "held"]


def test_failed_task_that_is_blocked_again_makes_room(bench: Bench) -> None:
    reads = Task(after=(0,), reads=("j/0",))
    bench.job("j", [Task(), reads, Task()], max_running=1)
    (first,) = begin(bench, 0, node="b")
    bench.finished(first, output_bytes=10)
    (second,) = begin(bench, 1)
    bench.lose("b")
    assert bench.tasks("j") == ["held", "running", "held"]
    bench.failed(second, FailureKind.LOST)
    assert bench.tasks("j") == ["waiting", "blocked", "held"]


def test_later_stages_are_not_limited(bench: Bench) -> None:
    tasks = [Task(), Task(), Task(after=(0, 1)), Task(after=(0, 1))]
    bench.job("j", tasks, max_running=1, limited_tasks=2)
    for ordinal in (0, 1):
        (launch,) = begin(bench, ordinal)
        bench.finished(launch)
    assert bench.tasks("j") == ["finished", "finished", "waiting", "waiting"]


def test_cancelled_job_ends_with_its_held_tasks(bench: Bench) -> None:
    array(bench)
    launches = begin(bench, 0, 1)
    bench.cancel("j")
    for launch in launches:
        bench.stopped(launch)
    assert bench.tasks("j") == ["cancelled"] * 6
    assert bench.job_state("j") == "cancelled"


def test_failed_job_starts_no_held_task(bench: Bench) -> None:
    array(bench, retries=0)
    first, second = begin(bench, 0, 1)
    bench.failed(first)
    assert bench.tasks("j") == ["failed", "stopping"] + ["cancelled"] * 4
    bench.stopped(second)
    assert bench.job_state("j") == "failed"


def test_gang_is_not_limited(bench: Bench) -> None:
    array(bench, count=3, most=1, gang=True)
    assert bench.tasks("j") == ["waiting"] * 3


def test_policy_may_not_start_a_held_task(bench: Bench) -> None:
    array(bench)
    assert bench.plan(("j", 3, "a", (0,))) == []
    (refusal,) = bench.engine.state.refusals
    assert "does not wait" in str(refusal.reason)


def test_thawed_state_continues_alike(bench: Bench) -> None:
    array(bench)
    launches = begin(bench, 0, 1)
    engine = Engine(thaw(bench.engine.snapshot(), hypothetical=False))
    event = TaskFinished(at=bench.at, run=RunId("j", 1, 1))
    assert launches[1].run == event.run
    for each in (bench.engine, engine):
        each.handle(event)
        check(each.state)
    assert digest(engine.state) == digest(bench.engine.state)
