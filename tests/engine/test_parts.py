"""Results in parts: each part is a separate shard, and a lost one is recomputed if needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Task, part_sizes, result_ids
from headgate.protocol import ReplicaLost, TaskFinished

Bench = Any  # of conftest.py


def shuffle(bench: Bench) -> None:
    """Job j: task 0 leaves three parts, tasks 1 and 2 read parts 0 and 1; no task reads part 2."""
    bench.node("a")
    bench.node("b")
    parts = result_ids("j", 0, 3)
    later = [Task(after=(0,), reads=(part,)) for part in parts[:2]]
    bench.job("j", [Task(output_bytes=100, parts=3), *later])


def size_bytes(bench: Bench, shard: str) -> int:
    state = bench.engine.state
    size: int = state.shards.size_bytes[state.names.shard_rows[shard]]
    return size


def test_a_reader_reads_its_part_only(bench: Bench) -> None:
    shuffle(bench)
    bench.finished(bench.run("j", 0, "b"), 100)
    (launch,) = bench.plan(("j", 2, "a", (0,)))
    (read,) = launch.reads
    assert (read.shard.id, read.shard.size_bytes, read.sources) == ("j/0.1", 33, ("b",))


def test_parts_have_the_reported_sizes(bench: Bench) -> None:
    shuffle(bench)
    launch = bench.run("j", 0, "a")
    bench.give(TaskFinished(at=bench.at, run=launch.run, output_bytes=90, part_bytes=(60, 30, 0)))
    assert [size_bytes(bench, part) for part in result_ids("j", 0, 3)] == [60, 30, 0]


@pytest.mark.parametrize(("part", "again"), [("j/0.0", True), ("j/0.2", False)])
def test_lost_part_is_recomputed_only_if_a_task_reads_it(
    bench: Bench, part: str, again: bool
) -> None:
    shuffle(bench)
    bench.finished(bench.run("j", 0, "b"), 100)
    bench.give(ReplicaLost(at=bench.at, shard=part, node="b"))
    expected = ["waiting", "blocked", "blocked"] if again else ["finished", "waiting", "waiting"]
    assert bench.tasks("j") == expected


@given(st.integers(0, 10**12), st.integers(1, 50))
def test_parts_without_sizes_are_equal_and_complete(output_bytes: int, parts: int) -> None:
    sizes = part_sizes(output_bytes, parts)
    assert len(sizes) == parts
    assert sum(sizes) == output_bytes
    assert max(sizes) - min(sizes) <= 1
