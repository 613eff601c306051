"""Warm rounds: each has the cost of the same round solved cold, and a certificate."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from random import Random

import pytest
from tests.cases import cases
from tests.policies.flow.bench import DISK, GB, RACK, Bench, check_optimum, flow_of, kept, submitted

from headgate.flow import Certificate
from headgate.foresight.whatif import thaw
from headgate.machine import archiving
from headgate.model import Bandwidth, Job, Task
from headgate.policies.flow import (
    FlowSharing,
    PreemptiveFlowSharing,
    TimelyFlow,
    UnfairFlow,
)
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.flow.solve import Flow
from headgate.ports import capabilities
from headgate.ports.capabilities import CertificateStats
from headgate.protocol import BandwidthMeasured, JobsArchived, TaskFinished
from headgate.testing.policy_laws import IndependentLedger
from headgate.testing.random_worlds import random_walk

MAKERS: dict[str, Callable[[], FlowPolicy]] = {
    "fs": FlowSharing,
    "fs, which hardly waits": lambda: FlowSharing(alpha1=1.1, alpha2=1.2, alpha3=4.0),
    "fsp": PreemptiveFlowSharing,
    "fsu": UnfairFlow,
    "headgate": TimelyFlow,
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
MOST = 24  # rounds of a walk


def changes_of(policy: FlowPolicy) -> int | None:
    """Return how often the flow has followed a change; None after a round without one."""
    flow = kept(policy).flow
    return None if flow is None else flow.changes


@EACH
def test_every_round_of_a_walk_is_an_optimum_and_fits(make: Callable[[], FlowPolicy]) -> None:
    followed = 0
    for seed in range(cases(8)):
        policy = make()

        def accepts(job: Job, policy: FlowPolicy = policy) -> bool:
            return policy.refuses(job) is None

        for snapshot in random_walk(seed, MOST, accepts):
            plan = policy.decide(snapshot, Random(1))
            check_optimum(policy)
            paper = IndependentLedger(snapshot)
            assert [paper.take(p) for p in plan.starts if p.gpus].count(None) == sum(
                bool(p.gpus) for p in plan.starts
            )
            followed += (changes_of(policy) or 0) > 0
    assert followed > 3 * MOST


def busy() -> Bench:
    bench = Bench(TimelyFlow())
    for n in range(4):
        bench.node(f"n{n}", "ab"[n % 2], 10, 40)
    bench.data("s", GB, "n0", "n3")
    bench.apply(submitted("one", [Task(reads=("s",))] * 9), submitted("two", 9))
    for _ in range(2):
        bench.finish("one", bench.running("one")[0])
    return bench


def test_hypothetical_snapshots_and_copies_do_not_change_the_warm_round() -> None:
    bench = busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    warm, flow = kept(policy), flow_of(policy)
    assert warm.standing is not None
    decided = warm.standing.snapshot
    for other in (decided, thaw(bench.engine.snapshot()).freeze()):
        policy.decide(other, Random(1))
        assert (kept(policy), flow_of(policy)) == (warm, flow)
    again = pickle.loads(pickle.dumps(decided))
    twins = [type(policy)(), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    assert len({str(twin.decide(again, Random(1))) for twin in twins}) == 1
    assert (kept(policy), flow_of(policy)) == (warm, flow)


@EACH
def test_warm_copies_decide_hypothetical_rounds_as_the_policy_does(
    make: Callable[[], FlowPolicy],
) -> None:
    """From copies made one or several rounds earlier; the policy itself decides as without any."""
    followed = 0
    for seed in range(cases(2)):
        policy, alone = make(), make()
        copies: list[FlowPolicy] = []
        for snapshot in random_walk(seed, MOST):
            paper = thaw(snapshot).freeze()
            decided = [copied.decide(paper, Random(1)) for copied in copies]
            flow = kept(policy).flow if copies else None
            plan = policy.decide(snapshot, Random(1))
            assert all(other == plan for other in (*decided, alone.decide(snapshot, Random(1))))
            flows = [kept(copied).flow for copied in copies]  # none of a round without tasks
            followed += sum(found is not None and found.changes > 0 for found in flows)
            assert flow is None or all(found is not flow for found in flows)
            copies = [policy.warm_copy(), policy.warm_copy().warm_copy()]
    assert followed > MOST


def test_a_copy_made_during_a_decision_starts_cold() -> None:
    policy = busy().policy
    assert isinstance(policy, FlowPolicy)
    warm = kept(policy)
    assert warm.standing is not None
    with policy._cache.lend(busy().engine.snapshot()):
        copied = policy.warm_copy()
    assert policy.warm_copy()._cache._warm
    assert not copied._cache._warm


def test_another_history_and_changed_nodes_start_cold_and_later_rounds_do_not() -> None:
    bench, other = busy(), busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    assert flow_of(policy).changes > 0
    policy.decide(other.engine.snapshot(), Random(1))
    assert flow_of(policy).changes == 0
    bench.node("more", "c", 10)
    assert flow_of(policy).changes == 0, "places have joined"
    bench.finish("two", bench.running("two")[0])
    assert flow_of(policy).changes > 0
    measured = Bandwidth(disk_bytes_per_s=DISK, rack_bytes_per_s=RACK, cluster_bytes_per_s=RACK)
    bench.apply(BandwidthMeasured(at=bench.at, bandwidth=measured))
    assert flow_of(policy).changes == 0, "prices are others"


@EACH
def test_rounds_of_another_history_are_those_of_a_policy_that_was_never_warm(
    make: Callable[[], FlowPolicy],
) -> None:
    """As after compaction: rows have another meaning, so the warm round must not be used."""
    for seed in range(cases(4)):
        warm, cold = make(), make()
        for before in random_walk(seed, 12):
            warm.decide(before, Random(1))
        for after in random_walk(seed + 1, 12):
            plans = [policy.decide(after, Random(1)) for policy in (warm, cold)]
            assert plans[0] == plans[1]
            assert [*plans[0].refusals] == [*plans[1].refusals]
            assert changes_of(warm) == changes_of(cold)
            check_optimum(warm)


def test_the_round_after_compaction_starts_cold_and_the_next_ones_follow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "COMPACT_ROWS", 1)
    bench = Bench(policy := TimelyFlow())
    for n in range(4):
        bench.node(f"n{n}", "ab"[n % 2], 10, 40)
    bench.data("s", GB, "n0", "n3")
    bench.apply(submitted("ended", 30))
    for _ in range(30):
        bench.finish("ended", bench.running("ended")[0])
    bench.apply(submitted("one", [Task(reads=("s",))] * 16), submitted("two", 9))
    for _ in range(3):
        bench.finish("one", bench.running("one")[0])
    names, rows = bench.engine.state.names, len(bench.engine.state.tasks.state)
    bench.apply(JobsArchived(at=bench.at, jobs=("ended",)))
    before, rounds = flow_of(policy), []
    for _ in range(8):
        bench.finish("one", bench.running("one")[0])  # proven, and worth as much as when cold
        standing = kept(policy).standing
        assert standing is not None
        rounds.append((standing.snapshot.names is names, flow_of(policy) is before))
    assert bench.engine.state.names is not names
    assert len(bench.engine.state.tasks.state) == rows - 30
    assert (False, True) not in rounds
    assert rounds[0] == (True, True)
    assert flow_of(policy).changes > 0


def test_a_round_that_raises_leaves_no_warm_round(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    ended = bench.runs["two", bench.running("two")[0]]
    bench.engine.handle(TaskFinished(at=bench.at, run=ended.run))
    snapshot = bench.engine.snapshot()
    with monkeypatch.context() as broken:
        broken.setattr(Flow, "_add", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            policy.decide(snapshot, Random(1))
    plan, cold = policy.decide(snapshot, Random(1)), TimelyFlow().decide(snapshot, Random(1))
    assert (plan, [*plan.refusals]) == (cold, [*cold.refusals])
    assert flow_of(policy).changes == 0


def test_some_rounds_are_certified_and_one_that_is_not_optimal_is_solved_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    assert capabilities(policy).certified == CertificateStats(rounds=1)
    flow = flow_of(policy)
    flow.changes = 64
    ended = bench.runs["two", bench.running("two")[0]]
    bench.engine.handle(TaskFinished(at=bench.at, run=ended.run))
    monkeypatch.setattr(Flow, "certificate", lambda flow, problem: Certificate(gap=7))
    policy.decide(bench.engine.snapshot(), Random(1))
    assert policy.certified == CertificateStats(rounds=2, violations=1, last_gap=7)
    assert flow_of(policy) is not flow
    assert flow_of(policy).changes == 0
