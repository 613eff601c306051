"""Timelines computed by hand. Disk 100, node link 60, rack uplink 90 bytes per second."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model import Demand, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.protocol import JobCancelled, NodeJoined, NodeLost, ReplicaLost

Stage = Any  # of conftest.py


def test_two_readers_of_one_disk_share_it_until_the_smaller_read_is_done(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1", gpus=2),
        stage.replica("small", 500, "a1"),
        stage.replica("large", 1000, "a1"),
        stage.job("j", Task(reads=("small",), compute_s=1), Task(reads=("large",), compute_s=1)),
    )
    # 50 bytes/s each until 500 are read at 10 s; the other 500 at 100 bytes/s take until 15 s
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (0.0, "starts", "j/1@a1"),
        (11.0, "ends", "j/0@a1"), (16.0, "ends", "j/1@a1"),
    ]  # fmt: skip
    assert seen.usage["j/1@a1"].read_bytes == (1000, 0, 0)
    assert seen.usage["j/1@a1"].read_s == 15.0


def test_readers_across_racks_share_the_uplink(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"), stage.node("b1", gpus=0), stage.node("b2", gpus=0),
        stage.replica("s", 900, "b1"), stage.replica("t", 450, "b2"),
        stage.job("j", Task(reads=("s",)), Task(reads=("t",))),
    )  # fmt: skip
    # 45 bytes/s each until t is read at 10 s; the last 450 of s at 60, the node's link: 7.5 s
    assert seen.lines[2:] == [(10.0, "ends", "j/1@a2"), (17.5, "ends", "j/0@a1")]
    assert seen.moved_bytes == (0, 0, 1350)


def test_a_reduce_reads_one_result_after_the_other(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.node("a2"),
        stage.job(
            "j",
            Task(compute_s=10, output_bytes=300),
            Task(compute_s=20, output_bytes=600),
            Task(after=(0, 1), reads=("j/0", "j/1"), demand=Demand(cpus_milli=1000), compute_s=1),
        ),
    )
    # on a1: 300 from its own disk at 100 take 3 s, then 600 from a2 at 60 take 10 s
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (0.0, "starts", "j/1@a2"),
        (10.0, "ends", "j/0@a1"), (20.0, "ends", "j/1@a2"),
        (20.0, "starts", "j/2@a1"), (34.0, "ends", "j/2@a1"),
    ]  # fmt: skip
    assert seen.usage["j/2@a1"].read_bytes == (300, 600, 0)


def test_a_reader_whose_source_is_lost_reads_the_shard_again_from_elsewhere(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2", gpus=0), stage.node("b1", gpus=0),
        stage.replica("s", 600, "a2"), stage.replica("s", 600, "b1"),
        stage.job("j", Task(reads=("s",), compute_s=1)),
        NodeLost(at=4.0, node="a2"),
    )  # fmt: skip
    # 4 s at 60 in the rack are lost; then 600 at 60 across racks take until 14 s
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (15.0, "ends", "j/0@a1")]
    assert seen.usage["j/0@a1"].read_bytes == (0, 240, 600)
    assert seen.usage["j/0@a1"].read_s == 14.0
    assert seen.moved_bytes == (0, 240, 600)


def test_task_whose_node_is_lost_restarts_elsewhere_and_its_bytes_count(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.replica("s", 600, "a2"), stage.replica("s", 600, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=1)),
        NodeLost(at=4.0, node="a1"),
    )  # fmt: skip
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (4.0, "starts", "j/0@a2"), (11.0, "ends", "j/0@a2"),
    ]  # fmt: skip
    assert seen.moved_bytes == (400 + 600, 0, 0)


def test_runs_that_end_during_a_decision_are_handled_by_the_next_one(
    stage: Stage,
) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.job("j", Task(compute_s=5), Task(compute_s=5)),
        stage.job("k", Task(compute_s=5), at=1.0),
        decision_latency_s=2.0,
    )
    # k's arrival at 1 s asks for a round at 2 s, when the first one is done; it finds no GPU
    assert seen.lines == [
        (2.0, "starts", "j/0@a1"), (7.0, "ends", "j/0@a1"),
        (9.0, "starts", "j/1@a1"), (14.0, "ends", "j/1@a1"),
        (16.0, "starts", "k/0@a1"), (21.0, "ends", "k/0@a1"),
    ]  # fmt: skip


def test_ends_come_before_submissions_and_one_decision_sees_them_all(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1", gpus=2),
        stage.job("first", Task(demand=Demand(gpus=2), compute_s=5)),
        stage.job("second", Task(demand=Demand(gpus=2), compute_s=0), at=5.0),
        stage.job("third", Task(demand=Demand(gpus=1), compute_s=0), at=5.0),
    )
    assert ["TaskFinished", "JobSubmitted", "JobSubmitted"] in seen.kinds
    assert seen.lines == [
        (0.0, "starts", "first/0@a1"), (5.0, "ends", "first/0@a1"),
        (5.0, "starts", "second/0@a1"), (5.0, "ends", "second/0@a1"),
        (5.0, "starts", "third/0@a1"), (5.0, "ends", "third/0@a1"),
    ]  # fmt: skip


def test_failing_program_fails_at_its_time_and_is_retried(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 100, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=5)),
        fails_after_s=lambda launch: 2.0 if launch.run.attempt == 1 else None,
    )
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (3.0, "fails", "j/0@a1"),
        (3.0, "starts", "j/0@a1"), (9.0, "ends", "j/0@a1"),
    ]  # fmt: skip


def test_a_cancelled_reader_counts_what_it_has_read(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 1000, "a1"),
        stage.job("j", Task(reads=("s",), compute_s=5)),
        JobCancelled(at=3.0, job="j", by="ada"),
    )
    assert seen.lines[1:] == [(3.0, "stops", "j/0@a1")]
    assert seen.moved_bytes == (300, 0, 0)


def test_a_job_cancelled_in_the_instant_of_its_submission_never_starts(stage: Stage) -> None:
    cancel = JobCancelled(at=1.0, job="j", by="ada")
    seen = stage.play(stage.node("a1"), stage.job("j", Task(), at=1.0), cancel)
    assert seen.lines == []


# --------------------------------------------------------------------------------- lost data


def lossy(stage: Stage, retries: int) -> list[Any]:
    """A map on a1, whose result a reduce reads on a2; a1 goes while it does."""
    return [
        stage.node("a1", cpus=0),
        stage.node("a2", gpus=0),
        stage.node("b1"),
        stage.job(
            "j",
            Task(compute_s=1, output_bytes=600),
            Task(after=(0,), reads=("j/0",), demand=Demand(cpus_milli=1000), compute_s=1),
            retries=retries,
        ),
        NodeLost(at=5.0, node="a1"),
    ]


@pytest.mark.parametrize("retries", [0, 2])
def test_result_lost_in_mid_read_is_recomputed_without_using_a_retry(
    stage: Stage, retries: int
) -> None:
    seen = stage.play(*lossy(stage, retries))
    # the result is made again on b1, and read from there across racks: 600 at 60
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (1.0, "ends", "j/0@a1"), (1.0, "starts", "j/1@a2"),
        (5.0, "fails", "j/1@a2"), (5.0, "starts", "j/0@b1"), (6.0, "ends", "j/0@b1"),
        (6.0, "starts", "j/1@a2"), (17.0, "ends", "j/1@a2"),
    ]  # fmt: skip
    assert ["TaskFailed", "NodeLost"] in seen.kinds, "ends come before what changes the cluster"
    assert seen.moved_bytes == (0, 240, 600)


def test_permanently_lost_data_fails_the_job(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2", gpus=0),
        stage.replica("s", 600, "a2"),
        stage.job("j", Task(reads=("s",)), retries=1),
        NodeLost(at=5.0, node="a2"),
    )  # fmt: skip
    # the loss itself is the world's doing; after it, two tries find nothing to read
    assert [(at, what) for at, what, _ in seen.lines] == [
        (0.0, "starts"), (5.0, "fails"), (5.0, "starts"), (5.0, "fails"),
        (5.0, "starts"), (5.0, "fails"),
    ]  # fmt: skip
    assert seen.engine.state.jobs.message[0] == "task 0 failed 2 times: no replica of s is left"


def test_replica_lost_before_its_read_is_read_from_elsewhere(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("b1", gpus=0),
        stage.replica("s", 600, "a1"), stage.replica("t", 600, "a1"), stage.replica("t", 600, "b1"),
        stage.job("j", Task(reads=("s", "t"))),
        ReplicaLost(at=1.0, shard="t", node="a1"),
    )  # fmt: skip
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (16.0, "ends", "j/0@a1")]
    assert seen.moved_bytes == (600, 0, 600)


def test_lost_replica_does_not_return_with_its_node(stage: Stage) -> None:
    back = stage.node("a1")
    seen = stage.play(
        stage.node("a1"), stage.node("b1", gpus=0),
        stage.replica("s", 600, "a1"), stage.replica("s", 600, "b1"),
        ReplicaLost(at=1.0, shard="s", node="a1"),
        NodeLost(at=2.0, node="a1"),
        NodeJoined(at=3.0, node=back.node),
        stage.job("j", Task(reads=("s",)), at=4.0),
    )  # fmt: skip
    assert seen.moved_bytes == (0, 0, 600)


def test_returning_node_has_its_replicas_but_not_its_results(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.replica("s", 100, "a1"),
        stage.job(
            "j",
            Task(reads=("s",), output_bytes=50),
            Task(after=(0,), reads=("j/0",), demand=Demand(gpus=1)),
        ),
        NodeLost(at=1.25, node="a1"),
        NodeJoined(at=9.0, node=stage.node("a1").node),
    )
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (1.0, "ends", "j/0@a1"), (1.0, "starts", "j/1@a1"),
        (9.0, "starts", "j/0@a1"), (10.0, "ends", "j/0@a1"),
        (10.0, "starts", "j/1@a1"), (10.5, "ends", "j/1@a1"),
    ]  # fmt: skip


def test_empty_shards_are_read_without_a_transfer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    start = FluidNetwork.start

    def counted(network: FluidNetwork, number: int, *rest: Any) -> Any:
        started.append(number)
        return start(network, number, *rest)

    monkeypatch.setattr(FluidNetwork, "start", counted)
    seen = stage.play(
        stage.node("a1"),
        *(stage.replica(f"e{n}", 0, "a1") for n in range(3000)), stage.replica("s", 200, "a1"),
        stage.job("j", Task(reads=(*(f"e{n}" for n in range(3000)), "s"), compute_s=3)),
    )  # fmt: skip
    assert seen.lines == [(0.0, "starts", "j/0@a1"), (5.0, "ends", "j/0@a1")]
    assert started == [1]
