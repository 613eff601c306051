"""Time limits of runs: a run that exceeds it fails its job, without a retry."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.journal.codec import decode, encode
from headgate.journal.snapshots import decode_snapshot, encode_snapshot
from headgate.model import Task
from headgate.protocol import FailureKind, StopTask, TaskFailed
from headgate.protocol.commands import LaunchGang, LaunchTask
from headgate.state import thaw

Bench = Any  # of conftest.py


def over_limit(bench: Bench, launch: LaunchTask) -> list[Any]:
    commands: list[Any] = bench.failed(launch, FailureKind.TIMED_OUT, "")
    return commands


def test_run_over_its_time_limit_fails_its_job_without_a_retry(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task()], time_limit_s=7200.0, retries=5)
    launch = bench.run("j", 0, "a")
    assert launch.time_limit_s == 7200.0
    over_limit(bench, launch)
    assert bench.job_state("j") == "failed"
    assert bench.tasks("j") == ["failed", "cancelled"]
    assert bench.message("j") == "task 0 ran over its time limit of 2 h"


def test_message_ends_with_what_the_world_reports(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", time_limit_s=90.0)
    bench.failed(bench.run("j", 0, "a"), FailureKind.TIMED_OUT, "epoch 3 of 10")
    assert bench.message("j") == "task 0 ran over its time limit of 1 min 30 s: epoch 3 of 10"


def test_one_member_over_the_time_limit_ends_the_gang(bench: Bench) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()], gang=True, time_limit_s=60.0)
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    bench.started(first)
    (stop,) = (c for c in over_limit(bench, first) if isinstance(c, StopTask))
    assert stop.run == second.run
    bench.stopped(second)
    assert bench.job_state("j") == "failed"


def test_run_that_is_preempted_at_its_time_limit_waits_again(bench: Bench) -> None:
    from tests.engine.test_faults import preempt

    bench.node("a")
    bench.job("j", time_limit_s=60.0)
    launch = bench.run("j", 0, "a")
    bench.job("k")
    preempt(bench, bench.row("j", 0))
    over_limit(bench, launch)
    assert bench.tasks("j") == ["waiting"]


@pytest.mark.parametrize("gang", [False, True])
def test_outstanding_launches_carry_the_time_limit_after_a_restart(
    bench: Bench, gang: bool
) -> None:
    bench.node("a", gpus=2)
    bench.job("j", [Task(), Task()], gang=gang, time_limit_s=60.0, estimated_s=20.0)
    bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", (1,)))
    restored = decode_snapshot(encode_snapshot(bench.engine.snapshot()))
    bench.engine.state = thaw(restored, hypothetical=False)
    launches = [
        launch
        for command in bench.engine.outstanding()
        for launch in (command.members if isinstance(command, LaunchGang) else (command,))
        if isinstance(launch, LaunchTask)
    ]
    assert [launch.time_limit_s for launch in launches] == [60.0, 60.0]
    assert bench.engine.state.jobs.estimated_s[0] == 20.0


def test_journal_restores_a_run_over_its_time_limit(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", time_limit_s=60.0)
    run = bench.run("j", 0, "a").run
    event = TaskFailed(at=1.0, run=run, kind=FailureKind.TIMED_OUT, message="")
    assert decode(encode(event)) == event
