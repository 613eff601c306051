"""Units of `headgate`: reservations, backfill before them, and preemption of whole units."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.cases import cases
from tests.policies.flow.bench import Bench, submitted

from headgate.model import Demand, Gpu, Node, Task
from headgate.planning.times.estimates import Estimates
from headgate.policies.flow import TimelyFlow, headgate, unit_reservations
from headgate.policies.flow.preempt_units import UnitPreemptions
from headgate.protocol import JobSubmitted, NodeJoined, Plan, TaskStarted
from headgate.protocol.reasons import GangShort
from headgate.state import Snapshot, TaskState

GIB = 2**30


def estimated(event: JobSubmitted, seconds: float) -> JobSubmitted:
    """Return a submission that declares how long its tasks compute."""
    return replace(event, job=replace(event.job, estimated_s=seconds))


def bench(*gpus: int, **parameters: float) -> Bench:
    """Return a cluster of nodes with these many GPUs."""
    stage = Bench(TimelyFlow(**parameters))
    for number, count in enumerate(gpus):
        stage.node(f"n{number}", "r", *[10] * count)
    return stage


def advance(stage: Bench, seconds: float) -> None:
    """Let time pass, and decide again."""
    stage.at += seconds
    stage.queue("other")


def begin(stage: Bench) -> None:
    """Report all runs as started that have not."""
    state = stage.engine.state
    for run in list(stage.runs.values()):
        row = state.run_row(run.run)
        if row is not None and state.tasks.state[row] == TaskState.STARTING:
            stage.apply(TaskStarted(at=stage.at, run=run.run))


def test_gang_gets_a_reservation_and_only_short_tasks_run_before_it() -> None:
    stage = bench(4, 4)
    stage.apply(estimated(submitted("long", [Task(demand=Demand(gpus=4))]), 100.0))
    stage.apply(estimated(submitted("gang", [Task(demand=Demand(gpus=4))] * 2, gang=True), 5.0))
    job = stage.engine.state.names.job_rows["gang"]
    assert stage.engine.state.memo("reserved_at")[job] == 100.0
    reason = stage.reason("gang")
    assert isinstance(reason, GangShort)
    assert reason.reserved is not None
    assert reason.reserved.at == 100.0
    stage.apply(
        estimated(submitted("short", 1), 99.0),
        estimated(submitted("pair", [Task(demand=Demand(gpus=2))]), 99.0),
        estimated(submitted("slow", 1), 101.0),
        estimated(submitted("large", [Task(demand=Demand(gpus=2))]), 101.0),
        submitted("unknown", 1),
    )
    assert set(stage.where()) == {"long/0", "short/0", "pair/0"}
    stage.at = 98.0
    for job_id in ("short", "pair", "long"):
        stage.finish(job_id, 0)
    assert stage.running("gang") == [0, 1]
    assert stage.engine.state.memo("reserved_at")[job] == 100.0, "the first one is kept"


def test_first_reservations_only_are_made() -> None:
    plans = []
    for most in (0, 1, 16):
        stage = bench(4, 4, reservations=most)
        stage.apply(estimated(submitted("long", [Task(demand=Demand(gpus=4))]), 100.0))
        stage.apply(
            *[
                estimated(submitted(f"g{n}", [Task(demand=Demand(gpus=4))] * 2, gang=True), 50.0)
                for n in range(3)
            ]
        )
        plans.append(len(stage.plans[-1].reservations))
    assert plans == [0, 1, 3]


def test_wide_gang_starts_despite_an_endless_stream_of_small_jobs() -> None:
    stage = bench(4)
    stage.apply(*[estimated(submitted(f"s{n}", 1), 4.0) for n in range(8)])
    stage.apply(estimated(submitted("gang", [Task()] * 4, gang=True), 4.0))
    arrivals = 8
    while not stage.running("gang"):
        stage.apply(estimated(submitted(f"s{arrivals}", 1), 4.0))
        arrivals += 1
        if stage.runs:
            job, ordinal = next(iter(stage.runs))
            stage.finish(job, ordinal)
        else:
            advance(stage, 1.0)
        assert arrivals < 60, "the gang starves"


def test_gang_preempts_runs_of_a_job_above_its_share_once_its_debt_covers_their_price() -> None:
    stage = bench(4, slack=0.0)
    stage.apply(
        estimated(submitted("wide", [Task(demand=Demand(gpus=2), checkpoint_s=1.0)] * 9), 1000.0)
    )
    stage.apply(estimated(submitted("gang", [Task(demand=Demand(gpus=2))] * 1, gang=True), 10.0))
    assert len(stage.running("wide")) == 2
    begin(stage)
    for _ in range(40):
        if stage.stops:
            break
        advance(stage, 1.0)
    (stop,) = stage.stops
    assert stop.run.job == "wide"
    state = stage.engine.state
    rows = [state.names.job_rows[job] for job in ("wide", "gang")]
    assert state.memo("missed_gpu_s")[rows[1]] >= 0, "it pays no more than it was owed"
    stage.stop()
    assert (len(stage.running("wide")), stage.running("gang")) == (1, [0])
    for _ in range(5):
        advance(stage, 1.0)
    assert not stage.stops, "no GPU is preempted back"


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("licenses", [1, 2])
def test_runs_are_preempted_only_for_a_task_that_then_starts(licenses: int, gpus: int) -> None:
    """A licensed task needs, beside GPUs, what another run holds, or, with two, what is free."""
    stage = bench(slack=0.0)
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=10**10),) * 3 * gpus, cpus=8,
                custom=(("license", 1000 * licenses),))  # fmt: skip
    stage.apply(NodeJoined(at=0.0, node=node))
    licensed = Task(demand=Demand.of(gpus=gpus, custom=(("license", 1000),)))
    stage.apply(estimated(submitted("first", [licensed], user="a"), 3000.0))
    many = [Task(demand=Demand.of(gpus=gpus), checkpoint_s=1.0)] * 9
    stage.apply(estimated(submitted("many", many, user="b"), 1000.0))
    stage.apply(estimated(submitted("late", [licensed], user="c"), 10.0))
    begin(stage)
    assert (len(stage.running("many")), stage.running("late")) == (2, [])
    for _ in range(60):
        if stage.stops:
            break
        advance(stage, 1.0)
    assert [stop.run.job for stop in stage.stops] == ["many"] * (licenses - 1)
    stage.stop()
    assert stage.running("late") == [0] * (licenses - 1)


def test_gang_above_its_share_is_preempted_as_a_whole() -> None:
    stage = bench(4, slack=0.0)
    gang = [Task(checkpoint_s=1.0)] * 4
    stage.apply(estimated(submitted("gang", gang, gang=True), 1000.0))
    stage.apply(estimated(submitted("other", [Task(demand=Demand(gpus=4))]), 10.0))
    assert stage.running("gang") == [0, 1, 2, 3]
    begin(stage)
    for _ in range(60):
        if stage.stops:
            break
        advance(stage, 1.0)
    assert sorted(stop.run.ordinal for stop in stage.stops) == [0, 1, 2, 3]
    stage.stop()
    assert stage.running("other") == [0]


def test_job_of_certain_length_precedes_one_of_a_shorter_but_uncertain_median() -> None:
    stage = bench(2)

    def pair(name: str, user: str) -> JobSubmitted:
        return submitted(name, [Task(demand=Demand(gpus=2))], user=user)

    for number, (steady_s, wild_s) in enumerate([(20, 1), (20, 1), (20, 400)] * 4):
        for user, seconds in (("steady", steady_s), ("wild", wild_s)):
            stage.apply(pair(f"{user}-{number}", user))
            begin(stage)
            stage.at += seconds - 1.0
            stage.finish(f"{user}-{number}", 0)
    stage.apply(pair("now", "other"))
    stage.apply(pair("wild", "wild"), pair("steady", "steady"))
    state = stage.engine.state.freeze()
    waiting = np.array([state.names.job_rows[job] for job in ("wild", "steady")])
    rows = state.jobs.first_task.take(waiting)
    wild_s, steady_s = Estimates(state).run_s(rows)
    assert wild_s < steady_s, "it is expected to end sooner, but less certainly"
    stage.finish("now", 0)
    assert stage.running("steady") == [0]


def test_reserved_unit_starts_on_gpus_claimed_for_a_task_that_fits_nowhere() -> None:
    stage = bench(2)
    has_licenses = Node(id="away", rack="r", gpus=(), cpus=1, custom=(("license", 1000),))
    stage.apply(NodeJoined(at=0.0, node=has_licenses))
    licensed = Task(demand=Demand(gpus=1, custom=(("license", 500),)))
    stage.apply(estimated(submitted("licensed", [licensed]), 50.0))
    stage.apply(estimated(submitted("wide", [Task(demand=Demand(gpus=2))]), 500.0))
    assert stage.running("wide") == [0]


def random_event(stage: Bench, rng: Random, number: int) -> None:
    """Submit a job of some kind, end or stop runs, or let time pass."""
    kind = rng.randrange(7)
    declared = rng.choice((3.0, 30.0, 300.0))
    if kind == 0:
        stage.apply(estimated(submitted(f"flow{number}", rng.randint(1, 3)), declared))
    elif kind == 1:
        task = Task(demand=Demand.of(gpus=rng.randint(2, 4)), checkpoint_s=rng.choice((0.0, 1.0)))
        stage.apply(estimated(submitted(f"wide{number}", [task] * rng.randint(1, 2)), declared))
    elif kind == 2:
        gang = [Task(demand=Demand.of(gpus=rng.randint(1, 2)))] * rng.randint(2, 4)
        stage.apply(estimated(submitted(f"gang{number}", gang, gang=True), declared))
    elif kind == 3:
        stage.stop()
        advance(stage, rng.choice((1.0, 20.0, 100.0)))
    elif stage.runs and not stage.stops:
        begin(stage)
        stage.finish(*rng.choice(sorted(stage.runs)))


class Compared(TimelyFlow):
    """Compares each plan with that of a round in which no step is left out."""

    def __init__(self) -> None:
        super().__init__(slack=0.0)
        self.alone = 0  # units that started alone
        self.preempted = 0

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        def start_only_unit(*inputs: Any) -> bool:
            started = unit_reservations.start_only_unit(*inputs)
            self.alone += started
            return started

        with patch.object(headgate, "start_only_unit", start_only_unit):
            short = TimelyFlow(slack=0.0).decide(snapshot, rng)
        with (
            patch.object(headgate, "start_only_unit", lambda *_: False),
            patch.object(UnitPreemptions, "may_gain", lambda _, jobs: jobs),
        ):
            whole = TimelyFlow(slack=0.0).decide(snapshot, rng)
        assert short.steps == whole.steps
        assert (short.memo, short.again_at) == (whole.memo, whole.again_at)
        self.preempted += len(short.steps.stops.task)
        return super().decide(snapshot, rng)


def test_steps_that_are_left_out_of_a_round_would_not_change_its_plan() -> None:
    alone = preempted = 0
    for seed in (0, 1, 2, 10, *range(11, 11 + cases(1))):  # runs are preempted for the fourth
        rng, policy = Random(seed), Compared()
        stage = Bench(policy)
        stage.node("n0", "r", 10, 10, 10, 10)
        stage.node("n1", "r", 10, 10, 10)
        for number in range(40):
            random_event(stage, rng, number)
        alone, preempted = alone + policy.alone, preempted + policy.preempted
    assert alone
    assert preempted


@pytest.mark.parametrize("gib", [0, 24])
def test_unit_leaves_tasks_of_the_flow_before_it_the_memory_that_they_are_entitled_to(
    gib: int,
) -> None:
    """Four GPUs suffice for both jobs, 64 GiB of memory only for the first one."""
    stage = Bench(TimelyFlow())
    gpus = (Gpu(memory_bytes=GIB),) * 4
    node = Node(id="n0", rack="r", gpus=gpus, cpus=16, memory_bytes=64 * GIB)
    stage.apply(NodeJoined(at=0.0, node=node))
    small = Task(demand=Demand.of(gpus=1, memory_bytes=gib * GIB))
    unit = Task(demand=Demand.of(gpus=2, memory_bytes=40 * GIB))
    stage.apply(
        estimated(submitted("short", [small] * 2), 5.0),
        estimated(submitted("long", [unit]), 1000.0),
    )
    assert stage.running("short") == [0, 1]
    assert stage.running("long") == ([] if gib else [0])
