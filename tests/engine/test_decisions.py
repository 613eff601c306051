"""Decisions: when one is issued, the outcomes of plans, and which commands are repeated."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headgate.model import Bandwidth, Demand, Task
from headgate.protocol import (
    BandwidthMeasured,
    Decide,
    LaunchGang,
    LaunchTask,
    Plan,
    PlanFailed,
    PlanReady,
    Start,
    Steps,
    StopTask,
    TimerFired,
    WakeAt,
)
from headgate.protocol.reasons import PolicyBroke

Bench = Any  # of conftest.py


def decides(commands: list[Any]) -> int:
    return sum(isinstance(c, Decide) for c in commands)


# --------------------------------------------------------------------------------- when to ask


def test_nothing_is_decided_while_nothing_waits(bench: Bench) -> None:
    assert bench.node("a") == []
    assert bench.replica("s", "a") == []
    assert bench.queue("other") == []
    assert decides(bench.job("j")) == 1


def test_one_decision_is_outstanding_at_a_time_and_events_meanwhile_need_another(
    bench: Bench,
) -> None:
    bench.node("a", gpus=2)
    assert decides(bench.job("j")) == 1
    assert decides(bench.job("k")) == 0
    launch, *after = bench.give(bench.plan_event(("j", 0, "a", (0,))))
    assert isinstance(launch, LaunchTask)
    assert decides(after) == 1


def test_nothing_is_decided_again_until_something_changes(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task()])
    launch = bench.run("j", 0, "a")
    assert bench.decide is None
    same = Bandwidth(disk_bytes_per_s=5e8, rack_bytes_per_s=1.25e8, cluster_bytes_per_s=3.125e7)
    assert bench.give(BandwidthMeasured(at=9.0, bandwidth=same)) == []
    assert bench.started(launch) == []
    assert decides(bench.finished(launch)) == 1


@pytest.mark.parametrize("news", ["node", "replica", "queue", "job", "cancel", "lose", "measure"])
def test_changes_of_capacity_shares_or_waiting_tasks_need_a_decision(
    bench: Bench, news: str
) -> None:
    bench.node("a")
    bench.node("spare")
    bench.job("other")
    bench.job("j")
    bench.plan()  # no task is placed
    bench.plan()
    assert bench.decide is None
    faster = Bandwidth(disk_bytes_per_s=1, rack_bytes_per_s=1, cluster_bytes_per_s=1)
    commands = {
        "node": lambda: bench.node("b"),
        "replica": lambda: bench.replica("s", "a"),
        "queue": lambda: bench.queue("default", max_gpus=3),
        "job": lambda: bench.job("k"),
        "cancel": lambda: bench.cancel("other"),
        "lose": lambda: bench.lose("spare"),
        "measure": lambda: bench.give(BandwidthMeasured(at=9.0, bandwidth=faster)),
    }[news]()
    assert decides(commands) == 1


# --------------------------------------------------------------------------------- stale plans


def test_stale_plan_is_admitted_as_far_as_feasible_and_the_rest_is_decided_again(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(), Task()])
    bench.lose("a")
    (launch,) = bench.plan(("j", 0, "a", (0,)), ("j", 1, "b", (0,)))
    assert (launch.run.ordinal, launch.node) == (1, "b")
    assert (bench.engine.stale, bench.tasks("j")) == (1, ["waiting", "starting"])
    assert bench.decide is not None


def test_plan_infeasible_on_its_snapshot_is_rejected_even_if_stale(
    bench: Bench,
) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()])
    launch, *_ = bench.plan(("j", 0, "a", (0,)))
    bench.queue("other")  # a reason to decide
    bench.finished(launch)  # its GPU is free by now, but was not in the snapshot
    (wake,) = bench.give(bench.plan_event(("j", 1, "a", (0,))))
    assert isinstance(wake, WakeAt)
    assert bench.tasks("j") == ["finished", "waiting"]


def test_start_on_gpus_taken_since_the_snapshot_is_dropped(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j")
    bench.node("a", gpus=1, memory=1)  # came back with less
    assert bench.plan(("j", 0, "a", (1,))) == []
    assert bench.decide is not None


def test_ceiling_lowered_after_the_decision_is_enforced(bench: Bench) -> None:
    bench.node("a", gpus=3)
    bench.job("j", [Task(), Task(), Task()])
    bench.queue("default", max_gpus=2)
    launched = bench.plan(*[("j", n, "a", (n,)) for n in range(3)])
    assert [c.run.ordinal for c in launched] == [0, 1]


def test_repeated_plan_is_applied_once(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    event = bench.plan_event(("j", 0, "a", (0,)))
    assert len(bench.give(event)) == 1
    assert bench.give(event) == []
    assert bench.engine.stale == 1


# --------------------------------------------------------------------------------- broken policies


def impossible(bench: Bench) -> dict[str, Plan]:
    bench.node("a", gpus=2, memory=10, cpus=1)
    bench.queue("poor", max_gpus=0)
    bench.job(
        "j",
        [
            Task(demand=Demand(gpus=1, gpu_memory_bytes=20)),
            Task(),
            Task(demand=Demand(cpus_milli=9000)),
            Task(after=(1,)),
        ],
    )
    bench.job("p", queue="poor")
    bench.job("g", [Task(), Task()], gang=True)
    bench.plan()

    def one(job: str, ordinal: int, node: int, *gpus: int) -> Plan:
        return steps(Start(bench.row(job, ordinal), node, gpus))

    def steps(*starts: Start) -> Plan:
        return Plan(steps=Steps.of(starts))

    (start,) = one("j", 1, 0, 0).starts
    return {
        "there is no task 99": steps(Start(99, 0, ())),
        "there is no task -1": steps(Start(-1, 0, ())),
        "GPU 0 of a is too small": one("j", 0, 0, 0),
        "does not wait": one("j", 3, 0, 0),
        "node 7 is not up": one("j", 1, 7, 0),
        "node -1 is not up": one("j", 1, -1, 0),
        "needs 1 GPUs, not 2": one("j", 1, 0, 0, 1),
        "GPU 2 of a is not free": one("j", 1, 0, 2),
        "too little free cpus on a": one("j", 2, 0),
        "queue poor would have 1 GPUs allocated, more than 0": one("p", 0, 0, 0),
        "gang g is not whole": one("g", 0, 0, 0),
        f"task {start.task} does not wait": steps(start, start),
    }


@pytest.mark.parametrize("number", range(12))
def test_infeasible_plan_is_reported_as_the_policys_fault(bench: Bench, number: int) -> None:
    fault, plan = list(impossible(bench).items())[number]
    assert bench.decide is not None
    event = PlanReady(at=bench.at, seen=bench.decide.seen, plan=plan)
    at = bench.at
    commands = bench.give(event)
    (wake,) = [c for c in commands if isinstance(c, WakeAt)]
    assert wake.at == at + 1.0
    assert decides(commands) == 0
    (refusal,) = bench.engine.state.refusals
    assert isinstance(refusal.reason, PolicyBroke)
    assert fault in refusal.reason.message


def test_failing_policy_is_retried_after_pauses_that_double_up_to_a_minute(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.job("j")
    pauses = []
    for _ in range(1100):  # days of failures
        asked_at = bench.at
        event = PlanFailed(at=asked_at, seen=bench.decide.seen, message="it broke")
        (wake,) = bench.give(event)
        pauses.append(wake.at - asked_at)
        bench.at = wake.at
        (again,) = bench.give(TimerFired(at=wake.at, timer=wake.timer))
        assert isinstance(again, Decide)
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert set(pauses[8:]) == {60}


def test_admitted_plan_resets_the_pauses(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task()])
    for pause_s in (1, 2):
        at = bench.at
        (wake,) = bench.give(PlanFailed(at=at, seen=bench.decide.seen, message="it broke"))
        assert wake.at == at + pause_s
        bench.give(TimerFired(at=wake.at, timer=wake.timer))
        bench.at = wake.at + 1
    bench.finished(bench.run("j", 0, "a"))
    at = bench.at
    (wake,) = bench.give(PlanFailed(at=at, seen=bench.decide.seen, message="it broke"))
    assert wake.at == at + 1


def test_events_do_not_shorten_the_pause_of_a_failing_policy(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    (wake,) = bench.give(PlanFailed(at=5.0, seen=bench.decide.seen, message="it broke"))
    assert bench.node("b") == []
    assert bench.job("k") == []
    assert bench.give(TimerFired(at=wake.at - 0.5, timer=wake.timer)) == []
    assert decides(bench.give(TimerFired(at=wake.at, timer=wake.timer))) == 1


# --------------------------------------------------------------------------------- outstanding


def test_outstanding_commands_are_repeated_exactly(bench: Bench) -> None:
    bench.node("a", gpus=4)
    for name in ("waits", "starts", "runs", "stops", "ended"):
        bench.job(name)
        bench.plan()
    bench.job("g", [Task(), Task()], gang=True)
    launched = bench.plan(
        ("starts", 0, "a", (0,)), ("runs", 0, "a", (1,)), ("stops", 0, "a", (2,)),
        ("ended", 0, "a", (3,)),
    )  # fmt: skip
    starts, runs, stops, ended = launched
    bench.started(runs)
    bench.cancel("stops")
    bench.node("b", gpus=2)
    bench.finished(ended)
    bench.plan()
    gang = bench.plan(("g", 0, "b", (0,)), ("g", 1, "b", (1,)))
    bench.job("late")
    for engine in (bench.engine, pickle.loads(pickle.dumps(bench.engine))):
        again = engine.outstanding()
        assert [c for c in again if isinstance(c, LaunchTask)] == [starts, runs, stops]
        (whole,) = [c for c in again if isinstance(c, LaunchGang)]
        assert list(whole.members) == gang
        assert [c.run for c in again if isinstance(c, StopTask)] == [stops.run]
        (decide,) = [c for c in again if isinstance(c, Decide)]
        assert decide == bench.decide
        assert engine.decision_snapshot().version == decide.seen
        assert len(again) == 6


def test_outstanding_timer_is_repeated_without_a_decision(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    wake = bench.give(PlanFailed(at=5.0, seen=bench.decide.seen, message="it broke"))
    assert bench.engine.outstanding() == wake
