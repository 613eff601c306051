"""Speed curves answer from their own points, and refuse what is no measurement."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import SpeedCurve

CURVE = SpeedCurve((1, 2, 8), (10.0, 16.0, 12.0))


@st.composite
def curves(draw: st.DrawFn) -> SpeedCurve:
    widths = sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=8)))
    rates = draw(st.lists(st.floats(0.1, 100.0), min_size=len(widths), max_size=len(widths)))
    return SpeedCurve(tuple(widths), tuple(rates))


def test_only_measured_widths_are_used() -> None:
    assert [CURVE.widest(gpus) for gpus in (0, 1, 2, 3, 7, 8, 64)] == [0, 1, 2, 2, 2, 8, 8]
    assert CURVE.best == 2
    assert CURVE.rate(8) == 12.0
    assert CURVE.up_to(2) == SpeedCurve((1, 2), (10.0, 16.0))
    with pytest.raises(ValueError, match="not in tuple"):
        CURVE.rate(4)


@pytest.mark.parametrize(
    ("widths", "rates"),
    [
        ((), ()), ((1,), (1.0, 2.0)), ((0, 1), (1.0, 2.0)), ((2, 1), (1.0, 2.0)),
        ((1, 1), (1.0, 2.0)), ((1,), (0.0,)), ((1,), (math.nan,)), ((1,), (math.inf,)),
    ],
)  # fmt: skip
def test_what_is_no_measurement_is_refused(
    widths: tuple[int, ...], rates: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="curve"):
        SpeedCurve(widths, rates)


@given(curve=curves())
def test_hull_has_falling_gains_per_gpu_and_is_never_below_a_point(curve: SpeedCurve) -> None:
    hull = curve.hull()
    points = [(0, 0.0), *zip(hull.widths, hull.rates, strict=True)]
    gains = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(points)]
    assert all(a > b for a, b in itertools.pairwise(gains))
    for width, rate in zip(curve.widths, curve.rates, strict=True):
        low = max(p for p in points if p[0] <= width)
        high = min(p for p in points if p[0] >= width)
        between = (
            low[1]
            if low == high
            else low[1] + (width - low[0]) * ((high[1] - low[1]) / (high[0] - low[0]))
        )
        assert rate <= between * (1 + 1e-9)
