"""Work in a checkpoint is neither waited for, nor priced, nor reported as lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.policies.flow.bench import GB, Bench, submitted
from tests.policies.flow.test_unit_reservations import advance, begin, bench, estimated

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.foresight.outlook import outlook
from headgate.model import Demand, RunId, Task
from headgate.planning.shares.debts import remaining_gpu_s
from headgate.planning.shares.standing import standing_of
from headgate.planning.shares.work import IdleTasks, RunsByGpu
from headgate.policies.flow.in_flight import InFlight, Work, in_flight
from headgate.policies.flow.preempt_units import RESTART_S, running_units
from headgate.ports import choose_policy
from headgate.protocol import FailureKind, TaskFailed, TaskFinished, TaskStarted, Usage
from headgate.testing.random_worlds import random_state

READ = Usage(read_bytes=(2 * GB, 0, 0), read_s=2.0)


def begun(bench: Bench, job: str, ordinal: int) -> RunId:
    """Report the start of a run at the time of its launch; return the run."""
    run = bench.runs[job, ordinal].run
    bench.apply(TaskStarted(at=bench.at, run=run))
    return run


def held_gpus(bench: Bench) -> InFlight:
    snapshot = bench.engine.snapshot()
    return in_flight(standing_of(snapshot), Work(snapshot))


def test_a_preemption_costs_less_right_after_a_checkpoint_and_the_next_run_is_shorter() -> None:
    bench = Bench()
    bench.node("n", "r", 10)
    bench.data("s", 2 * GB, "n")
    bench.apply(submitted("j", [Task(reads=("s",), checkpoint_s=10)] * 3))
    run = begun(bench, "j", 0)
    bench.at = 52.0  # it has read for 2 s and computed for 50
    bench.apply(TaskFinished(at=bench.at, run=run, usage=READ))
    run = begun(bench, "j", 1)
    for at, lost_s in ((53.0, 1.0), (63.5, 11.5), (64.0, 2.0), (79.0, 7.0)):
        bench.at = at
        bench.queue("other")  # an event, so that the time advances
        runs, snapshot = held_gpus(bench), bench.engine.snapshot()
        assert runs.lost_s(snapshot, runs.runs).tolist() == pytest.approx([lost_s])
        assert runs.wait_s.tolist() == pytest.approx([104.0 - at])
    lost = TaskFailed(at=79.0, run=run, kind=FailureKind.LOST, message="gone", usage=READ)
    bench.apply(lost)
    assert bench.runs["j", 1].progress_s == 20
    assert held_gpus(bench).wait_s.tolist() == pytest.approx([2.0 + 30.0])
    snapshot = bench.engine.snapshot()
    left = remaining_gpu_s(standing_of(snapshot), RunsByGpu(snapshot), IdleTasks(snapshot))
    assert left.tolist() == pytest.approx([32.0 + 52.0])


def test_the_price_of_a_unit_is_the_work_that_its_runs_lose_and_the_restart_of_its_gpus() -> None:
    """On any node: `State.lose_run` counts the work once the unit has been stopped."""
    gangs = kept_some = 0
    for seed in range(150):
        state, rng = random_state(seed), stream(seed, "checkpoints")
        for task in range(len(state.tasks.state)):
            state.tasks.checkpoint_s[task] = rng.choice((0.0, 1.0, 2.5))
        for node in state.live_nodes():
            state.nodes.speed[node] = rng.choice((0.5, 1.0, 2.0))
        state.now += rng.choice((0.0, 3.0, 3.5))
        snapshot = state.freeze()
        standing = standing_of(snapshot)
        ahead = in_flight(standing, Work(snapshot))
        units = running_units(standing, ahead)
        for number in np.unique(units.unit).tolist():
            here = np.flatnonzero(units.unit == number)
            tasks = [*dict.fromkeys(ahead.all_runs.task[here].tolist())]
            job = state.tasks.job[tasks[0]]
            before = state.jobs.lost_gpu_s[job]
            for task in tasks:
                kept_some += state.checkpoint_progress_s(task, state.now) > 0
                state.lose_run(task)
            lost_gpu_s = state.jobs.lost_gpu_s[job] - before
            assert units.price[here] == pytest.approx(lost_gpu_s + len(here) * RESTART_S), seed
            assert (units.gpus[here] == len(here)).all()
            gangs += len(tasks) > 1
    assert min(gangs, kept_some) > 20


def preempted_at(checkpoint_s: float, until: int = 60) -> list[int]:
    """Return the seconds at which a gang above its share is first stopped for a multi-GPU task."""
    stage = bench(4, slack=0.0)
    gang = [Task(checkpoint_s=checkpoint_s)] * 4
    stage.apply(estimated(submitted("gang", gang, gang=True), 1000.0))
    stage.apply(estimated(submitted("other", [Task(demand=Demand(gpus=4))]), 10.0))
    begin(stage)
    for second in range(1, until):
        advance(stage, 1.0)
        if stage.stops:
            assert sorted(stop.run.ordinal for stop in stage.stops) == [0, 1, 2, 3]
            return [second]
    return []


def test_a_gang_is_preempted_right_after_a_checkpoint_and_never_without_one() -> None:
    """The debt of the other grows by 2 GPU seconds each second, the lost work by 4."""
    assert preempted_at(checkpoint_s=0.0) == []
    assert preempted_at(checkpoint_s=20.0) == [20]
    assert preempted_at(checkpoint_s=30.0) == [30]
    (soonest,) = preempted_at(checkpoint_s=1.0)
    assert soonest < 10


def test_the_gang_that_saved_last_is_preempted() -> None:
    """Two gangs above their shares lose nothing until, after 10 s of debt, one saves its work."""
    stopped = []
    for every_s in ((20.0, 50.0), (50.0, 20.0)):
        stage = bench(3, 3, slack=0.0)
        for name, checkpoint_s in zip("ab", every_s, strict=True):
            gang = [Task(checkpoint_s=checkpoint_s)] * 3
            stage.apply(estimated(submitted(name, gang, user=name, gang=True), 1000.0))
        begin(stage)
        advance(stage, 40.0)
        stage.apply(
            estimated(submitted("other", [Task(demand=Demand(gpus=2))], user="other"), 10.0)
        )
        while not stage.stops:
            advance(stage, 1.0)
            assert stage.at <= 50.0
        stopped.append({stop.run.job for stop in stage.stops})
    assert stopped == [{"b"}, {"a"}]


def test_an_outlook_reports_the_work_that_would_be_lost() -> None:
    bench = Bench()
    bench.node("n", "r", 10, 10)
    saves = [Task(checkpoint_s=10), Task(checkpoint_s=10)]
    bench.apply(submitted("early", saves))
    for ordinal in range(2):
        begun(bench, "early", ordinal)
    bench.at = 25.0
    bench.apply(replace(submitted("late", 1), at=bench.at))
    report = outlook(
        bench.engine.snapshot(), choose_policy(POLICIES, "fs", {}, "fsp,slack=0"), bench.at
    )
    ((ran_s, lost_s),) = [(cut.ran_s, cut.lost_s) for cut in report.cuts]
    assert (ran_s, lost_s) == (25, 5)
    assert [job.lost_gpu_s for job in report.jobs] == [5, 0]
