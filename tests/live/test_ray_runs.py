"""Runs of launches: a run sees its GPUs and its data, and its end is reported once."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.conftest import Lab, LabJob, LabMaster, until

from headgate.live.actors.masters import accounts_with_actors, end_account
from headgate.live.base.records import OutcomeKind
from headgate.model import Locality, Read, RunId, Shard
from headgate.protocol import FailureKind

pytestmark = pytest.mark.live
NewJob = Callable[..., LabJob]
DESCRIBE = {"function": "ray_tasks:describe"}


@pytest.fixture(scope="module")
def master(lab: Lab) -> Iterator[LabMaster]:
    """A master of all jobs here but those that a test makes itself."""
    yield LabMaster(lab, "runs")
    end_account("runs")


@pytest.fixture
def new_job(lab: Lab, master: LabMaster, request: pytest.FixtureRequest) -> NewJob:
    """Make a job of the test."""
    name = re.sub(r"\W+", "-", request.node.name)
    return lambda *runs: LabJob(lab, name, *runs, by=master)


def test_a_run_sees_the_gpus_of_its_plan_and_no_other(new_job: NewJob) -> None:
    job = new_job(DESCRIBE, DESCRIBE, DESCRIBE)
    launches = [job.record(0, "n0", (1,)), job.record(1, "n1", (0, 1)), job.record(2, "n0", ())]
    job.launch(*launches)
    for outcome in job.ends(*launches):
        assert outcome.kind is OutcomeKind.FINISHED
        assert outcome.output_bytes > 0
    seen = [json.loads(job.result(n, node)) for n, node in enumerate(("n0", "n1", "n0"))]
    assert [s["visible"] for s in seen] == ["1", "0,1", ""]
    assert [s["gpus"] for s in seen] == [[1], [0, 1], []]
    assert [s["params"] for s in seen] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert all(s["ray"] == [] for s in seen), "Ray's own settings must not reach programs"


def test_placeholders_of_a_command_are_replaced(new_job: NewJob, lab: Lab, tmp_path: Path) -> None:
    plain = tmp_path / "it's a file; rm -rf $HOME"
    plain.write_bytes(b"plain\n")
    lab.put("n0", "words/0", b"shard\n")
    job = new_job(
        {
            "command": "cat {shards} {shard} > {output}\n"
            'test "$HEADGATE_OUTPUT" = {output} && test "$HEADGATE_SHARD" = {shard} || exit 9\n'
            'test "$HEADGATE_INDEX/{index}" = 0/0 && test "$(wc -l <<< "$HEADGATE_SHARDS")" = 2'
        }
    )
    reads = [
        Read(shard=Shard(id=f"file:{plain}", size_bytes=6), locality=Locality.CLUSTER, sources=()),
        _read("words/0", 6, Locality.NODE, "n0"),
    ]
    outcome = job.run(0, "n0", (0,), reads)
    assert outcome.kind is OutcomeKind.FINISHED, outcome.message
    assert job.result(0, "n0") == b"plain\nshard\nplain\n"
    assert outcome.usage.read_bytes == (6, 0, 6)


def test_shards_come_from_other_nodes_and_their_bytes_are_counted(
    new_job: NewJob, lab: Lab
) -> None:
    content = os.urandom(3 << 20)
    lab.put("n0", "far/0", content)
    lab.put("n2", "far/1", b"second")
    job = new_job({"command": "cat {shards} > {output}"})
    reads = [
        _read("far/0", len(content), Locality.RACK, "n0"),
        _read("far/1", 6, Locality.CLUSTER, "n2"),
    ]
    outcome = job.run(0, "n1", (0,), reads)
    assert outcome.kind is OutcomeKind.FINISHED, outcome.message
    assert outcome.usage.read_bytes == (0, len(content), 6)
    assert outcome.usage.read_s > 0
    assert job.result(0, "n1") == content + b"second"
    assert lab.report("n0").served_bytes["rack"] >= len(content)


def test_lost_data_do_not_count_against_retries_but_a_missing_file_does(
    new_job: NewJob, tmp_path: Path
) -> None:
    job = new_job({"command": "true"})
    gone = job.run(0, "n1", (), [_read("never/0", 6, Locality.RACK, "n0")])
    assert (gone.kind, gone.failure) == (OutcomeKind.FAILED, FailureKind.LOST)
    assert "never/0" in gone.message
    shard = Shard(id=f"file:{tmp_path}/absent", size_bytes=6)
    missing = job.run(0, "n1", (), [Read(shard=shard, locality=Locality.CLUSTER, sources=())])
    assert (missing.kind, missing.failure) == (OutcomeKind.FAILED, FailureKind.ERROR)
    assert f"{tmp_path}/absent" in missing.message


def test_a_launch_sent_again_does_not_run_again(new_job: NewJob, tmp_path: Path) -> None:
    job = new_job({"command": f"echo ran >> {tmp_path}/ran; sleep 0.3; echo done > {{output}}"})
    launch = job.record(0, "n0", (0,))
    job.launch(launch)
    job.launch(launch)
    (outcome,) = job.ends(launch)
    assert outcome.kind is OutcomeKind.FINISHED
    job.launch(launch)
    time.sleep(0.5)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_rerun_replaces_the_result(new_job: NewJob, lab: Lab) -> None:
    job = new_job({"command": 'echo "run $RANDOM" > {output}; exit 0'}, {"command": "true"})
    job.run(0, "n0")
    first = job.result(0, "n0")
    until(lambda: job.run(0, "n0") and job.result(0, "n0") != first, "a new result")
    assert [s.id for s in lab.report("n0").shards if s.id.startswith(job.id)] == [f"{job.id}/0"]
    assert job.run(1, "n0").output_bytes == 0, "a task that writes nothing has an empty result"
    assert job.result(1, "n0") == b""


def test_stopping_ends_the_whole_process_tree(new_job: NewJob, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = new_job({"command": f"sleep 987 & echo $! $$ > {pids}; sleep 986 | sleep 985"})
    launch = job.record(0, "n0", (0,))
    job.launch(launch)
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the command runs")
    job.stop(launch)
    assert job.ends(launch)[0].kind is OutcomeKind.STOPPED
    until(lambda: not any(_lives(int(pid)) for pid in pids.read_text().split()), "all gone")


def test_run_that_is_stopped_immediately_is_reported_as_stopped(new_job: NewJob) -> None:
    job = new_job({"command": "sleep 987"})
    launch = job.record(0, "n2", (0,))
    job.launch(launch)
    job.stop(launch, replace(launch, run=RunId(job.id, 0, 9)))
    assert job.ends(launch)[0].kind is OutcomeKind.STOPPED


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({"function": "ray_tasks:fail"}, ["ValueError: no such number", "they look odd"]),
        ({"function": "ray_tasks:absent"}, ["has no 'absent'"]),
        ({"function": "ray_tasks:crash"}, ["ended by SIGSEGV"]),
        ({"command": "echo to the log; nonsense"}, ["exit status 127", "to the log", "nonsense"]),
        ({"command": "mkdir {output}"}, ["not a file"]),
    ],
    ids=["raises", "unknown", "crashes", "exits", "directory"],
)
def test_a_failure_comes_with_the_end_of_the_log(
    new_job: NewJob, run: dict[str, str], expected: list[str]
) -> None:
    job = new_job(run, DESCRIBE)
    outcome = job.run(0, "n1", (1,))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.ERROR)
    for words in expected:
        assert words in outcome.message
    assert job.run(1, "n1", (1,)).kind is OutcomeKind.FINISHED, "the GPU is usable afterwards"


def test_logs_are_kept_by_run(new_job: NewJob) -> None:
    job = new_job({"function": "ray_tasks:fail"}, {"command": "echo second"})
    job.run(0, "n0")
    job.run(0, "n0")
    job.run(1, "n0")
    assert job.log(0, "n0").startswith("they look odd\n") or "looking at" in job.log(0, "n0")
    assert job.log(0, "n0", attempt=2).count("ValueError") == job.log(0, "n0").count("ValueError")
    assert job.log(1, "n0") == "second\n"
    assert job.log(1, "n0", attempt=7) == ""


def test_a_worker_serves_runs_on_its_gpus_then_ends(new_job: NewJob) -> None:
    job = new_job(DESCRIBE, DESCRIBE)
    job.run(0, "n0", (0,))
    job.run(1, "n0", (0,))
    first, second = (json.loads(job.result(n, "n0"))["pid"] for n in (0, 1))
    assert first == second
    until(lambda: not _lives(first), "an idle worker ends")


def test_ending_an_account_ends_its_processes_and_no_other_one(lab: Lab, tmp_path: Path) -> None:
    job = LabJob(lab, "ends", {"command": f"echo $$ > {tmp_path}/pid; sleep 987"})
    other = LabJob(lab, "ends0", DESCRIBE)
    job.launch(job.record(0, "n0", (0,)))
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it runs")
    assert other.run(0, "n0", (1,)).kind is OutcomeKind.FINISHED
    end_account(job.id)
    end_account(job.id)
    until(lambda: not _lives(int((tmp_path / "pid").read_text())), "the command is gone")
    assert job.id not in accounts_with_actors()
    assert other.id in accounts_with_actors()
    end_account(other.id)


def _read(shard: str, size_bytes: int, locality: Locality, *sources: str) -> Read:
    return Read(shard=Shard(id=shard, size_bytes=size_bytes), locality=locality, sources=sources)


def _lives(pid: int) -> Any:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
