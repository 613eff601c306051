"""Changes between two snapshots of one history: exactly the rows that differ."""

from __future__ import annotations

import pickle
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.state import Snapshot, thaw
from headgate.state.tables import GPU_GONE
from headgate.testing.random_worlds import random_state, random_walk

SEED = st.integers(0, 10**6)

TABLES = ("tasks", "jobs", "queues", "nodes", "gpus", "shards", "runtime_classes")
# What of a thing may change without that it counts as a change of it.
UNSEEN = {
    "tasks": {"blockers", "crashes", "failures", "next_attempt", "over_bytes", "over_gpu_bytes"},
    "jobs": {
        "message", "read_node_bytes", "read_rack_bytes", "read_cluster_bytes", "lost_gpu_s",
        "waiting_cpu", "running_cpu", "running", "started_at", "ended_at", "peak_gpus_milli",
        "migrations",
    },
    "queues": {"in_flight", "queued"},
    "nodes": {
        "free_gpus", "free", "spec", "actual", "outside", "reported_at", "idle_since", "down_since",
    },
    "gpus": {"actual_bytes", "utilisation_milli", "withheld", "outside_pid"},
    "shards": {"away"},
    "runtime_classes": {
        "count", "log_mean", "log_var", "within_count", "within_var",
        "used_runs", "used_memory_bytes", "used_gpu_bytes", "used_cpus_milli",
    },
}  # fmt: skip


def rows_of(snapshot: Snapshot, table: str) -> list[str]:
    """Return a table row by row, without the columns that changes ignore."""
    columns = getattr(snapshot, table)
    seen = [name for name in columns.__slots__ if name not in UNSEEN.get(table, ())]
    values = [getattr(columns, name).array().tolist() for name in seen]
    if table == "nodes":
        values.append([capacity_of(snapshot, node) for node in range(len(columns.alive))])
    return [repr(row) for row in zip(*values, strict=True)]


def capacity_of(snapshot: Snapshot, node: int) -> list[tuple[bool, int]]:
    """Return for each GPU of a node whether it is capacity, and what is used of it outside."""
    first, count = snapshot.nodes.first_gpu[node], snapshot.nodes.gpu_count[node]
    tasks = snapshot.gpus.task.span(first, first + count).tolist()
    outside = snapshot.gpus.outside_bytes.span(first, first + count).tolist()
    return [(task != GPU_GONE, used) for task, used in zip(tasks, outside, strict=True)]


@settings(max_examples=60)
@given(seed=SEED)
def test_changes_are_the_rows_that_differ(seed: int) -> None:
    for before, after in combinations(random_walk(seed, 5), 2):
        changes = after.changes(before)
        assert changes is not None
        for table in TABLES:
            old, new = rows_of(before, table), rows_of(after, table)
            differs = [row for row, values in enumerate(new) if old[row : row + 1] != [values]]
            reported = getattr(changes, table).tolist()
            if table in ("shards", "queues"):  # set to an equal value
                assert set(differs) <= set(reported)
                assert reported == sorted(set(reported))
            else:
                assert reported == differs


@settings(max_examples=20)
@given(seed=SEED)
def test_unchanged_state_has_no_changes(seed: int) -> None:
    state = random_state(seed)
    before = state.freeze()
    state.version += 1
    changes = state.freeze().changes(before)
    assert changes is not None
    assert [len(getattr(changes, table)) for table in TABLES] == [0] * len(TABLES)


@pytest.mark.parametrize("seed", range(5))
def test_snapshots_of_different_histories_have_no_changes(seed: int) -> None:
    before, after = random_walk(seed, 2)
    assert before.changes(after) is None
    assert pickle.loads(pickle.dumps(after)).changes(before) is None
    copy = thaw(before)
    assert copy.freeze().hypothetical
    assert not after.hypothetical
    assert after.changes(copy.freeze()) is None
    assert copy.freeze().changes(after) is None


@settings(max_examples=20)
@given(seed=SEED)
def test_a_hypothetical_state_continues_the_history_of_its_origin(seed: int) -> None:
    state = random_state(seed)
    before = state.freeze()
    state.version += 1
    origin = state.freeze()
    copy = thaw(origin)
    copy.tasks.attempts[0] += 1
    copy.version += 1
    state.version += 1
    for earlier in (before, origin):
        changes = copy.freeze().changes(earlier)
        assert changes is not None
        assert changes.tasks.tolist() == [0]
    again = thaw(copy.freeze()).freeze()
    assert again.changes(before) is not None
    assert copy.freeze().changes(state.freeze()) is None, "the origin is older"
    assert copy.freeze().changes(thaw(origin).freeze()) is None, "they differ"


@settings(max_examples=30)
@given(seed=SEED)
def test_tasks_with_equal_inputs_share_a_row_of_inputs(seed: int) -> None:
    *_, snapshot = random_walk(seed, 3)
    rows = range(len(snapshot.tasks.job))
    needs = [(snapshot.tasks.job[t], snapshot.task(t).demand, snapshot.reads(t)) for t in rows]
    assert snapshot.tasks.task_group.array().tolist() == [needs.index(need) for need in needs]
    inputs = snapshot.tasks.input.array().tolist()
    for (one, row), (other, same) in combinations(enumerate(inputs), 2):
        assert (row == same) == (snapshot.reads(one) == snapshot.reads(other))
    for task in range(len(inputs)):
        job = snapshot.job(snapshot.tasks.job[task])
        named = job.tasks[snapshot.ordinal(task)].reads
        assert tuple(snapshot.names.shards[shard] for shard in snapshot.reads(task)) == named
