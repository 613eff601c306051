"""A plan may ask to be made anew at some time, whether or not anything happens until then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.protocol import Command, TimerFired, WakeAt

Bench = Any  # of conftest.py


def answer(bench: Bench, again_at: float | None) -> list[Command]:
    ready = bench.plan_event()
    commands: list[Command] = bench.give(
        replace(ready, plan=replace(ready.plan, again_at=again_at))
    )
    return commands


def wakes(commands: list[Command]) -> list[float]:
    return [c.at for c in commands if isinstance(c, WakeAt)]


def test_the_policy_is_asked_again_at_the_time_it_named(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    (wake,) = answer(bench, 50.0)
    assert isinstance(wake, WakeAt)
    assert bench.engine.outstanding() == [wake], "a world that lost it can be asked anew"
    assert bench.decide is None
    bench.give(TimerFired(at=50.0, cause=wake.id))
    assert bench.decide is not None
    assert bench.engine.outstanding()[0] != wake


def test_the_earliest_wish_stands(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    assert wakes(answer(bench, 50.0)) == [50.0]
    bench.node("b")
    assert wakes(answer(bench, 60.0)) == []
    bench.node("c")
    assert wakes(answer(bench, 40.0)) == [40.0]
    bench.node("d")
    assert wakes(answer(bench, None)) == []


def test_what_jobs_missed_is_kept_with_the_time(bench: Bench) -> None:
    bench.node("a")
    bench.job("j")
    ready = bench.plan_event()
    bench.give(replace(ready, plan=replace(ready.plan, missed=((0, 12.5, 3),))))
    jobs = bench.engine.state.jobs
    assert (jobs.missed_gpu_s[0], jobs.missed_at[0]) == (12.5, ready.at)
    assert jobs.missing_gpus[0] == 3
