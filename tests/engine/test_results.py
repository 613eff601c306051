"""Results: further copies, a copy on a shared path, and their expiry."""

from __future__ import annotations

import math
from typing import Any

from headgate.engine import Engine
from headgate.model import SHARED, Shard, Task
from headgate.protocol import ReplicaAdded, ReplicaLost, ResultsExpired
from headgate.state.thaw import thaw

Bench = Any  # of conftest.py
CHAIN = [Task(output_bytes=50), Task(after=(0,), reads=("j/0",))]


def copied(bench: Bench, node: str, shard: str = "j/0") -> None:
    bench.give(ReplicaAdded(at=bench.at, shard=Shard(id=shard, size_bytes=50), node=node))


def first_done(bench: Bench) -> None:
    """Bring up nodes a and b, submit a chain of two tasks, and run the first on a."""
    bench.node("a")
    bench.node("b")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)


def holders(bench: Bench, shard: str = "j/0") -> list[str]:
    state = bench.engine.state
    return [state.node(n).id for n in state.replicas(state.names.shard_rows[shard])]


def test_result_with_a_further_copy_is_not_computed_again_when_its_node_is_lost(
    bench: Bench,
) -> None:
    first_done(bench)
    copied(bench, "b")
    bench.lose("a")
    assert bench.tasks("j") == ["finished", "waiting"]
    (launch,) = bench.plan(("j", 1, "b", (0,)))
    assert launch.reads[0].sources == ("b",)


def test_result_on_the_shared_path_is_not_computed_again_when_its_node_is_lost(
    bench: Bench,
) -> None:
    first_done(bench)
    copied(bench, SHARED)
    assert holders(bench) == ["a"]
    bench.lose("a")
    assert bench.tasks("j") == ["finished", "waiting"]
    (launch,) = bench.plan(("j", 1, "b", (0,)))
    assert launch.reads[0].sources == ()


def test_result_is_computed_again_when_the_copy_on_the_shared_path_is_lost_too(
    bench: Bench,
) -> None:
    first_done(bench)
    copied(bench, SHARED)
    bench.lose("a")
    bench.give(ReplicaLost(at=bench.at, shard="j/0", node=SHARED))
    assert bench.tasks("j") == ["waiting", "blocked"]


def test_new_result_of_a_task_replaces_every_copy_of_the_old_one(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(output_bytes=50)] * 2, gang=True)
    first, second = bench.plan(("j", 0, "a", (0,)), ("j", 1, "b", (0,)))
    bench.finished(first, 50)
    copied(bench, "b")
    copied(bench, SHARED)
    bench.failed(second)  # the gang starts again whole
    first, second = bench.plan(("j", 0, "b", (0,)), ("j", 1, "a", (0,)))
    bench.finished(first, 60)
    assert holders(bench) == ["b"]
    state = bench.engine.state
    assert not state.shards.shared[state.names.shard_rows["j/0"]]


def test_expired_results_have_no_copies_and_are_not_computed_again(bench: Bench) -> None:
    first_done(bench)
    copied(bench, "b")
    copied(bench, SHARED)
    bench.finished(bench.run("j", 1, "b"), 50)
    assert math.isnan(bench.engine.state.jobs.expired_at[0])
    bench.give(ResultsExpired(at=bench.at, job="j"))
    assert bench.engine.state.jobs.expired_at[0] == bench.engine.state.now
    assert holders(bench) == holders(bench, "j/1") == []
    state = bench.engine.state
    assert not any(state.shards.shared[row] for row in range(len(state.shards.shared)))
    bench.lose("a")
    assert bench.tasks("j") == ["finished", "finished"]


def test_results_expire_in_a_state_that_was_restored_from_a_snapshot(bench: Bench) -> None:
    first_done(bench)
    bench.finished(bench.run("j", 1, "b"), 50)
    bench.engine = Engine(thaw(bench.engine.snapshot(), hypothetical=False))
    assert (holders(bench), holders(bench, "j/1")) == (["a"], ["b"])
    bench.give(ResultsExpired(at=bench.at, job="j"))
    assert holders(bench) == holders(bench, "j/1") == []


def test_results_of_a_job_in_flight_or_expired_already_do_not_expire(bench: Bench) -> None:
    first_done(bench)
    stale = bench.engine.stale
    bench.give(ResultsExpired(at=bench.at, job="j"))
    assert holders(bench) == ["a"]
    (launch,) = bench.plan(("j", 1, "b", (0,)))
    bench.finished(launch, 50)
    bench.give(ResultsExpired(at=bench.at, job="j"))
    expired_at = bench.engine.state.jobs.expired_at[0]
    bench.give(ResultsExpired(at=bench.at, job="j"), ResultsExpired(at=bench.at, job="k"))
    assert bench.engine.state.jobs.expired_at[0] == expired_at
    assert bench.engine.stale == stale + 3
