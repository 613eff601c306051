"""A job of slots ends as finished when its owner needs no more of them."""

from __future__ import annotations

from tests.engine.conftest import Bench

from headgate.model import Items, Task
from headgate.protocol import JobCancelled, SlotsWithdrawn
from headgate.state import JobState, TaskState, check


def states(bench: Bench) -> tuple[JobState, list[TaskState]]:
    state = bench.engine.state
    check(state)
    return JobState(state.jobs.state[0]), [TaskState(s) for s in state.tasks.state.array()]


def withdraw(bench: Bench) -> None:
    bench.give(SlotsWithdrawn(at=bench.at, job="calls"))


def test_slots_without_a_run_are_finished_and_the_job_when_the_others_end(bench: Bench) -> None:
    bench.job("calls", [Task()] * 4, items=Items())
    bench.up_to_date()
    first, second = bench.plan(("calls", 0, "a", (0,)), ("calls", 1, "a", (1,)))
    bench.started(first)
    withdraw(bench)
    done = TaskState.FINISHED
    assert states(bench) == (JobState.ACTIVE, [TaskState.RUNNING, TaskState.STARTING, done, done])
    before = bench.engine.stale
    withdraw(bench)
    assert bench.engine.stale == before + 1, "no slot is left without a run"
    for launch in (first, second):
        bench.finished(launch)
    assert states(bench) == (JobState.FINISHED, [done] * 4)
    assert bench.engine.state.jobs.message[0] is None
    assert bench.engine.outstanding() == []


def test_slots_of_a_queued_job_and_those_held_back_are_finished(bench: Bench) -> None:
    bench.queue("narrow", max_jobs_in_flight=0)
    bench.job("calls", [Task()] * 2, items=Items(), queue="narrow")
    withdraw(bench)
    assert states(bench)[0] == JobState.FINISHED
    assert bench.engine.state.queues.queued[bench.engine.state.names.queue_rows["narrow"]] == 0


def test_jobs_that_have_ended_and_tasks_that_are_no_slots_stay_unchanged(bench: Bench) -> None:
    bench.job("calls", [Task()] * 2)
    before = states(bench)
    withdraw(bench)
    assert states(bench) == before
    bench.job("more", [Task()], items=Items())
    bench.give(JobCancelled(at=bench.at, job="more", by="ada"))
    bench.give(SlotsWithdrawn(at=bench.at, job="more"))
    assert bench.engine.state.jobs.state[1] == JobState.CANCELLED
