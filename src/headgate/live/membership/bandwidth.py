"""Bandwidth estimated from timed samples; without a clock and without transfers."""

from __future__ import annotations

import math
from collections.abc import Sequence

TOLERANCE = 0.1
"""Relative change of a bandwidth below which no event is posted."""

_KEPT_HALF_LIVES = 8.0
_SPREADS = 3.0
_CENTRAL = (0.2, 0.8)


class Estimate:
    """A decayed median of rates without outliers, which changes only when the samples have left it.

    A sample's weight halves with every half-life of its age. Rates whose logarithm is further from
    the weighted median's than three times the weighted median of such distances (and a tenth) are
    dropped; the estimate is the weighted median of the rest. `value` is unchanged while it is among
    the central 60 % of all samples, or within a tenth of them. So outliers that weigh less than
    half have no effect, rates that differ from pair to pair do not make it oscillate, and with
    equal rounds once per half-life a lasting change is adopted in the third at the latest.
    """

    def __init__(self, *, half_life_s: float) -> None:
        self.value: float | None = None
        self._half_life_s = half_life_s
        self._samples: list[tuple[float, float]] = []  # time in s, rate in bytes per second

    def take(self, rates: Sequence[float], at: float) -> None:
        """Add the rates of one round, bytes per second, in any order. O(samples kept).

        `at` is the time in seconds, which never decreases.

        ValueError for a rate that is not positive and finite.
        """
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError(f"not all of these are rates: {list(rates)}")
        if not rates:
            return
        oldest = at - _KEPT_HALF_LIVES * self._half_life_s
        self._samples = [sample for sample in self._samples if sample[0] >= oldest]
        self._samples += [(at, rate) for rate in rates]
        weighed = sorted(
            (math.log(rate), 2.0 ** ((when - at) / self._half_life_s))
            for when, rate in self._samples
        )
        if self.value is None or not self._explained(self.value, weighed):
            self.value = math.exp(_median_without_outliers(weighed))

    @staticmethod
    def _explained(value: float, weighed: Sequence[tuple[float, float]]) -> bool:
        low, high = (_quantile(weighed, share) for share in _CENTRAL)
        slack = math.log1p(TOLERANCE)
        return low - slack <= math.log(value) <= high + slack


def moved(old: float, new: float) -> bool:
    """Return whether two bandwidths differ by more than the tolerance."""
    return abs(math.log(new / old)) > math.log1p(TOLERANCE)


def _median_without_outliers(weighed: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median of the rates near the weighted median; ascending logarithms."""
    middle = _quantile(weighed, 0.5)
    distances = sorted((abs(rate - middle), weight) for rate, weight in weighed)
    reach = max(_SPREADS * _quantile(distances, 0.5), math.log1p(TOLERANCE))
    return _quantile([pair for pair in weighed if abs(pair[0] - middle) <= reach], 0.5)


def _quantile(weighed: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least value (they ascend) with this share of the weight up to it."""
    wanted = share * sum(weight for _, weight in weighed)
    reached = 0.0
    for value, weight in weighed:
        reached += weight
        if reached >= wanted:
            return value
    return weighed[-1][0]
