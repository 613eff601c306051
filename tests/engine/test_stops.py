"""Stops of runs: why, when and for whom, kept with the task; and stops without notice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.test_faults import gang_of_two, preempt

from headgate.api.views import task_view
from headgate.journal.codec import decode, encode
from headgate.journal.snapshots import decode_snapshot, encode_snapshot
from headgate.model import Task
from headgate.protocol import (
    FailureKind,
    JobCancelled,
    JobsArchived,
    PlanAdmitted,
    RunStop,
    StopKind,
    StopTask,
    TaskStopped,
)
from headgate.state import compact, thaw
from headgate.state.stops import STOPS_KEPT, preemption

Bench = Any  # of conftest.py


def stops(bench: Bench, job: str, ordinal: int = 0) -> Sequence[RunStop]:
    found: Sequence[RunStop] = bench.engine.state.stops.get(bench.row(job, ordinal), ())
    return found


def causes(bench: Bench, job: str, ordinal: int = 0) -> list[tuple[int, StopKind, str]]:
    return [(s.attempt, s.cause.kind, s.cause.text) for s in stops(bench, job, ordinal)]


def test_preemption_is_recorded_with_its_time_and_the_job_that_gets_the_gpus(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", grace_s=300.0)
    launch = bench.run("j", 0, "a")
    assert launch.grace_s == 300.0
    bench.job("k")
    at = bench.at
    (command,) = preempt(bench, 0, winner="k")
    assert command == StopTask(run=launch.run, node="a", now=False)
    (stop,) = stops(bench, "j")
    assert (stop.attempt, stop.at, stop.cause.job, stop.end) == (1, at, "k", "")
    assert stop.cause.text == "preempted for k, below its fair share"
    event = TaskStopped(at=bench.at, run=launch.run, message="it was killed 30 s after the notice")
    bench.give(event)
    lost_gpu_s = bench.engine.state.jobs.lost_gpu_s[0]
    assert lost_gpu_s > 0
    assert stops(bench, "j") == (stop._replace(end=event.message, lost_gpu_s=lost_gpu_s),)
    assert decode(encode(event)) == event


def test_stops_of_a_task_are_kept_when_it_runs_again_and_its_job_ends(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(checkpoint_s=1.0)])
    bench.job("k")
    for attempt in range(STOPS_KEPT + 2):
        launch = bench.run("j", 0, "a")
        bench.queue("default", max_gpus=attempt + 2)  # a reason to decide
        preempt(bench, 0, winner="k")
        assert preemption(bench.engine.state, 0) is not None
        bench.stopped(launch)
        assert preemption(bench.engine.snapshot(), 0) is not None
    last = bench.run("j", 0, "a")
    assert preemption(bench.engine.state, 0) is None
    bench.finished(last)
    assert [stop.attempt for stop in stops(bench, "j")] == [*range(3, STOPS_KEPT + 3)]


def test_stops_survive_a_snapshot_and_compaction(bench: Bench) -> None:
    bench.node("a")
    for job in ("gone", "j"):
        bench.job(job)
        launch = bench.run(job, 0, "a")
        bench.cancel(job)
        bench.stopped(launch)
    bench.give(JobsArchived(at=bench.at, jobs=("gone",)))
    before = stops(bench, "j")
    state = thaw(decode_snapshot(encode_snapshot(bench.engine.snapshot())), hypothetical=False)
    assert dict(state.stops) == dict(bench.engine.state.stops)
    compact(state)
    assert dict(state.stops) == {0: before}


def test_snapshot_of_an_earlier_release_says_why_a_run_was_preempted(bench: Bench) -> None:
    import io

    import numpy as np

    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.job("k")
    preempt(bench, 0, winner="k")
    bench.stopped(launch)
    arrays = dict(np.load(io.BytesIO(encode_snapshot(bench.engine.snapshot()))))
    (rest,) = json.loads(arrays["rest"].tobytes())
    del rest["stops"]
    rest["preempted"] = {"0": "PreemptedFor(preempted for k)"}
    arrays["rest"] = np.frombuffer(json.dumps([rest]).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    assert preemption(decode_snapshot(file.getvalue()), 0) == "PreemptedFor(preempted for k)"


def test_run_that_finishes_before_its_stop_was_not_stopped(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.job("k")
    preempt(bench, 0)
    bench.finished(launch)
    assert stops(bench, "j") == ()


def test_cancelled_runs_name_the_user(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task()])
    bench.run("j", 0, "a")
    (command,) = (c for c in bench.cancel("j") if isinstance(c, StopTask))
    assert not command.now
    assert causes(bench, "j") == [(1, StopKind.CANCELLED, "cancelled by grace")]
    assert stops(bench, "j")[0].cause.by == "grace"
    assert stops(bench, "j", 1) == (), "it did not run"
    view = task_view(bench.engine.snapshot(), 0)
    assert view["stops"] == [
        {
            "attempt": 1, "at": stops(bench, "j")[0].at, "kind": "cancelled",
            "reason": "cancelled by grace", "for_job": None, "lender": None,
            "by_user": "grace", "end": None, "lost_gpu_s": 0.0,
        }
    ]  # fmt: skip
    json.dumps(view)


def cancel_now(bench: Bench, job: str) -> list[Any]:
    event = JobCancelled(at=bench.at, job=job, by="grace", now=True)
    assert decode(encode(event)) == event
    return [c for c in bench.give(event) if isinstance(c, StopTask)]


def test_job_cancelled_now_has_no_grace_period(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    run = bench.run("j", 0, "a").run
    assert cancel_now(bench, "j") == [StopTask(run=run, node="a", now=True)]
    assert cancel_now(bench, "j") == [StopTask(run=run, node="a", now=True)], "it may be repeated"


@pytest.mark.parametrize("restart", [False, True])
def test_grace_period_of_a_cancelled_job_is_ended_by_a_second_cancellation(
    bench: Bench, restart: bool
) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.cancel("j")
    before = stops(bench, "j")
    assert cancel_now(bench, "j") == [StopTask(run=launch.run, node="a", now=True)]
    assert stops(bench, "j") == (before[0]._replace(now=True, at=stops(bench, "j")[0].at),)
    if restart:
        restored = decode_snapshot(encode_snapshot(bench.engine.snapshot()))
        bench.engine.state = thaw(restored, hypothetical=False)
    again = [c for c in bench.engine.outstanding() if isinstance(c, StopTask)]
    assert again == [StopTask(run=launch.run, node="a", now=True)]
    bench.stopped(launch)
    assert bench.job_state("j") == "cancelled"
    assert cancel_now(bench, "j") == []


def test_preempted_run_of_a_job_cancelled_now_has_no_more_grace(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.job("k")
    preempt(bench, 0, winner="k")
    assert cancel_now(bench, "j") == [StopTask(run=launch.run, node="a", now=True)]
    assert stops(bench, "j")[0].cause.kind is StopKind.PREEMPTED, "it was preempted first"
    bench.stopped(launch)
    assert bench.job_state("j") == "cancelled"


def test_other_runs_of_a_job_that_fails_say_which_task_failed(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()], retries=0)
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    bench.failed(first, FailureKind.ERROR, "it printed a secret")
    assert causes(bench, "j", 1) == [
        (1, StopKind.JOB_FAILED, "its job failed: task 0 failed once")
    ], "without the message, which only the owner may read"
    bench.stopped(second)


def test_time_limit_is_a_stop(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", time_limit_s=7200.0)
    bench.failed(bench.run("j", 0, "a"), FailureKind.TIMED_OUT, "it ended after the notice")
    assert causes(bench, "j") == [(1, StopKind.TIMED_OUT, "ran over its time limit of 2 h")]


def test_runs_lost_with_their_node_and_the_rest_of_their_gang_say_so(bench: Bench) -> None:
    bench.node("b")
    _, second = gang_of_two(bench)
    bench.failed(second, FailureKind.LOST)
    assert [kind for _, kind, _ in causes(bench, "g", 1)] == [StopKind.LOST]
    assert [kind for _, kind, _ in causes(bench, "g")] == [StopKind.GANG]
    bench.lose("a")
    assert [kind for _, kind, _ in causes(bench, "g")] == [StopKind.GANG], "it was stopped first"
    bench.up_to_date()
    launch = bench.run("k", 0, "b")
    bench.lose("b")
    assert causes(bench, "k") == [(1, StopKind.LOST, "b was lost")]
    bench.stopped(launch)


def test_gang_is_preempted_for_one_job(bench: Bench) -> None:
    gang_of_two(bench)
    preempt(bench, 1, winner="k")
    assert {stops(bench, "g", n)[0].cause.job for n in (0, 1)} == {"k"}


def test_events_of_earlier_releases_have_no_beneficiary(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    bench.run("j", 0, "a")
    text = '["PlanAdmitted",{"at":9.0,"stops":[[[["j",0,1]],"PreemptedFor(preempted for k)"]]}]'
    event = decode(text)
    assert isinstance(event, PlanAdmitted)
    assert event.stops[0].job == ""
    bench.engine.replay((event,))
    assert causes(bench, "j") == [(1, StopKind.PREEMPTED, "PreemptedFor(preempted for k)")]
