"""Why tasks wait is told when somebody asks, however late, and by what was then."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Task
from headgate.policies.flow import FlowSharing, TimelyFlow
from headgate.policies.flow.policy import FlowPolicy
from headgate.protocol import OnDemand, Refusal
from headgate.protocol.reasons import NoFreeGpu, PolicyBroke, Undecided
from headgate.testing.random_worlds import random_walk

EACH = pytest.mark.parametrize("make", [FlowSharing, TimelyFlow])


@EACH
def test_who_asks_late_is_told_what_who_asked_at_once_was(make: Callable[[], FlowPolicy]) -> None:
    told = 0
    for seed in range(20):
        at_once, late = make(), make()
        pairs = []
        for snapshot in random_walk(seed, 12):
            now = [*at_once.decide(snapshot, Random(1)).refusals]
            assert not [one for one in now if isinstance(one.reason, PolicyBroke)]
            pairs.append((now, late.decide(snapshot, Random(1)).refusals))
            told += len(now)
        for now, refusals in reversed(pairs):
            assert [*refusals] == now
    assert told > 100


@EACH
def test_no_round_keeps_what_those_before_it_could_tell(make: Callable[[], FlowPolicy]) -> None:
    bench = Bench(make())
    bench.node("n0", "a", 10, 10)
    bench.data("s", GB, "n0")
    bench.tell(submitted("one", [Task(reads=("s",))] * 12))
    for _ in range(8):
        bench.finish("one", bench.running("one")[0])
    bench.plans.clear()
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, OnDemand) and one._compute]
    assert kept == [bench.engine.state.refusals]


def test_they_are_worked_out_once_and_cross_as_a_plain_tuple() -> None:
    told = (Refusal(reason=Undecided()), Refusal(reason=NoFreeGpu(
        free_gpus=0, needed_gpus=1, total_gpus=4
    )))  # fmt: skip
    asked = 0

    def tell() -> Iterator[Refusal]:
        nonlocal asked
        asked += 1
        yield from told

    refusals = OnDemand(tell)
    assert asked == 0
    assert (len(refusals), refusals[0], refusals[1:], repr(refusals)) == (
        2, told[0], told[1:], repr(told),
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(refusals)) == told
    assert asked == 1


def test_where_a_policy_breaks_when_asked_that_is_what_is_told() -> None:
    def tell() -> Iterator[Refusal]:
        yield Refusal(reason=Undecided())
        raise KeyError("shares")

    message = "it cannot give its reasons: KeyError: 'shares'"
    for asked in (OnDemand(tell), pickle.loads(pickle.dumps(OnDemand(tell)))):
        assert [*asked] == [Refusal(reason=PolicyBroke(message=message))]
