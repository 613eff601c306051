"""`after`: a job is queued until others have finished, and cancelled if one of them cannot."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.engine.conftest import Bench

from headgate.engine import Engine
from headgate.model import Job, RunId, Task
from headgate.protocol import Event, JobsArchived, JobSubmitted, TaskFinished
from headgate.state import JobState, State, check, compact, thaw
from headgate.testing.digest import digest


@pytest.fixture
def bench() -> Bench:
    """A node with four GPUs, and a queue `narrow` with one job in flight."""
    made = Bench()
    made.node("a", gpus=4)
    made.queue("narrow", max_jobs_in_flight=1)
    return made


def finish(bench: Bench, job: str) -> None:
    bench.finished(bench.run(job, 0, "a"))


def states(bench: Bench, *jobs: str) -> list[str]:
    return [bench.job_state(job) for job in jobs]


def test_job_is_queued_until_all_earlier_jobs_have_finished(bench: Bench) -> None:
    bench.job("a1")
    bench.job("a2")
    bench.job("b", after=("a1", "a2"))
    assert (bench.job_state("b"), bench.tasks("b")) == ("queued", ["held"])
    finish(bench, "a2")
    assert bench.job_state("b") == "queued"
    finish(bench, "a1")
    assert (bench.job_state("b"), bench.tasks("b")) == ("active", ["waiting"])


def test_job_after_a_finished_one_does_not_wait(bench: Bench) -> None:
    bench.job("a")
    finish(bench, "a")
    bench.job("b", after=("a",))
    assert bench.job_state("b") == "active"


@pytest.mark.parametrize("fails", [True, False])
def test_all_jobs_after_one_that_ends_without_result_are_cancelled(
    bench: Bench, fails: bool
) -> None:
    bench.job("a", retries=0)
    bench.job("b", after=("a",))
    bench.job("c", after=("b",))
    bench.job("d", after=("a", "c"))
    bench.job("e")
    if fails:
        bench.failed(bench.run("a", 0, "a"))
    else:
        bench.cancel("a")
    assert states(bench, "b", "c", "d", "e") == ["cancelled"] * 3 + ["active"]
    how = "failed" if fails else "was cancelled"
    assert bench.message("b") == f"a {how}: this job can never start"
    assert bench.message("c") == "b was cancelled: this job can never start"
    assert bench.tasks("d") == ["cancelled"]


def test_jobs_wait_while_an_earlier_one_is_being_stopped(bench: Bench) -> None:
    bench.job("a")
    launch = bench.run("a", 0, "a")
    bench.job("b", after=("a",))
    bench.cancel("a")
    assert states(bench, "a", "b") == ["stopping", "queued"]
    bench.stopped(launch)
    assert states(bench, "a", "b") == ["cancelled", "cancelled"]


def test_cancelled_queued_job_cancels_those_after_it(bench: Bench) -> None:
    bench.job("a")
    bench.job("b", after=("a",))
    bench.job("c", after=("b",))
    bench.cancel("b")
    assert states(bench, "a", "b", "c") == ["active", "cancelled", "cancelled"]
    finish(bench, "a")
    assert states(bench, "a", "b", "c") == ["finished", "cancelled", "cancelled"]


def test_long_chain_is_cancelled_from_end_to_end(bench: Bench) -> None:
    names = [f"j{number}" for number in range(2000)]
    state = bench.engine.state
    bench.engine.handle(JobSubmitted(at=bench.at, job=of(names[0])))
    jobs = [of(name, before) for before, name in pairwise(names)]
    bench.engine.handle(*(JobSubmitted(at=bench.at, job=job) for job in jobs))
    bench.cancel(names[0])
    assert set(state.jobs.state.array().tolist()) == {JobState.CANCELLED}


def of(name: str, *after: str) -> Job:
    return Job(id=name, name=name, user="ada", queue="default", tasks=(Task(),), after=after)


@pytest.mark.parametrize("after", ["nothing", "b", "later"])
def test_job_after_one_that_does_not_exist_yet_is_cancelled(bench: Bench, after: str) -> None:
    bench.job("b", after=(after,))
    bench.job("later")
    assert bench.job_state("b") == "cancelled"
    assert bench.message("b") == f"there is no job {after}: this job can never start"


def test_job_after_a_failed_one_is_cancelled(bench: Bench) -> None:
    bench.job("a")
    bench.cancel("a")
    bench.job("b", after=("a",))
    assert bench.job_state("b") == "cancelled"
    assert bench.message("b") == "a was cancelled: this job can never start"


def test_waiting_for_a_job_takes_no_place_in_the_queue(bench: Bench) -> None:
    bench.job("a")
    bench.job("b", queue="narrow", after=("a",))
    bench.job("c", queue="narrow")
    bench.job("d", queue="narrow")
    assert states(bench, "b", "c", "d") == ["queued", "active", "queued"]
    finish(bench, "a")
    assert states(bench, "b", "c", "d") == ["queued", "active", "queued"]
    finish(bench, "c")
    assert states(bench, "b", "d") == ["active", "queued"]  # in order of arrival


def test_job_after_an_archived_one_starts_when_the_others_have_finished(bench: Bench) -> None:
    for name in ("a1", "a2"):
        bench.job(name)
    bench.job("b", after=("a1", "a2"))
    finish(bench, "a1")
    launch = bench.run("a2", 0, "a")
    bench.give(JobsArchived(at=bench.at, jobs=("a1",)))
    compact(bench.engine.state)
    check(bench.engine.state)
    assert "a1" not in bench.engine.state.names.job_rows
    bench.finished(launch)
    assert bench.job_state("b") == "active"


def test_thawed_state_continues_alike(bench: Bench) -> None:
    bench.job("a")
    bench.run("a", 0, "a")
    bench.job("b", after=("a",))
    bench.job("c", after=("b",))
    event: Event = TaskFinished(at=bench.at, run=RunId("a", 0, 1))
    copy = Engine(thaw(bench.engine.snapshot(), hypothetical=False))
    for engine in (bench.engine, copy):
        engine.handle(event)
        check(engine.state)
    assert digest(copy.state) == digest(bench.engine.state)
    assert state_of(copy.state, "b", "c") == [JobState.ACTIVE, JobState.QUEUED]


def state_of(state: State, *jobs: str) -> list[int]:
    return [state.jobs.state[state.names.job_rows[job]] for job in jobs]
