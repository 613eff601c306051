"""Plans with `again_at`: the policy decides again at that time, even without an event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.protocol import Command, NodeLost, TimerFired, WakeAt

Bench = Any  # of conftest.py


def answer(bench: Bench, again_at: float | None) -> list[Command]:
    ready = bench.plan_event()
    commands: list[Command] = bench.give(
        replace(ready, plan=replace(ready.plan, again_at=again_at))
    )
    return commands


def wakes(commands: list[Command]) -> list[float]:
    return [c.at for c in commands if isinstance(c, WakeAt)]


def test_policy_decides_again_at_the_requested_time(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    (wake,) = answer(bench, 50.0)
    assert isinstance(wake, WakeAt)
    assert bench.engine.outstanding() == [wake], "the timer is repeated for a world that lost it"
    assert bench.decide is None
    bench.give(TimerFired(at=50.0, timer=wake.timer))
    assert bench.decide is not None
    assert bench.engine.outstanding()[0] != wake


def test_earliest_requested_time_is_kept(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    assert wakes(answer(bench, 50.0)) == [50.0]
    bench.node("b")
    assert wakes(answer(bench, 60.0)) == []
    bench.node("c")
    assert wakes(answer(bench, 40.0)) == [40.0]
    bench.node("d")
    assert wakes(answer(bench, None)) == []


def test_memo_is_in_every_later_snapshot(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    bench.job("k")
    bench.up_to_date()
    ready = bench.plan_event()
    memo = {"missed_gpu_s": {0: 12.5}, "skips": {1: 3}, "none": {}}
    bench.give(replace(ready, plan=replace(ready.plan, memo=memo)))
    bench.job("later")
    snapshot = bench.engine.snapshot()
    assert repr(snapshot.memo("missed_gpu_s").tolist()) == "[12.5, nan, nan]"
    assert repr(snapshot.memo("skips").tolist()) == "[nan, 3.0, nan]"
    assert repr(snapshot.memo("none").tolist()) == "[nan, nan, nan]"


def give_node_memo(bench: Bench, memo: dict[str, dict[int, float]]) -> None:
    ready = bench.plan_event()
    bench.give(replace(ready, plan=replace(ready.plan, node_memo=memo)))


def test_memo_by_node_is_kept_until_it_is_zero_or_its_node_is_lost(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j")
    give_node_memo(bench, {"swrr": {0: 1.5, 1: -1.5}, "none": {}})
    snapshot = bench.engine.snapshot()
    assert snapshot.node_memo("swrr").tolist() == [1.5, -1.5]
    assert snapshot.node_memo("none").tolist() == [0.0, 0.0]
    bench.give(NodeLost(at=1.0, node="b"))
    give_node_memo(bench, {"swrr": {0: 2.0}})
    assert bench.engine.snapshot().node_memos == {"swrr": {0: 2.0}}
    assert snapshot.node_memos == {"swrr": {0: 1.5, 1: -1.5}}, "a snapshot never changes"
    bench.node("b")
    give_node_memo(bench, {"swrr": {0: 0.0}})
    assert bench.engine.snapshot().node_memos == {}
