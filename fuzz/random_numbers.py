"""Random small integers from a generator of NumPy, drawn in blocks for speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


class RandomNumbers:
    """Numbers from a seed; equal seeds give equal numbers."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._drawn: list[int] = []

    def number(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        if not self._drawn:
            self._drawn = self._rng.integers(0, 1 << 62, 256).tolist()
        return low + self._drawn.pop() % (high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True with this probability, in percent."""
        return self.number(0, 99) < percent

    def one_of(self, items: Sequence[Item]) -> Item:
        """Return a random item."""
        return items[self.number(0, len(items) - 1)]

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        """Return `count` numbers from low to high, both included."""
        return [self.number(low, high) for _ in range(count)]
