"""Work in a checkpoint is neither waited for, nor priced, nor reported as lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.app import POLICIES
from headgate.foresight.outlook import outlook
from headgate.model import RunId, Task
from headgate.planning.debts import remaining_gpu_s
from headgate.planning.standing import standing
from headgate.planning.work import IdleTasks, RunsByGpu
from headgate.policies.flow.in_flight import InFlight, Work, in_flight
from headgate.ports import choose_policy
from headgate.protocol import FailureKind, TaskFailed, TaskFinished, TaskStarted, Usage

READ = Usage(read_bytes=(2 * GB, 0, 0), read_s=2.0)


def begun(bench: Bench, job: str, ordinal: int) -> RunId:
    """Report the start of a run at the time of its launch; return the run."""
    run = bench.runs[job, ordinal].run
    bench.apply(TaskStarted(at=bench.at, run=run))
    return run


def held_gpus(bench: Bench) -> InFlight:
    snapshot = bench.engine.snapshot()
    return in_flight(standing(snapshot), Work(snapshot))


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
    left = remaining_gpu_s(standing(snapshot), RunsByGpu(snapshot), IdleTasks(snapshot))
    assert left.tolist() == pytest.approx([32.0 + 52.0])


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
