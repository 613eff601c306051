"""The outlook of `plan` equals the outcome when the engine carries the change out."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.flow.bench import GB, Bench, submitted, workloads

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.foresight.outlook import Outlook, more_nodes, outlook
from headgate.model import Gpu, Node
from headgate.ports import choose_policy, make_policy
from headgate.protocol import NodeJoined
from headgate.state import TaskState
from headgate.testing.digest import digest

NAMES = ("fs", "fsp", "fsu", "gs", "gsp", "capacity", "fair", "fifo")


def done(bench: Bench, policy: str, nodes: tuple[Node, ...]) -> Bench:
    """What becomes of a world under another policy, once nodes have joined and stops are over."""
    then = copy.deepcopy(bench)
    then.policy = make_policy(POLICIES, policy, {"slack": 0.0} if policy in ("fsp", "gsp") else {})
    then.apply(*[NodeJoined(at=then.at, node=node) for node in nodes])
    then.queue("default")  # as good a reason as any to decide again
    while then.stops:
        then.stop()
    return then


def foreseen(bench: Bench, policy: str, nodes: tuple[Node, ...]) -> Outlook:
    text = f"{policy},slack=0" if policy in ("fsp", "gsp") else policy
    other = choose_policy(POLICIES, "fs", {}, text)
    return outlook(bench.engine.snapshot(), other, bench.at, nodes)


@settings(max_examples=cases(50))
@given(st.data())
def test_it_happens_as_planned(data: st.DataObject) -> None:
    bench = data.draw(workloads(make_policy(POLICIES, data.draw(st.sampled_from(NAMES)))))
    for _ in range(data.draw(st.integers(0, 3))):
        if bench.runs:
            bench.finish(*data.draw(st.sampled_from(sorted(bench.runs))))
    while bench.stops:
        bench.stop()
    snapshot = bench.engine.snapshot()
    before, seen = digest(snapshot), digest(bench.engine.state)
    policy = data.draw(st.sampled_from(NAMES))
    nodes = more_nodes(snapshot, data.draw(st.integers(1, 2)), None)
    nodes = nodes if data.draw(st.booleans()) else ()
    report = foreseen(bench, policy, nodes)
    assert (digest(snapshot), digest(bench.engine.state)) == (before, seen)

    then = done(bench, policy, nodes)
    old = {key: launch.run for key, launch in bench.runs.items()}
    new = {key: launch for key, launch in then.runs.items() if old.get(key) != launch.run}
    assert {(s.job, s.ordinal): (s.node, s.gpus) for s in report.starts} == {
        key: (launch.node, launch.gpus) for key, launch in new.items()
    }
    preempted = {key for key in old if key not in then.runs or key in new}
    assert {(c.job, c.ordinal) for c in report.cuts} == preempted
    state = then.engine.state
    assert report.free_gpus == sum(state.nodes.free_gpus[n] for n in state.live_nodes())
    for job in report.jobs:
        row = state.names.job_rows[job.job]
        assert job.held_gpus == snapshot.gpus_of_jobs()[row]
        assert job.holds_gpus == state.gpus_of_jobs()[row]
        assert job.waiting_tasks == len(state.waiting_of(row))
        reads = [r for key, launch in new.items() if key[0] == job.job for r in launch.reads]
        for where, size_bytes in enumerate(job.read_bytes):
            assert size_bytes == sum(r.shard.size_bytes for r in reads if r.locality == where)
        assert job.lost_gpu_s == sum(
            bench.at - snapshot.tasks.launched_at[snapshot.tasks_of(row)[c.ordinal]]
            for c in report.cuts
            if c.job == job.job and c.gpus
        )
        if (state.tasks.state.array()[list(state.tasks_of(row))] == TaskState.WAITING).any():
            assert job.reason is not None


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.node("big", "a", 80, 80)
    made.node("s1", "a", 10)
    made.node("s2", "b", 10)
    made.apply(submitted("j", 9))
    return made


def test_new_nodes_are_like_the_commonest(bench: Bench) -> None:
    snapshot = bench.engine.snapshot()
    assert more_nodes(snapshot, 2, None) == tuple(
        Node(id=f"new-{n}", rack="b", gpus=(Gpu(memory_bytes=10 * GB),)) for n in (1, 2)
    )
    (like,) = more_nodes(snapshot, 1, "big")
    assert (like.id, like.rack, len(like.gpus)) == ("new-1", "a", 2)


def test_new_nodes_have_names_of_their_own(bench: Bench) -> None:
    bench.node("new-2", "b", 10)
    made = more_nodes(bench.engine.snapshot(), 3, None)
    assert [n.id for n in made] == ["new-1", "new-3", "new-4"]


def test_without_a_node_there_is_nothing_to_be_like() -> None:
    with pytest.raises(SpecError, match="no node is up"):
        more_nodes(Bench().engine.snapshot(), 1, None)


def test_more_nodes_take_what_waits(bench: Bench) -> None:
    report = foreseen(bench, "fs", more_nodes(bench.engine.snapshot(), 2, "big"))
    assert [(s.ordinal, s.node) for s in report.starts] == [
        (4, "new-1"), (5, "new-1"), (6, "new-2"), (7, "new-2"),
    ]  # fmt: skip
    (job,) = report.jobs
    assert (job.held_gpus, job.holds_gpus, job.waiting_tasks) == (4, 8, 1)
