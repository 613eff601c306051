"""How fast a training job works, by the number of GPUs that it holds."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """Measured rates (units of work per second, > 0) of a job, by width (GPUs, ascending).

    Only these widths can be used: one between them is none that was measured. A curve need not be
    concave; who needs that asks for its `hull`. Raises ValueError for anything else.
    """

    widths: tuple[int, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.widths or len(self.widths) != len(self.rates):
            raise ValueError("a curve has a rate for each of one or more widths")
        if self.widths[0] < 1 or any(a >= b for a, b in pairwise(self.widths)):
            raise ValueError(f"the widths of a curve must ascend from 1 or more: {self.widths}")
        if not all(rate > 0 and math.isfinite(rate) for rate in self.rates):
            raise ValueError(f"the rates of a curve must be finite, and above 0: {self.rates}")

    @property
    def best(self) -> int:
        """The width with the highest rate, the smallest of several."""
        return self.widths[self.rates.index(max(self.rates))]

    def rate(self, width: int) -> float:
        """Return the rate with a width of the curve; raises ValueError for any other."""
        return self.rates[self.widths.index(width)]

    def widest(self, gpus: int) -> int:
        """Return the largest width that so many GPUs are enough for, 0 if there is none."""
        index = bisect_right(self.widths, gpus)
        return self.widths[index - 1] if index else 0

    def up_to(self, width: int) -> SpeedCurve:
        """Return the part of the curve up to a width of it."""
        count = self.widths.index(width) + 1
        return SpeedCurve(self.widths[:count], self.rates[:count])

    def hull(self) -> SpeedCurve:
        """Return the widths that lie on the concave hull of the curve and the point (0, 0)."""
        kept: list[tuple[int, float]] = [(0, 0.0)]
        for width, rate in zip(self.widths, self.rates, strict=True):
            while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-1], (width, rate)):
                kept.pop()
            kept.append((width, rate))
        widths, rates = zip(*kept[1:], strict=True)
        return SpeedCurve(widths, rates)


def _slope(start: tuple[int, float], end: tuple[int, float]) -> float:
    return (end[1] - start[1]) / (end[0] - start[0])
