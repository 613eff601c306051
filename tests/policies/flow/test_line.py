"""Rounds that follow each other: each is worth what it is worth solved anew, and proven."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from random import Random

import pytest
from tests.policies.flow.bench import GB, Bench, check_optimum, submitted

from headgate.flow import Certificate
from headgate.foresight.whatif import thaw
from headgate.model import Job, Task
from headgate.planning.certified import Certified, Certifying
from headgate.policies.flow import (
    FlowSharing,
    PreemptiveFlowSharing,
    TimelyFlow,
    UnfairFlow,
)
from headgate.policies.flow.line import Line
from headgate.policies.flow.rounds import FlowPolicy
from headgate.protocol import TaskFinished
from headgate.testing.policy_laws import Paper
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


@EACH
def test_every_round_of_a_walk_is_an_optimum_and_fits(make: Callable[[], FlowPolicy]) -> None:
    followed = 0
    for seed in range(40):
        policy = make()

        def accepts(job: Job, policy: FlowPolicy = policy) -> bool:
            return policy.refuses(job) is None

        for snapshot in random_walk(seed, MOST, accepts):
            plan = policy.decide(snapshot, Random(1))
            check_optimum(policy)
            paper = Paper(snapshot)
            assert [paper.take(p) for p in plan.starts if p.gpus].count(None) == sum(
                bool(p.gpus) for p in plan.starts
            )
            followed += policy._kept[0].followed > 0
    assert followed > 20 * MOST


def busy() -> Bench:
    bench = Bench(TimelyFlow())
    for n in range(4):
        bench.node(f"n{n}", "ab"[n % 2], 10, 40)
    bench.data("s", GB, "n0", "n3")
    bench.tell(submitted("one", [Task(reads=("s",))] * 9), submitted("two", 9))
    for _ in range(2):
        bench.finish("one", bench.running("one")[0])
    return bench


def test_states_on_paper_and_copies_leave_the_line_alone() -> None:
    bench = busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    [line] = policy._kept
    snapshot = bench.engine.snapshot()
    on_paper = thaw(snapshot).freeze()
    for other in (line.scene.snapshot, on_paper):
        policy.decide(other, Random(1))
        assert policy._kept == [line]
    again = pickle.loads(pickle.dumps(line.scene.snapshot))
    twins = [type(policy)(), copy.deepcopy(policy)]
    assert len({str(twin.decide(again, Random(1))) for twin in twins}) == 1
    assert policy._kept == [line]


def test_a_new_line_begins_anew_and_one_that_goes_on_does_not() -> None:
    bench, other = busy(), busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    followed = policy._kept[0].followed
    assert followed > 0
    policy.decide(other.engine.snapshot(), Random(1))
    assert policy._kept[0].followed == 0
    bench.node("more", "c", 10)
    assert policy._kept[0].followed == 0, "places have joined"
    bench.finish("two", bench.running("two")[0])
    assert policy._kept[0].followed > 0


def test_rounds_are_proven_now_and_then_and_one_that_is_not_is_solved_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = busy()
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    assert isinstance(policy, Certifying)
    assert (policy.certified.rounds, policy.certified.violations) == (1, 0)
    [line] = policy._kept
    line.followed = 64
    ended = bench.runs["two", bench.running("two")[0]]
    bench.engine.handle(TaskFinished(at=bench.at, run=ended.run))
    monkeypatch.setattr(Line, "certificate", lambda line: Certificate(gap=7))
    policy.decide(bench.engine.snapshot(), Random(1))
    assert policy.certified == Certified(rounds=2, violations=1, last_gap=7)
    assert policy._kept[0] is not line
    assert policy._kept[0].followed == 0
