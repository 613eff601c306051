"""A node that returns: its replicas count again, unless they became void while it was down."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.base.rng import stream
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.model import Dataset, Shard, Task
from headgate.protocol import (
    DatasetAdded,
    DatasetRemoved,
    JobsArchived,
    NodeJoined,
    ReplicaAdded,
    ReplicaLost,
    ResultsExpired,
)
from headgate.state import State, compact
from headgate.state.check import check
from headgate.state.thaw import thaw
from headgate.testing.digest import digest

Bench = Any  # of conftest.py
PARTS = tuple(Shard(id=f"d:{number:05d}", size_bytes=7) for number in range(3))
CHAIN = [Task(output_bytes=50), Task(after=(0,), reads=("j/0",))]


def returns(bench: Bench, name: str, **kept: Any) -> None:
    node = bench.engine.state.node(bench.engine.state.names.node_rows[name])
    bench.give(NodeJoined(at=bench.at, node=node, kept=True, **kept))


def put(bench: Bench, *nodes: str) -> None:
    dataset = Dataset(name="d", user="ada", shards=PARTS)
    copies = [ReplicaAdded(at=bench.at, shard=part, node=n) for part in PARTS for n in nodes]
    bench.give(DatasetAdded(at=bench.at, dataset=dataset), *copies)


def held(bench: Bench, name: str) -> list[str]:
    """Return the shards of which a node has a copy that counts."""
    return held_in(bench.engine.state, name)


def held_in(state: State, name: str) -> list[str]:
    row = state.names.node_rows[name]
    return [s for s, at in enumerate_replicas(state) if row in at]


def enumerate_replicas(state: State) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, state.replicas(row)) for name, row in state.names.shard_rows.items()]


IDS = [part.id for part in PARTS]


def test_returning_node_has_its_replicas_again_by_one_event(bench: Bench) -> None:
    bench.node("a")
    put(bench, "a")
    bench.lose("a")
    assert held(bench, "a") == []
    returns(bench, "a")
    assert held(bench, "a") == IDS


def test_returning_node_has_no_replicas_unless_kept(bench: Bench) -> None:
    bench.node("a")
    put(bench, "a")
    for _ in range(2):  # what was dropped at the first return does not come back at the second
        bench.lose("a")
        bench.node("a")
        assert held(bench, "a") == []
    bench.lose("a")
    returns(bench, "a")
    assert held(bench, "a") == []


def test_returning_node_drops_lost_shards_and_adds_further_ones(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    put(bench, "a")
    bench.replica("more", "b")
    bench.lose("a")
    returns(bench, "a", without=(PARTS[1].id,), holds=(Shard(id="more", size_bytes=100),))
    assert held(bench, "a") == [PARTS[0].id, PARTS[2].id, "more"]


def test_replica_lost_while_its_node_is_away_stays_lost(bench: Bench) -> None:
    bench.node("a")
    put(bench, "a")
    bench.lose("a")
    bench.give(ReplicaLost(at=bench.at, shard=PARTS[0].id, node="a"))
    returns(bench, "a")
    assert held(bench, "a") == IDS[1:]


def test_replica_reported_just_after_its_node_was_lost_counts_when_the_node_returns(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.node("b")
    put(bench, "a")
    bench.lose("b")
    stale = bench.engine.stale
    bench.give(ReplicaAdded(at=bench.at, shard=PARTS[0], node="b"))
    assert (held(bench, "b"), bench.engine.stale) == ([], stale + 1)
    returns(bench, "b")
    assert held(bench, "b") == IDS[:1]


def test_copies_of_a_dataset_removed_meanwhile_do_not_count_for_a_later_one_of_its_name(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.node("b")
    put(bench, "a", "b")
    bench.lose("a")
    bench.give(DatasetRemoved(at=bench.at, name="d"))
    bench.give(*(ReplicaLost(at=bench.at, shard=part.id, node="b") for part in PARTS))
    put(bench, "b")
    returns(bench, "a")
    assert (held(bench, "a"), held(bench, "b")) == ([], IDS)


def test_result_computed_again_elsewhere_voids_the_copy_of_a_node_that_is_away(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)
    bench.lose("a")
    assert bench.tasks("j") == ["waiting", "blocked"]
    bench.finished(bench.run("j", 0, "b"), 60)
    returns(bench, "a")
    assert (held(bench, "a"), held(bench, "b")) == ([], ["j/0"])


def test_result_of_a_task_that_waits_again_does_not_return_with_its_node(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)
    bench.lose("a")
    returns(bench, "a")
    assert (held(bench, "a"), bench.tasks("j")) == ([], ["waiting", "blocked"])


def test_result_expired_while_its_node_was_away_does_not_return(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)
    bench.finished(bench.run("j", 1, "b"), 0)
    bench.lose("a")
    bench.give(ResultsExpired(at=bench.at, job="j"))
    returns(bench, "a", holds=(Shard(id="j/0", size_bytes=50),))
    assert held(bench, "a") == []


def test_second_copy_of_a_result_returns_with_its_node(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)
    copy = ReplicaAdded(at=bench.at, shard=Shard(id="j/0", size_bytes=50), node="b")
    bench.give(copy)
    bench.lose("b")
    returns(bench, "b")
    assert (held(bench, "a"), held(bench, "b")) == (["j/0"], ["j/0"])
    bench.lose("a")
    assert bench.tasks("j") == ["finished", "waiting"], "the second copy suffices"


def test_node_that_returned_before_its_loss_was_observed_keeps_replicas_of_datasets(
    bench: Bench,
) -> None:
    bench.node("a")
    put(bench, "a")
    bench.job("j", CHAIN)
    bench.finished(bench.run("j", 0, "a"), 50)
    returns(bench, "a")
    assert held(bench, "a") == IDS
    assert bench.tasks("j") == ["waiting", "blocked"]


def test_copies_that_may_return_survive_a_stored_snapshot(bench: Bench) -> None:
    bench.node("a")
    put(bench, "a")
    bench.lose("a")
    stored = encode_snapshot(bench.engine.snapshot())
    state = thaw(decode_snapshot(stored), hypothetical=False)
    check(state)
    state.add_node(state.node(0), kept=True)
    assert held_in(state, "a") == IDS


@pytest.mark.parametrize("seed", range(30))
def test_replicas_that_count_are_valid_and_on_nodes_that_are_up(bench: Bench, seed: int) -> None:
    """Nodes come, go and lose copies at random; datasets too; compared with sets of disks."""
    rng, nodes = stream(seed, "rejoin"), ("a", "b", "c")
    disks: dict[str, set[str]] = {name: set() for name in nodes}
    up = set(nodes)
    for name in nodes:
        bench.node(name)
    put(bench)
    for _ in range(60):
        name, part = rng.choice(nodes), rng.choice(PARTS)
        match rng.choice(("lose", "return", "return empty", "add", "drop", "new dataset")):
            case "lose" if name in up:
                up.remove(name)
                bench.lose(name)
            case "return" if name not in up:
                gone = {shard for shard in disks[name] if rng.random() < 0.3}
                up.add(name)
                disks[name] = disks[name] - gone | {part.id}
                returns(bench, name, without=tuple(gone), holds=(part,))
            case "return empty" if name not in up:
                up.add(name)
                disks[name] = set()
                bench.node(name)
            case "add":
                disks[name].add(part.id)
                bench.give(ReplicaAdded(at=bench.at, shard=part, node=name))
            case "drop":
                disks[name].discard(part.id)
                bench.give(ReplicaLost(at=bench.at, shard=part.id, node=name))
            case "new dataset":
                removed = [(s, n) for n in up for s in disks[n]]
                bench.give(
                    DatasetRemoved(at=bench.at, name="d"),
                    *(ReplicaLost(at=bench.at, shard=s, node=n) for s, n in removed),
                )
                disks = {name: set() for name in nodes}
                put(bench)
        for name in nodes:
            assert set(held(bench, name)) == (disks[name] if name in up else set())
    replayed = thaw(decode_snapshot(encode_snapshot(bench.engine.snapshot())), hypothetical=False)
    assert digest(replayed) == digest(bench.engine.state)


def test_copies_that_may_return_survive_compaction_unless_their_job_was_archived(
    bench: Bench,
) -> None:
    bench.node("a")
    bench.job("j", [Task(output_bytes=50), Task(after=(0,))])
    bench.finished(bench.run("j", 0, "a"), 50)
    bench.finished(bench.run("j", 1, "a"), 0)
    put(bench, "a")
    bench.replica("scratch", "a")
    bench.lose("a")
    bench.give(JobsArchived(at=bench.at, jobs=("j",)))
    state = thaw(bench.engine.snapshot(), hypothetical=False)
    compact(state)
    state.add_node(state.node(0), kept=True)
    check(state)
    assert held_in(state, "a") == [*IDS, "scratch"]
