"""Checkpoints: saved progress is not computed again, the rest is counted as lost."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.journal.codec import decode, encode
from headgate.model import Demand, Job, Shard, Task
from headgate.protocol import (
    FailureKind,
    JobSubmitted,
    LaunchTask,
    NodeLost,
    TaskFailed,
    TaskFinished,
    TaskStopped,
    Usage,
)

Bench = Any  # of conftest.py
READ = Shard(id="s", size_bytes=10**9)


@pytest.fixture
def ten(bench: Bench) -> Bench:
    """A node and a job of one task on two GPUs that saves what it has done every ten seconds."""
    bench.node("a", gpus=2)
    bench.node("b", gpus=2)
    bench.job("j", [Task(demand=Demand(gpus=2), checkpoint_s=10)])
    return bench


def begin(bench: Bench, node: str = "a", job: str = "j") -> tuple[LaunchTask, float]:
    """Start the job's only task; return its launch and the time reported as its start."""
    launch = bench.run(job, 0, node, (0, 1))
    return launch, bench.at - 1  # it has been launched a second before


def stopped(bench: Bench, launch: LaunchTask, at: float, *, read_s: float = 0.0) -> None:
    usage = Usage(read_bytes=(1, 0, 0) if read_s else (0, 0, 0), read_s=read_s)
    bench.give(TaskStopped(at=at, run=launch.run, usage=usage))
    bench.at = at + 1


def progress_s(bench: Bench, job: str = "j") -> float:
    value: float = bench.engine.state.tasks.progress_s[bench.row(job, 0)]
    return value


def lost_gpu_s(bench: Bench, job: str = "j") -> float:
    state = bench.engine.state
    value: float = state.jobs.lost_gpu_s[state.names.job_rows[job]]
    return value


def test_next_launch_has_the_saved_progress_and_only_the_rest_is_lost(ten: Bench) -> None:
    launch, started_at = begin(ten)
    assert launch.progress_s == 0
    stopped(ten, launch, started_at + 27)
    assert progress_s(ten) == 20
    assert lost_gpu_s(ten) == 2 * (1 + 27 - 20), "a second until it began, and seven of work"
    launch, started_at = begin(ten, "b")
    assert launch.progress_s == 20
    stopped(ten, launch, started_at + 10)  # on the instant of a checkpoint
    assert progress_s(ten) == 30
    assert lost_gpu_s(ten) == 2 * (8 + 1)
    launch, started_at = begin(ten)
    assert launch.progress_s == 30
    ten.give(TaskFinished(at=started_at + 5, run=launch.run))
    assert lost_gpu_s(ten) == 2 * (8 + 1), "a run with a result loses nothing"


def test_repeated_launch_has_the_same_progress(ten: Bench) -> None:
    launch, started_at = begin(ten)
    stopped(ten, launch, started_at + 27)
    (again,) = ten.plan(("j", 0, "b", (0, 1)))
    assert ten.engine.outstanding() == [again]


def test_reading_time_is_not_progress(ten: Bench) -> None:
    launch, started_at = begin(ten)
    stopped(ten, launch, started_at + 27, read_s=8)
    assert progress_s(ten) == 10
    assert lost_gpu_s(ten) == 2 * (1 + 27 - 10)


def test_run_never_reported_as_running_saves_nothing(ten: Bench) -> None:
    (launch,) = ten.plan(("j", 0, "a", (0, 1)))
    stopped(ten, launch, ten.at + 99)
    assert progress_s(ten) == 0
    assert lost_gpu_s(ten) == 2 * 100


@pytest.mark.parametrize("how", ["its node is lost", "its executor dies"])
def test_unreported_reading_time_is_the_expected_one(bench: Bench, how: str) -> None:
    bench.node("a", gpus=2)
    bench.replica("s", "a")
    task = Task(reads=("s",), demand=Demand(gpus=2), checkpoint_s=10)
    bench.job("j", [task], shards=(READ,))
    launch, started_at = begin(bench)
    disk_s = READ.size_bytes / bench.engine.state.bandwidth.disk_bytes_per_s
    assert disk_s == 2
    gone = NodeLost(at=started_at + 11, node="a")
    if how == "its executor dies":
        gone = TaskFailed(at=started_at + 11, run=launch.run, kind=FailureKind.LOST, message="?")
    bench.give(gone)
    assert progress_s(bench) == 0, "eleven seconds, of which two were for reading"


def test_failed_program_continues_from_its_checkpoint(ten: Bench) -> None:
    launch, started_at = begin(ten)
    ten.give(TaskFailed(at=started_at + 12, run=launch.run, kind=FailureKind.ERROR, message="no"))
    assert progress_s(ten) == 10
    ten.at += 20
    assert begin(ten)[0].progress_s == 10


def test_unused_progress_is_counted_as_lost_when_the_job_ends(ten: Bench) -> None:
    launch, started_at = begin(ten)
    stopped(ten, launch, started_at + 27)
    ten.cancel("j")  # while it waits
    assert lost_gpu_s(ten) == 2 * 28, "all that it held its GPUs for"
    assert progress_s(ten) == 0


def test_all_work_of_a_cancelled_run_is_lost(ten: Bench) -> None:
    launch, started_at = begin(ten)
    ten.cancel("j")
    stopped(ten, launch, started_at + 27)
    assert ten.job_state("j") == "cancelled"
    assert lost_gpu_s(ten) == 2 * 28


def test_all_work_of_a_failed_task_is_lost(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(demand=Demand(gpus=2), checkpoint_s=10)], retries=1)
    for _ in range(2):
        launch, started_at = begin(bench)
        kind = FailureKind.ERROR
        bench.give(TaskFailed(at=started_at + 25, run=launch.run, kind=kind, message="no"))
        bench.at += 30
    assert bench.job_state("j") == "failed"
    assert lost_gpu_s(bench) == 2 * (26 + 26)


def test_task_whose_result_is_lost_starts_from_the_beginning(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.node("b", gpus=2)
    bench.job("j", [Task(demand=Demand(gpus=2), checkpoint_s=10), Task(after=(0,), reads=("j/0",))])
    launch, started_at = begin(bench)
    stopped(bench, launch, started_at + 10)
    launch, started_at = begin(bench)
    bench.at = started_at + 5
    bench.finished(launch, output_bytes=100)
    bench.lose("a")
    assert bench.tasks("j") == ["waiting", "blocked"]
    assert begin(bench, "b")[0].progress_s == 0


def test_all_work_of_a_run_without_checkpoints_is_lost(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(demand=Demand(gpus=2))])
    launch, started_at = begin(bench)
    stopped(bench, launch, started_at + 1000)
    assert (progress_s(bench), lost_gpu_s(bench)) == (0, 2 * 1001)


def test_task_on_cpu_slots_saves_progress_and_loses_no_gpu_time(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(demand=Demand(cpus_milli=1000), checkpoint_s=10)])
    launch = bench.run("j", 0, "a", ())
    stopped(bench, launch, bench.at + 26)
    assert (progress_s(bench), lost_gpu_s(bench)) == (20, 0)


# ------------------------------------------------------------------------- what is expected


def test_estimate_includes_the_progress_of_earlier_runs(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(demand=Demand(gpus=2), checkpoint_s=10)], runtime_class="train")
    launch, started_at = begin(bench)
    stopped(bench, launch, started_at + 27)
    launch, started_at = begin(bench)
    bench.give(TaskFinished(at=started_at + 15, run=launch.run))
    state = bench.engine.state
    row = state.tasks.runtime_class[bench.row("j", 0)]
    assert state.runtime_classes.compute_s[row] == pytest.approx(20 + 15)
    assert state.runtime_classes.held_s[row] == pytest.approx(20 + 1 + 15)


def test_expected_end_is_after_the_remaining_computing(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("first", [Task(demand=Demand(gpus=2), checkpoint_s=10)], runtime_class="train")
    launch, started_at = begin(bench, job="first")
    bench.give(TaskFinished(at=started_at + 50, run=launch.run))
    bench.at += 50
    bench.job("j", [Task(demand=Demand(gpus=2), checkpoint_s=10)], runtime_class="train")
    launch, started_at = begin(bench)
    row, state = bench.row("j", 0), bench.engine.state
    assert state.expected_end(row) == pytest.approx(started_at - 1 + 50)
    stopped(bench, launch, started_at + 27)
    launched_at = bench.at
    begin(bench)
    assert state.expected_end(row) == pytest.approx(launched_at + 30)
    assert state.checkpoint_progress_s(row, launched_at + 1 + 19) == 10


# ------------------------------------------------------------------------- the journal


def test_a_journal_from_before_checkpoints_can_be_read() -> None:
    job = Job(id="j", name="j", user="u", queue="default", tasks=(Task(), Task(checkpoint_s=2.5)))
    text = encode(JobSubmitted(at=1.0, job=job))
    assert decode(text) == JobSubmitted(at=1.0, job=job)
    old = text.replace(',"checkpoint_s":0.0', "").replace(',"checkpoint_s":2.5', "")
    assert "checkpoint" not in old
    read = decode(old)
    assert isinstance(read, JobSubmitted)
    assert [task.checkpoint_s for task in read.job.tasks] == [0.0, 0.0]
