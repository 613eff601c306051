"""Runtime estimates: updated as runs end, per runtime class and size of input."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headgate.model import Shard, Task
from headgate.protocol import TaskFailed, TaskFinished, Usage
from headgate.protocol.events import FailureKind

Bench = Any  # of conftest.py


def run(bench: Bench, job: str, ordinal: int, *, read_s: float, compute_s: float) -> None:
    launch = bench.run(job, ordinal, "a")
    at = bench.at - 1 + read_s + compute_s  # it was started a second before the bench's time
    bench.give(TaskFinished(at=at, run=launch.run, usage=Usage(read_s=read_s)))
    bench.at = at + 1


def expected_s(bench: Bench, job: str, ordinal: int) -> float:
    state = bench.engine.state
    value: float = state.runtime_classes.compute_s[
        state.tasks.runtime_class[bench.row(job, ordinal)]
    ]
    return value


def test_estimate_is_the_mean_computing_time_without_reading(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task()] * 3, runtime_class="sort")
    bench.job("k", [Task()], runtime_class="sort")
    assert math.isnan(expected_s(bench, "k", 0)), "nothing is known before the first end"
    run(bench, "j", 0, read_s=30, compute_s=8)
    assert expected_s(bench, "k", 0) == pytest.approx(8)
    run(bench, "j", 1, read_s=0, compute_s=16)
    assert expected_s(bench, "k", 0) == pytest.approx(8 + 0.25 * 8)


def test_estimates_differ_by_job_kind_and_size_of_input(bench: Bench) -> None:
    bench.node("a")
    shards = (Shard(id="small", size_bytes=100), Shard(id="large", size_bytes=10_000))
    tasks = [Task(reads=("small",)), Task(reads=("large",))]
    for shard in ("small", "large"):
        bench.replica(shard, "a")
    bench.job("j", tasks, shards=shards, runtime_class="sort")
    bench.job("k", tasks, shards=shards, runtime_class="search")
    bench.job("m", tasks, shards=shards)
    run(bench, "j", 0, read_s=0, compute_s=5)
    assert expected_s(bench, "j", 0) == pytest.approx(5)
    for job, ordinal in (("j", 1), ("k", 0), ("m", 0)):
        assert math.isnan(expected_s(bench, job, ordinal))


def test_failed_run_does_not_change_the_estimate(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task()], runtime_class="sort")
    launch = bench.run("j", 0, "a")
    kind = FailureKind.ERROR
    bench.give(TaskFailed(at=bench.at + 9, run=launch.run, kind=kind, message="no"))
    assert math.isnan(expected_s(bench, "j", 0))


def test_expected_end_is_after_reading_and_computing(bench: Bench) -> None:
    bench.node("a")
    bench.replica("s", "a")
    bench.job(
        "j", [Task(reads=("s",))] * 2, runtime_class="sort", shards=(Shard(id="s", size_bytes=100),)
    )
    run(bench, "j", 0, read_s=1, compute_s=40)
    started_at = bench.at
    bench.run("j", 1, "a")
    state = bench.engine.state
    disk_s = 100 / state.bandwidth.disk_bytes_per_s
    assert state.expected_end(bench.row("j", 1)) == pytest.approx(started_at + disk_s + 40)
    bench.at += 1000
    bench.replica("s", "a")
    overdue_s = state.now - (started_at + disk_s + 40)
    assert state.expected_end(bench.row("j", 1)) == pytest.approx(state.now + overdue_s)
