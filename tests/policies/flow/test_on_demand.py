"""Refusals are computed on access, at any later time, from the state of their round."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.cases import cases
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Task
from headgate.policies.flow import FlowSharing, TimelyFlow
from headgate.policies.flow.policy import FlowPolicy
from headgate.protocol import OnDemand, Refusal
from headgate.protocol.reasons import NoFreeGpu, PolicyBroke, Undecided
from headgate.testing.random_worlds import random_walk

EACH = pytest.mark.parametrize("make", [FlowSharing, TimelyFlow])


@EACH
def test_refusals_read_late_equal_those_read_immediately(make: Callable[[], FlowPolicy]) -> None:
    compared = 0
    for seed in range(cases(8)):
        immediate, late = make(), make()
        pairs = []
        for snapshot in random_walk(seed, 12):
            now = [*immediate.decide(snapshot, Random(1)).refusals]
            assert not [one for one in now if isinstance(one.reason, PolicyBroke)]
            pairs.append((now, late.decide(snapshot, Random(1)).refusals))
            compared += len(now)
        for now, refusals in reversed(pairs):
            assert [*refusals] == now
    assert compared > 100


@EACH
def test_no_round_keeps_the_refusals_of_earlier_rounds(make: Callable[[], FlowPolicy]) -> None:
    bench = Bench(make())
    bench.node("n0", "a", 10, 10)
    bench.data("s", GB, "n0")
    bench.apply(submitted("one", [Task(reads=("s",))] * 12))
    for _ in range(8):
        bench.finish("one", bench.running("one")[0])
    bench.plans.clear()
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, OnDemand) and one._compute]
    assert kept == [bench.engine.state.refusals]


def test_refusals_are_computed_once_and_pickled_as_a_tuple() -> None:
    expected = (Refusal(reason=Undecided()), Refusal(reason=NoFreeGpu(
        free_gpus=0, needed_gpus=1, total_gpus=4
    )))  # fmt: skip
    computed = 0

    def compute() -> Iterator[Refusal]:
        nonlocal computed
        computed += 1
        yield from expected

    refusals = OnDemand(compute)
    assert computed == 0
    assert (len(refusals), refusals[0], refusals[1:], repr(refusals)) == (
        2, expected[0], expected[1:], repr(expected),
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(refusals)) == expected
    assert computed == 1


def test_an_error_of_the_policy_is_the_refusal() -> None:
    def compute() -> Iterator[Refusal]:
        yield Refusal(reason=Undecided())
        raise KeyError("shares")

    message = "it cannot give its reasons: KeyError: 'shares'"
    for refusals in (OnDemand(compute), pickle.loads(pickle.dumps(OnDemand(compute)))):
        assert [*refusals] == [Refusal(reason=PolicyBroke(message=message))]
