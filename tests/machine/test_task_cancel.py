"""One task of a job is cancelled alone, its others continue; the job ends as cancelled then."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Bench, stops

from headgate.machine.task_cancel import CancelFault, fault_of
from headgate.model import Elastic, Items, Task
from headgate.protocol import (
    Command,
    Group,
    JobCancelled,
    Plan,
    PlanReady,
    Steps,
    Stop,
    StopTask,
    TaskCancelled,
)
from headgate.protocol.reasons import PreemptedFor

ARRAY = [Task()] * 4


def cancel(bench: Bench, job: str, *ordinals: int, now: bool = False) -> list[Command]:
    events = [
        TaskCancelled(at=bench.at, job=job, ordinal=number, by="ada", now=now)
        for number in ordinals
    ]
    return bench.give(*events)


def is_refused(
    bench: Bench, job: str, ordinal: int, fault: CancelFault, *, now: bool = False
) -> bool:
    """Return whether a cancellation changes nothing, for this reason."""
    state, before = bench.engine.state, (bench.tasks(job), bench.engine.stale)
    row = state.names.job_rows[job]
    assert fault_of(state, row, ordinal, now=now) is fault
    assert stops(cancel(bench, job, ordinal, now=now)) == []
    return (bench.tasks(job), bench.engine.stale) == (before[0], before[1] + 1)


def test_waiting_starting_and_running_tasks_are_cancelled_and_the_others_continue(
    bench: Bench,
) -> None:
    bench.job("j", ARRAY)
    bench.up_to_date()
    first, second, third = bench.plan(*(("j", n, "a", (n,)) for n in range(3)))
    bench.started(first)
    bench.started(third)
    assert stops(cancel(bench, "j", 0, 1, 3)) == [first.run, second.run]
    assert bench.tasks("j") == ["stopping", "stopping", "running", "cancelled"]
    bench.stopped(first)
    bench.stopped(second)
    assert bench.tasks("j") == ["cancelled", "cancelled", "running", "cancelled"]
    assert bench.job_state("j") == "active"
    bench.finished(third)
    assert bench.job_state("j") == "cancelled"
    assert bench.message("j") == "3 of 4 tasks were cancelled, the last one, task 3, by ada"
    assert bench.engine.outstanding() == []


def test_job_ends_as_finished_without_and_as_cancelled_with_a_cancelled_task(bench: Bench) -> None:
    for name in ("whole", "part"):
        bench.job(name, [Task()] * 2)
    for name in ("whole", "part"):
        bench.finished(bench.run(name, 0, "a"))
    cancel(bench, "part", 1)
    bench.finished(bench.run("whole", 1, "a"))
    assert [bench.job_state(name) for name in ("whole", "part")] == ["finished", "cancelled"]
    assert bench.message("part") == "task 1 was cancelled by ada"


def test_job_after_one_with_a_cancelled_task_never_starts(bench: Bench) -> None:
    bench.job("j", [Task()] * 2)
    bench.job("later", after=("j",))
    cancel(bench, "j", 0)
    assert bench.job_state("later") == "queued"
    bench.finished(bench.run("j", 1, "a"))
    assert bench.job_state("later") == "cancelled"
    assert bench.message("later") == "j was cancelled: this job can never start"


def test_job_all_tasks_of_which_are_cancelled_ends_as_if_it_had_been_cancelled(
    bench: Bench,
) -> None:
    bench.job("j", ARRAY)
    cancel(bench, "j", 0, 1, 2, 3)
    assert (bench.job_state("j"), bench.message("j")) == ("cancelled", "cancelled by ada")
    assert is_refused(bench, "j", 0, CancelFault.OVER)


def test_job_with_a_failed_and_a_cancelled_task_ends_as_failed(bench: Bench) -> None:
    bench.job("j", [Task()] * 3, retries=0)
    bench.up_to_date()
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    cancel(bench, "j", 0, 2)
    bench.failed(second)
    assert bench.job_state("j") == "stopping", "the cancelled run has not ended"
    bench.stopped(first)
    assert bench.tasks("j") == ["cancelled", "failed", "cancelled"]
    assert (bench.job_state("j"), bench.message("j")) == ("failed", "task 1 failed once: it broke")


@pytest.mark.parametrize("end", ["finished", "failed", "lost"])
def test_run_that_ends_before_its_stop_arrives_is_cancelled(bench: Bench, end: str) -> None:
    bench.job("j", [Task()] * 2)
    launch = bench.run("j", 0, "a")
    cancel(bench, "j", 0)
    {
        "finished": lambda: bench.finished(launch, 10),
        "failed": lambda: bench.failed(launch),
        "lost": lambda: bench.lose("a"),
    }[end]()
    assert bench.tasks("j") == ["cancelled", "waiting"]


def test_task_that_is_being_preempted_does_not_wait_again(bench: Bench) -> None:
    bench.job("j", [Task()] * 2)
    bench.job("first")
    launch = bench.run("j", 0, "a")
    bench.queue("default")  # asks for a decision on the state of now
    bench.up_to_date()
    assert bench.decide is not None
    stop = Group((Stop(bench.row("j", 0)),), PreemptedFor(job="first"))
    event = PlanReady(at=bench.at, seen=bench.decide.seen, plan=Plan(steps=Steps.of([stop])))
    assert stops(bench.give(event)) == [launch.run]
    bench.decide = None
    assert stops(cancel(bench, "j", 0)) == [], "its stop is on its way"
    bench.stopped(launch)
    assert bench.tasks("j") == ["cancelled", "waiting"]
    (record,) = bench.engine.state.stops[bench.row("j", 0)]
    assert (record.cause.kind, record.cause.by) == ("cancelled", "ada")


def test_second_cancellation_is_refused_unless_it_ends_the_grace_period(bench: Bench) -> None:
    bench.job("j", [Task()] * 2)
    launch = bench.run("j", 0, "a")
    cancel(bench, "j", 0)
    assert is_refused(bench, "j", 0, CancelFault.STOPPING)
    (stop,) = (c for c in cancel(bench, "j", 0, now=True) if isinstance(c, StopTask))
    assert (stop.run, stop.now) == (launch.run, True)


def test_tasks_that_cannot_be_cancelled_alone_are_unchanged(bench: Bench) -> None:
    bench.job("gang", [Task()] * 2, gang=True)
    bench.job("calls", [Task()] * 2, items=Items())
    bench.job("grows", [Task()] * 2, elastic=Elastic(minimum=1))
    bench.job("dag", [Task(), Task(after=(0,)), Task()])
    bench.job("ends", [Task()] * 2)
    assert is_refused(bench, "gang", 0, CancelFault.GANG)
    assert is_refused(bench, "calls", 1, CancelFault.SLOT)
    assert is_refused(bench, "grows", 1, CancelFault.UNIT)
    assert is_refused(bench, "dag", 0, CancelFault.AWAITED)
    for unknown in (-1, 3):
        assert is_refused(bench, "dag", unknown, CancelFault.UNKNOWN)
    bench.finished(bench.run("ends", 0, "a"))
    assert is_refused(bench, "ends", 0, CancelFault.OVER, now=True)
    bench.queue("default")  # asks for a decision on the state of now
    bench.run("ends", 1, "a")
    bench.give(JobCancelled(at=bench.at, job="ends", by="ada"))
    assert is_refused(bench, "ends", 1, CancelFault.STOPPING)
    before = bench.engine.stale
    cancel(bench, "nowhere", 0)
    assert bench.engine.stale == before + 1


def test_task_that_only_cancelled_tasks_come_after_can_be_cancelled(bench: Bench) -> None:
    bench.job("dag", [Task(), Task(after=(0,)), Task(after=(0,)), Task()])
    cancel(bench, "dag", 1)
    assert is_refused(bench, "dag", 0, CancelFault.AWAITED)
    cancel(bench, "dag", 2)
    cancel(bench, "dag", 0)
    assert bench.tasks("dag") == ["cancelled"] * 3 + ["waiting"]


def test_result_that_only_a_cancelled_task_would_read_is_not_made_again(bench: Bench) -> None:
    bench.node("b", gpus=4)
    bench.job("dag", [Task(output_bytes=9), Task(after=(0,), reads=("dag/0",)), Task()])
    bench.finished(bench.run("dag", 0, "b"), 9)
    cancel(bench, "dag", 1)
    bench.lose("b")
    assert bench.tasks("dag") == ["finished", "cancelled", "waiting"]


def test_cancelled_task_makes_room_for_one_that_max_running_holds_back(bench: Bench) -> None:
    bench.job("j", ARRAY, max_running=1)
    assert bench.tasks("j") == ["waiting", "held", "held", "held"]
    cancel(bench, "j", 0)
    cancel(bench, "j", 2)
    assert bench.tasks("j") == ["cancelled", "waiting", "cancelled", "held"]
    bench.finished(bench.run("j", 1, "a"))
    bench.finished(bench.run("j", 3, "a"))
    assert bench.job_state("j") == "cancelled"


def test_tasks_of_a_queued_job_are_cancelled_before_it_is_in_flight(bench: Bench) -> None:
    bench.queue("narrow", max_jobs_in_flight=0)
    for name in ("some", "all", "whole"):
        bench.job(name, [Task()] * 2, queue="narrow")
    cancel(bench, "some", 0)
    cancel(bench, "all", 0, 1)
    cancel(bench, "whole", 1)
    bench.cancel("whole")
    assert [bench.job_state(name) for name in ("some", "all", "whole")] == [
        "queued", "cancelled", "cancelled",
    ]  # fmt: skip
    bench.queue("narrow")
    assert bench.tasks("some") == ["cancelled", "waiting"]
