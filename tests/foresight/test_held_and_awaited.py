"""Why tasks held back by `max_running` wait, and jobs that come after others; when they start."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Bench

from headgate.api.views import job_view, task_view
from headgate.foresight.explain import ExplanationContext, explain
from headgate.foresight.forecast import forecast
from headgate.foresight.why import why
from headgate.model import Task
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol.order_reasons import MaxRunning, WaitsForJobs
from headgate.protocol.reasons import JobsInFlightLimit, Undecided
from headgate.state import TaskState


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.node("a", gpus=2)
    return made


def begin(bench: Bench, job: str, ordinal: int = 0, gpu: int = 0) -> None:
    """Let a task run on a GPU of the node."""
    state, task = bench.engine.state, bench.row(job, ordinal)
    state.launch(task, 0, (gpu,), attempt=1)
    state.tasks.started_at[task] = state.now
    state.move_task(task, TaskState.RUNNING)


def row(bench: Bench, job: str) -> int:
    found: int = bench.engine.state.names.job_rows[job]
    return found


def reason(bench: Bench, job: str, ordinal: int | None = None) -> object:
    task = None if ordinal is None else bench.row(job, ordinal)
    return explain(bench.engine.state, row(bench, job), bench.engine.state.now, task).reason


def test_held_task_is_held_back_by_the_limit_and_a_waiting_one_is_not(bench: Bench) -> None:
    bench.job("j", [Task()] * 4, max_running=2)
    assert reason(bench, "j", 3) == MaxRunning(running=0, max_running=2)
    assert reason(bench, "j", 0) == reason(bench, "j") == Undecided()
    begin(bench, "j", 0)
    begin(bench, "j", 1, gpu=1)
    held = MaxRunning(running=2, max_running=2)
    assert reason(bench, "j") == reason(bench, "j", 2) == held
    assert held.cause() == "held back by max_running (2 of 2 running)"


def test_views_of_a_held_task_and_its_job_show_the_limit(bench: Bench) -> None:
    bench.job("j", [Task()] * 4, max_running=1)
    begin(bench, "j", 0)
    snapshot = bench.engine.state.freeze()
    first, held = (task_view(snapshot, bench.row("j", n))["reason"] for n in (0, 3))
    assert first is None
    assert held.startswith("MaxRunning(held back by max_running (1 of 1 running);")
    job = job_view(snapshot, row(bench, "j"), bench.at, ExplanationContext(snapshot, ()))
    assert (job["max_running"], job["tasks"]["held"], job["reason"]) == (1, 3, held)


def test_held_task_of_a_queued_job_waits_for_its_job(bench: Bench) -> None:
    bench.queue("narrow", max_jobs_in_flight=1)
    bench.job("i", queue="narrow")
    bench.job("j", [Task()] * 4, max_running=1, queue="narrow")
    assert isinstance(reason(bench, "j", 2), JobsInFlightLimit)
    assert task_view(bench.engine.state.freeze(), bench.row("j", 2))["reason"] is None


def test_forecast_of_a_held_task_is_the_end_of_the_one_before(bench: Bench) -> None:
    bench.job("j", [Task()] * 3, max_running=1)
    launch = bench.run("j", 0, "a")
    bench.finished(launch)
    begin(bench, "j", 1)
    snapshot = bench.engine.state.freeze()
    found = forecast(snapshot, FirstInFirstOut(), [bench.row("j", 2)], bench.at)
    assert (found.task, found.after) == ("j/2", "j/1")


def test_reason_names_the_awaited_job_with_its_state_and_expected_end(bench: Bench) -> None:
    bench.job("a")
    bench.job("a2", estimated_s=100.0)
    bench.job("b", after=("a",))
    bench.job("c", after=("a2",))
    assert reason(bench, "b") == WaitsForJobs(job="a", state="PENDING")
    assert str(reason(bench, "b")) == (
        "WaitsForJobs(depends on a (PENDING); starts when it has finished)"
    )
    begin(bench, "a", 0)
    assert reason(bench, "b") == WaitsForJobs(job="a", state="RUNNING")
    begin(bench, "a2", gpu=1)
    now = bench.engine.state.now
    found = reason(bench, "c")
    assert found == WaitsForJobs(job="a2", state="RUNNING", ends_at=now + 100, ahead_s=100)
    assert "depends on a2 (RUNNING, expected end 00:01:" in str(found)


def test_reason_names_the_job_that_ends_last_of_several(bench: Bench) -> None:
    for name, takes_s in (("a1", 100.0), ("a2", 200.0), ("a3", 50.0)):
        bench.job(name, estimated_s=takes_s)
    begin(bench, "a1", 0)
    begin(bench, "a2", 0, gpu=1)
    bench.job("b", after=("a1", "a2"))
    bench.job("c", after=("a1", "a3", "a2"))
    late = reason(bench, "b")
    assert isinstance(late, WaitsForJobs)
    assert (late.job, late.others) == ("a2", 1)
    assert str(late).endswith(" and 1 more; starts when they have finished)")
    assert reason(bench, "c") == WaitsForJobs(job="a3", state="PENDING", others=2)


def test_stopping_job_is_shown_as_stopping(bench: Bench) -> None:
    bench.job("a")
    begin(bench, "a", 0)
    bench.job("b", after=("a",))
    bench.cancel("a")
    assert reason(bench, "b") == WaitsForJobs(job="a", state="STOPPING")


def test_waiting_jobs_are_not_ahead_in_their_queue(bench: Bench) -> None:
    bench.queue("narrow", max_jobs_in_flight=1)
    bench.job("i")
    bench.job("a", queue="narrow")
    bench.job("b", queue="narrow", after=("i",))
    bench.job("c", queue="narrow")
    assert reason(bench, "c") == JobsInFlightLimit(
        queue="narrow", in_flight=1, max_jobs_in_flight=1, ahead=0
    )


def test_start_of_a_waiting_job_is_forecast_after_the_end_of_the_awaited_one(bench: Bench) -> None:
    bench.job("a", estimated_s=100.0)
    bench.job("b", after=("a",), estimated_s=50.0)
    bench.job("c", after=("b",))
    begin(bench, "a", 0)
    now = bench.engine.state.now
    found = why(bench.engine.state.freeze(), FirstInFirstOut(), row(bench, "c"), None, now)
    assert found.start is not None
    assert (found.start.task, found.start.after) == ("c/0", "b/0")
    assert found.start.at == pytest.approx(now + 150)


def test_start_after_a_job_is_a_guess_while_no_run_has_ended(bench: Bench) -> None:
    bench.job("a")
    begin(bench, "a", 0)
    bench.job("b", after=("a",))
    found = why(bench.engine.state.freeze(), FirstInFirstOut(), row(bench, "b"), None, bench.at)
    assert found.start is not None
    assert (found.start.after, found.start.unknown_runs) == ("a/0", 1)
    assert found.start.at is not None
    assert bench.at < found.start.at
