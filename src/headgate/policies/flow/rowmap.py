"""A number per row, where rows are few of many: dense, from the first one that has a number on."""

from __future__ import annotations

import numpy as np

from headgate.flow import Ints


class RowMap:
    """Numbers by row; `nothing` for rows that were given none. Memory follows the range of rows."""

    def __init__(self, nothing: int = -1) -> None:
        self._nothing = nothing
        self._first = 0
        self._numbers = np.zeros(0, np.int64)

    def __getitem__(self, rows: Ints) -> Ints:
        """Return the numbers of rows, in any order; O(rows)."""
        at = rows - self._first
        if len(at) and (at.min() < 0 or at.max() >= len(self._numbers)):
            inside = (at >= 0) & (at < len(self._numbers))
            found = np.full(len(rows), self._nothing)
            found[inside] = self._numbers[at[inside]]
            return found
        numbers: Ints = self._numbers[at]
        return numbers

    def __setitem__(self, rows: Ints, numbers: Ints | int) -> None:
        """Give rows numbers."""
        if not len(rows):
            return
        self._hold(int(rows.min()), int(rows.max()) + 1)
        self._numbers[rows - self._first] = numbers

    def add(self, rows: Ints, numbers: Ints | int) -> None:
        """Add to the numbers of rows; a row may be named several times."""
        if len(rows):
            self._hold(int(rows.min()), int(rows.max()) + 1)
        np.add.at(self._numbers, rows - self._first, numbers)

    def _hold(self, first: int, end: int) -> None:
        held = len(self._numbers)
        if held and first >= self._first and end <= self._first + held:
            return
        low = min(first, self._first) if held else first
        high = max(end, self._first + held) if held else end
        # Rows come at the end, one after the other.
        numbers = np.full(high - low if not held else high - low + held // 2, self._nothing)
        numbers[self._first - low : self._first - low + held] = self._numbers
        self._first, self._numbers = low, numbers
