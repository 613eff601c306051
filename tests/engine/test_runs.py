"""Runs: how they start, end, are retried, are stopped, and are ignored once abandoned."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.base.errors import InvariantBroken
from headgate.model import (
    Demand,
    Job,
    Program,
    ProgramType,
    Queue,
    RunId,
    Stage,
    Task,
    TaskProgram,
)
from headgate.protocol import (
    Decide,
    Event,
    FailureKind,
    JobSubmitted,
    LaunchTask,
    NodeLost,
    QueueChanged,
    StopTask,
    TaskFailed,
    TaskFinished,
)

Bench = Any  # of conftest.py


def test_a_job_walks_from_submission_to_its_end(bench: Bench) -> None:
    bench.node("a")
    assert bench.job("j") == [Decide(seen=3)]
    (launch,) = bench.plan(("j", 0, "a", (0,)))
    expected = LaunchTask(run=RunId("j", 0, 1), node="a", gpus=(0,), reads=(), holds=Demand(gpus=1))
    assert launch == expected
    assert bench.tasks("j") == ["starting"]
    assert bench.started(launch) == []
    assert bench.tasks("j") == ["running"]
    assert bench.finished(launch) == []
    assert (bench.tasks("j"), bench.job_state("j")) == (["finished"], "finished")


def test_launch_has_the_demand_and_the_bytes_of_a_share(bench: Bench) -> None:
    bench.node("a", gpus=3, memory=1000, cpus=4)
    share = Task(demand=Demand(gpus=1, cpus_milli=1500, gpu_milli=250, memory_bytes=0))
    memory = Task(demand=Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=300))
    both = Task(demand=Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=300))
    whole = Task(demand=Demand(gpus=1, gpu_memory_bytes=700))
    bench.job("j", [share, memory, both, whole, Task(demand=Demand(cpus_milli=2000))])
    placed = [("j", 0, "a", (0,)), ("j", 1, "a", (0,)), ("j", 2, "a", (0,)), ("j", 3, "a", (1,))]
    launches = bench.plan(*placed, ("j", 4, "a", ()))
    assert [launch.holds for launch in launches] == [
        Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=250, cpus_milli=1500),
        Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=300),
        Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=300),
        Demand(gpus=1, gpu_memory_bytes=700),
        Demand(cpus_milli=2000),
    ]


def test_launches_of_a_job_share_its_program(bench: Bench) -> None:
    bench.node("a", gpus=2)
    how = ProgramType.FUNCTION
    first = Stage(first=0, count=2, program_type=how, run="m:f", params={"k": [1, {"a": None}]})
    last = Stage(first=2, count=1, program_type=how, run="m:g")
    program = Program(stages=(first, last), envs={"A": "1"})
    tasks = [Task(), Task(), Task(demand=Demand(cpus_milli=1000), after=(0, 1))]
    bench.job("j", tasks, program=program, results_path="/shared")
    one, two = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    assert one.program == TaskProgram(
        user="ada", stage=first, index=0, envs={"A": "1"}, results_path="/shared"
    )
    assert (two.program.stage, two.program.index) == (first, 1)
    assert one.program.stage is two.program.stage is program.stages[0]
    assert one.program.envs is two.program.envs is program.envs


def test_run_may_end_before_its_start_is_reported(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    (launch,) = bench.plan(("j", 0, "a", (0,)))
    bench.finished(launch)
    assert bench.job_state("j") == "finished"


# --------------------------------------------------------------------------------- fencing


def test_events_of_an_abandoned_run_are_stale(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j")
    old = bench.run("j", 0, "a")
    bench.lose("a")
    new = bench.run("j", 0, "b")
    assert new.run.attempt == 2
    for late in (bench.started, bench.finished, bench.failed, bench.stopped):
        stale = bench.engine.stale
        assert late(old) == []
        assert bench.engine.stale == stale + 1
    assert bench.tasks("j") == ["running"]
    bench.finished(new)
    assert bench.job_state("j") == "finished"


def test_repeated_event_is_applied_once(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task()])
    launch = bench.run("j", 0, "a")
    bench.started(launch)
    bench.finished(launch)
    bench.finished(launch)
    assert bench.engine.stale == 2
    assert bench.tasks("j") == ["finished", "waiting"]


def test_events_about_unknown_objects_are_counted_as_stale(bench: Bench) -> None:
    bench.cancel("unknown")
    bench.lose("nowhere")
    bench.replica("s", "nowhere")
    assert bench.engine.stale == 3


def test_event_of_an_unknown_type_raises(bench: Bench) -> None:
    with pytest.raises(TypeError, match="no such event"):
        bench.give(Event(at=0.0))


def test_a_job_submitted_twice_raises_and_names_it(bench: Bench) -> None:
    bench.job("j")
    with pytest.raises(InvariantBroken, match="job j was submitted twice"):
        bench.job("j")


# --------------------------------------------------------------------------------- failures


def test_failing_task_is_retried_up_to_its_jobs_retries(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", retries=2)
    for attempt in (1, 2, 3):
        launch = bench.run("j", 0, "a")
        assert launch.run.attempt == attempt
        bench.failed(launch, message=f"error {attempt}")
    assert bench.job_state("j") == "failed"
    assert bench.tasks("j") == ["failed"]
    assert bench.message("j") == "task 0 failed 3 times: error 3"


def test_without_retries_the_first_failure_is_the_last(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", retries=0)
    bench.failed(bench.run("j", 0, "a"))
    assert bench.message("j") == "task 0 failed once: it broke"


def test_lost_runs_do_not_count_against_retries(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", retries=0)
    for _ in range(5):
        bench.failed(bench.run("j", 0, "a"), FailureKind.LOST)
    bench.finished(bench.run("j", 0, "a"))
    assert bench.job_state("j") == "finished"


def test_failed_job_stops_its_runs_and_cancels_its_waiting_tasks(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task(), Task(), Task(after=(0,))], retries=0)
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    stop = bench.failed(first, message="no memory")[0]
    assert stop == StopTask(run=second.run, node="a")
    assert bench.tasks("j") == ["failed", "stopping", "cancelled", "cancelled"]
    assert bench.job_state("j") == "stopping"
    bench.stopped(second)
    assert bench.job_state("j") == "failed"
    assert bench.message("j") == "task 0 failed once: no memory"


def test_failed_job_stays_failed_when_it_is_cancelled_afterwards(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()], retries=0)
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    bench.failed(first)
    assert bench.cancel("j") == []
    bench.stopped(second)
    assert bench.job_state("j") == "failed"


# --------------------------------------------------------------------------------- cancelling


def test_a_job_cancelled_while_it_starts_holds_its_gpu_until_the_run_has_ended(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.job("j")
    (launch,) = bench.plan(("j", 0, "a", (0,)))
    (stop,) = bench.cancel("j")
    assert (stop.run, bench.tasks("j")) == (launch.run, ["stopping"])
    bench.job("next")
    assert bench.engine.state.nodes.free_gpus[0] == 0
    bench.started(launch)  # reported before the stop reached it
    assert bench.tasks("j") == ["stopping"]
    bench.stopped(launch)
    assert (bench.job_state("j"), bench.message("j")) == ("cancelled", "cancelled by grace")
    assert bench.engine.state.nodes.free_gpus[0] == 1


@pytest.mark.parametrize("end", ["finished", "failed", "stopped"])
def test_job_is_cancelled_however_its_stopping_run_ends(bench: Bench, end: str) -> None:
    bench.node("a")
    bench.job("j")
    launch = bench.run("j", 0, "a")
    bench.cancel("j")
    getattr(bench, end)(launch)
    assert (bench.job_state("j"), bench.tasks("j")) == ("cancelled", ["cancelled"])


def test_a_node_lost_while_a_run_is_stopping_ends_the_stop_too(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(), Task()])
    bench.plan(("j", 0, "a", (0,)), ("j", 1, "b", (0,)))
    bench.cancel("j")
    bench.lose("a")
    assert bench.job_state("j") == "stopping"
    assert [c.node for c in bench.engine.outstanding() if isinstance(c, StopTask)] == ["b"]
    bench.lose("b")
    assert (bench.job_state("j"), bench.engine.outstanding()) == ("cancelled", [])


def test_job_without_runs_is_cancelled_immediately(bench: Bench) -> None:
    bench.queue("default", max_jobs_in_flight=1)
    bench.job("flies")
    bench.job("held")
    bench.cancel("held")
    assert (bench.job_state("held"), bench.tasks("held")) == ("cancelled", ["cancelled"])
    bench.cancel("flies")
    assert bench.job_state("flies") == "cancelled"


# --------------------------------------------------------------------------------- nodes


def test_tasks_of_a_lost_node_wait_again_and_the_others_run_on(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(), Task()])
    _, other = bench.plan(("j", 0, "a", (0,)), ("j", 1, "b", (0,)))
    bench.started(other)
    assert isinstance(bench.lose("a")[0], Decide)
    assert bench.tasks("j") == ["waiting", "running"]


def test_node_that_returns_before_its_loss_is_observed_has_no_runs(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j")
    launch = bench.run("j", 0, "a", (1,))
    bench.node("a", gpus=1)
    assert bench.tasks("j") == ["waiting"]
    bench.finished(launch)
    assert bench.tasks("j") == ["waiting"]
    (again,) = bench.plan(("j", 0, "a", (0,)))
    assert again.run.attempt == 2


def test_ends_and_losses_of_one_instant_are_applied_in_order(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()])
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    bench.give(
        TaskFinished(at=9.0, run=first.run),
        NodeLost(at=9.0, node="a"),
        TaskFailed(at=9.0, run=second.run, kind=FailureKind.ERROR, message="too late"),
    )
    assert bench.tasks("j") == ["finished", "waiting"]
    assert bench.engine.stale == 1


# --------------------------------------------------------------------------------- queues


def test_queued_jobs_are_activated_by_arrival_of_users_and_priority_within_a_user(
    bench: Bench,
) -> None:
    bench.queue("narrow", max_jobs_in_flight=1)
    for name, user, priority in (
        ("first", "ada", 0), ("a-low", "ada", 0), ("g-low", "grace", 1), ("a-high", "ada", 5),
        ("g-high", "grace", 9), ("a-high-2", "ada", 5),
    ):  # fmt: skip
        bench.job(name, queue="narrow", user=user, priority=priority)
    order = []
    for _ in range(6):
        (flies,) = [
            j.id for j in bench.engine.state.names.jobs if bench.job_state(j.id) == "active"
        ]
        order.append(flies)
        bench.cancel(flies)
    # ada's a-low arrived first, so the next is ada's best: twice her high ones go before it
    assert order == ["first", "a-high", "a-high-2", "a-low", "g-high", "g-low"]


def test_raised_limit_activates_queued_jobs_and_a_lowered_one_deactivates_none(
    bench: Bench,
) -> None:
    bench.queue("narrow", max_jobs_in_flight=1)
    for number in range(4):
        bench.job(f"j{number}", queue="narrow")
    bench.queue("narrow", max_jobs_in_flight=3)
    states = [bench.job_state(f"j{n}") for n in range(4)]
    assert states == ["active", "active", "active", "queued"]
    bench.queue("narrow", max_jobs_in_flight=1)
    bench.cancel("j0")
    assert [bench.job_state(f"j{n}") for n in (1, 2, 3)] == ["active", "active", "queued"]


def test_submissions_of_one_instant_are_applied_in_order(bench: Bench) -> None:
    jobs = [
        Job(id=f"j{n}", name="j", user="ada", queue="q", tasks=(Task(),), priority=n)
        for n in range(3)
    ]
    queue = Queue(name="q", max_jobs_in_flight=1)
    events = [JobSubmitted(at=1.0, job=j) for j in jobs]
    commands = bench.give(QueueChanged(at=1.0, queue=queue), *events)
    assert [bench.job_state(j.id) for j in jobs] == ["active", "queued", "queued"]
    assert [type(c) for c in commands] == [Decide]
