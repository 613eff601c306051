"""Random small numbers, cheap: a generator of NumPy's, asked for many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Thing = TypeVar("Thing")


class Dice:
    """Numbers from a seed; the same seed gives the same numbers."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._drawn: list[int] = []

    def number(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        if not self._drawn:
            self._drawn = self._rng.integers(0, 1 << 62, 256).tolist()
        return low + self._drawn.pop() % (high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return whether a thing of so many percent happens."""
        return self.number(0, 99) < percent

    def one_of(self, things: Sequence[Thing]) -> Thing:
        """Return one of them."""
        return things[self.number(0, len(things) - 1)]

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        """Return so many numbers."""
        return [self.number(low, high) for _ in range(count)]
