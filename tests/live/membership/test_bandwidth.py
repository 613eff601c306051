"""The estimate of a bandwidth: stable under noise and outliers, adapted to lasting changes."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.live.membership.bandwidth import TOLERANCE, Estimate

_WILD = st.floats(1e-3, 1e15)
_NOISE = st.floats(0.95, 1.05)
_HALF_LIFE_S = 15.0


def _estimate() -> Estimate:
    return Estimate(half_life_s=_HALF_LIFE_S)


def _noisy(level: st.SearchStrategy[float]) -> st.SearchStrategy[list[list[float]]]:
    """Rounds of one to four rates within 5 % of a level."""
    rounds = st.lists(st.lists(_NOISE, min_size=1, max_size=4), min_size=1, max_size=20)
    return st.builds(lambda base, all_: [[base * n for n in one] for one in all_], level, rounds)


_FAR_OFF = st.one_of(st.floats(1e-3, 20.0), st.floats(500.0, 1e15))
_ROUND_WITH_OUTLIERS = st.integers(1, 3).flatmap(
    lambda outliers: st.tuples(
        st.lists(st.floats(80.0, 120.0), min_size=outliers + 1, max_size=6),
        st.lists(_FAR_OFF, min_size=outliers, max_size=outliers),
    )
)


@given(
    st.lists(
        st.tuples(_ROUND_WITH_OUTLIERS, st.floats(0.0, 100.0), st.randoms(use_true_random=False)),
        min_size=1,
        max_size=20,
    )
)
def test_outliers_below_half_of_each_round_have_no_effect(
    rounds: list[tuple[tuple[list[float], list[float]], float, random.Random]],
) -> None:
    estimate, at = _estimate(), 0.0
    for (good, wild), pause_s, rng in rounds:
        at += pause_s
        rates = [*good, *wild]
        rng.shuffle(rates)
        estimate.take(rates, at)
        assert estimate.value is not None
        assert 80 * (1 - 1e-9) <= estimate.value <= 120 * (1 + 1e-9)


@given(_noisy(st.floats(1e3, 1e10)), st.floats(1.4, 1e4), st.booleans(), st.data())
def test_lasting_change_is_adopted_in_the_third_round_at_the_latest(
    before: list[list[float]], factor: float, falls: bool, data: st.DataObject
) -> None:
    estimate = _estimate()
    times = itertools.count(0.0, _HALF_LIFE_S)
    most = max(len(rates) for rates in before)
    for rates in before:
        estimate.take(rates, next(times))
    level = before[0][0] * (1 / factor if falls else factor)
    seen = []
    for _ in range(3):
        rates = [
            level * noise for noise in data.draw(st.lists(_NOISE, min_size=most, max_size=most))
        ]
        seen += rates
        estimate.take(rates, next(times))
    assert estimate.value is not None
    slack = 1 + 1e-9
    assert min(seen) / slack <= estimate.value <= max(seen) * slack


@given(
    st.lists(st.tuples(st.lists(_WILD, max_size=6), st.floats(0.0, 60.0)), min_size=1, max_size=10),
    st.randoms(use_true_random=False),
)
def test_inside_a_round_order_does_not_matter_and_values_are_among_the_samples(
    rounds: list[tuple[list[float], float]], rng: random.Random
) -> None:
    one, other = _estimate(), _estimate()
    at, seen = 0.0, []
    for rates, pause_s in rounds:
        at += pause_s
        seen += rates
        one.take(rates, at)
        other.take(rng.sample(rates, len(rates)), at)
        assert one.value == other.value
        assert (one.value is None) == (not seen)
        if one.value is not None:
            assert min(seen) * (1 - 1e-9) <= one.value <= max(seen) * (1 + 1e-9)


WITHIN = (1 + TOLERANCE) * (1 - 1e-9)  # the tolerance itself is lost in rounding


@given(st.lists(st.lists(st.floats(1.0, WITHIN), min_size=1, max_size=4), min_size=1))
def test_noise_within_the_tolerance_does_not_change_the_estimate(rounds: list[list[float]]) -> None:
    estimate, values = _estimate(), set()
    for number, rates in enumerate(rounds):
        estimate.take(rates, number * _HALF_LIFE_S)
        values.add(estimate.value)
    assert len(values) == 1


def test_estimate_does_not_oscillate_when_rates_differ_from_pair_to_pair() -> None:
    estimate, values = _estimate(), []
    for number, rate in enumerate(itertools.islice(itertools.cycle((100.0, 10.0)), 40)):
        estimate.take([rate, rate], number * _HALF_LIFE_S)
        values.append(estimate.value)
    assert len(set(values)) == 1


def test_one_round_alone_changes_nothing_and_three_do() -> None:
    estimate = _estimate()
    for number in range(10):
        estimate.take([100.0, 101.0], number * _HALF_LIFE_S)
    settled = estimate.value
    estimate.take([10.0, 10.0], 10 * _HALF_LIFE_S)
    assert estimate.value == settled
    for number in (11, 12):
        estimate.take([10.0, 10.0], number * _HALF_LIFE_S)
    assert estimate.value == pytest.approx(10.0)


def test_old_samples_have_no_weight_after_a_long_pause() -> None:
    estimate = _estimate()
    for number in range(10):
        estimate.take([100.0] * 4, number * _HALF_LIFE_S)
    estimate.take([10.0], 20 * _HALF_LIFE_S)
    assert estimate.value == pytest.approx(10.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_invalid_rate_is_rejected(rate: float) -> None:
    with pytest.raises(ValueError, match="rates"):
        _estimate().take([1.0, rate], 0.0)
