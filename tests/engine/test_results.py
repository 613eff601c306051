"""Results: further copies, a copy on a shared path, and their expiry."""

from __future__ import annotations

import math
from typing import Any

from headgate.engine import Engine
from headgate.model import SHARED, RunId, Shard, Task
from headgate.protocol import JobsArchived, NodeJoined, ReplicaAdded, ReplicaLost, ResultsExpired
from headgate.state import State, compact
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


def _copy(bench: Bench, run: RunId, node: str, size_bytes: int = 50) -> ReplicaAdded:
    shard = Shard(id=f"{run.job}/{run.ordinal}", size_bytes=size_bytes)
    return ReplicaAdded(at=bench.at, shard=shard, node=node, run=run)


def test_copy_of_the_present_result_counts(bench: Bench) -> None:
    first_done(bench)
    bench.give(_copy(bench, RunId("j", 0, 1), "b"), _copy(bench, RunId("j", 0, 1), SHARED))
    row = bench.engine.state.names.shard_rows["j/0"]
    assert (holders(bench), bench.engine.state.shards.shared[row]) == (["a", "b"], 1)


def test_copy_of_an_earlier_run_does_not_count_however_late_it_is_reported(bench: Bench) -> None:
    first_done(bench)
    bench.lose("a")
    late = [_copy(bench, RunId("j", 0, 1), node, 49) for node in ("b", SHARED)]
    bench.give(*late)
    assert holders(bench) == [], "the task waits to run again"
    bench.finished(bench.run("j", 0, "b"), 50)
    bench.node("c")
    stale = bench.engine.stale
    bench.give(*late, _copy(bench, RunId("j", 0, 1), "c", 49))
    state = bench.engine.state
    row = state.names.shard_rows["j/0"]
    assert (holders(bench), state.shards.shared[row]) == (["b"], 0)
    assert (state.shards.size_bytes[row], bench.engine.stale) == (50, stale + 3)


def _forgotten(bench: Bench) -> State:
    """Run job j to its end, archive it, and return a state that has forgotten it."""
    first_done(bench)
    bench.finished(bench.run("j", 1, "a"), 0)
    bench.give(JobsArchived(at=bench.at, jobs=("j",)))
    state = thaw(bench.engine.snapshot(), hypothetical=False)
    compact(state)
    return state


def test_copy_of_a_forgotten_jobs_result_leaves_no_row(bench: Bench) -> None:
    engine = Engine(_forgotten(bench))
    known = list(engine.state.names.shards)
    copies = [_copy(bench, RunId("j", 0, 1), node) for node in ("b", SHARED, "gone")]
    engine.handle(*copies)
    assert (engine.state.names.shards, engine.stale) == (known, len(copies))


def test_node_that_returns_with_a_forgotten_jobs_result_leaves_no_row(bench: Bench) -> None:
    engine = Engine(_forgotten(bench))
    known = list(engine.state.names.shards)
    node = engine.state.node(engine.state.names.node_rows["b"])
    holds = (Shard(id="j/0", size_bytes=50),)
    engine.handle(NodeJoined(at=bench.at, node=node, kept=True, holds=holds))
    assert engine.state.names.shards == known


def test_copy_reported_after_its_result_expired_does_not_count(bench: Bench) -> None:
    first_done(bench)
    bench.finished(bench.run("j", 1, "b"), 0)
    bench.give(ResultsExpired(at=bench.at, job="j"))
    bench.give(*(_copy(bench, RunId("j", 0, 1), node) for node in ("b", SHARED)))
    state = bench.engine.state
    assert (holders(bench), state.shards.shared[state.names.shard_rows["j/0"]]) == ([], 0)
