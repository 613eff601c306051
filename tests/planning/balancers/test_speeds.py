"""Learnt speeds of nodes: what is known is used, and a single slow run bans no node."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.planning.balancers import Speeds
from headgate.planning.balancers.speeds import PRIOR

TIMES = st.floats(1e-3, 1e4)


def test_unknown_kind_has_no_times_and_speeds_of_one() -> None:
    speeds = Speeds()
    assert math.isnan(speeds.seconds("k", ["a"], ["c"])[0])
    assert speeds.speeds("k", ["a", "b"], ["c", "c"]).tolist() == [1.0, 1.0]


def test_node_without_samples_has_the_mean_of_its_class() -> None:
    speeds = Speeds()
    for _ in range(200):
        speeds.record("k", "a", "fast", 1.0)
        speeds.record("k", "b", "slow", 4.0)
    known, unknown, other = speeds.seconds("k", ["b", "new", "odd"], ["slow", "slow", "odd"])
    assert known == pytest.approx(4.0, rel=0.05)
    assert unknown == pytest.approx(4.0, rel=0.05)
    assert other == pytest.approx(2.0, rel=0.05)  # the mean of logarithms of all


@given(st.floats(0.1, 10), st.floats(0.1, 10), TIMES)
def test_ratio_of_speeds_is_learnt(first: float, second: float, work_s: float) -> None:
    speeds = Speeds()
    for _ in range(300):
        speeds.record("k", "a", "x", work_s / first)
        speeds.record("k", "b", "y", work_s / second)
    a, b = speeds.speeds("k", ["a", "b"], ["x", "y"])
    assert a / b == pytest.approx(first / second, rel=0.15)


@given(st.floats(1, 1000), st.integers(0, 80))
def test_one_slow_run_counts_as_one_sample(factor: float, before: int) -> None:
    speeds = Speeds()
    for _ in range(before + 1):
        speeds.record("k", "a", "c", 1.0)
        speeds.record("k", "b", "c", 1.0)
    speeds.record("k", "b", "c", factor)
    a, b = speeds.seconds("k", ["a", "b"], ["c", "c"])
    assert b / a <= factor ** (1 / (1 + PRIOR)) * (1 + 1e-9)


@given(st.floats(1, 1000))
def test_node_with_a_slow_run_is_considered_again(factor: float) -> None:
    speeds = Speeds()
    speeds.record("k", "b", "c", factor)
    for _ in range(1000):
        speeds.record("k", "a", "c", 1.0)
    a, b = speeds.seconds("k", ["a", "b"], ["c", "c"])
    assert b / a < 1.1


def test_node_that_is_forgotten_has_the_mean_of_its_class_again() -> None:
    speeds = Speeds()
    for _ in range(50):
        speeds.record("k", "a", "c", 1.0)
    speeds.record("k", "b", "c", 100.0)
    speeds.forget("b")
    b, new = speeds.seconds("k", ["b", "new"], ["c", "c"])
    assert b == new


@given(TIMES, st.integers(1, 50))
def test_batch_counts_as_its_runs(seconds: float, count: int) -> None:
    batch, single = Speeds(), Speeds()
    for each in (batch, single):
        each.record("k", "a", "c", 1.0)
    batch.record("k", "a", "c", seconds, count)
    for _ in range(count):
        single.record("k", "a", "c", seconds)
    assert batch.seconds("k", ["new"], ["c"]) == pytest.approx(single.seconds("k", ["new"], ["c"]))
