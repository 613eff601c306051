"""Columns of numbers that a snapshot can share with a writer: paged, copied on write.

A column is a list of pages. Freezing hands out the pages as they are and forgets which of them the
writer owns; the first write to a page afterwards copies that page alone. So a frozen view costs one
tuple, and a round over 100,000 rows copies only the pages it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_SHIFT = 10
PAGE_ROWS = 1 << _SHIFT
_MASK = PAGE_ROWS - 1

Array = NDArray[Any]


class FrozenColumn:
    """An immutable column: what the writer's column held when it was frozen."""

    __slots__ = ("_length", "_pages")

    def __init__(self, pages: tuple[Array, ...], length: int) -> None:
        self._pages = pages
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        """Return one value as a Python number."""
        return self._pages[row >> _SHIFT].item(row & _MASK)

    def span(self, start: int, stop: int) -> Array:
        """Return rows `[start, stop)` as an array not to be written to; a view within one page."""
        first, last = start >> _SHIFT, (stop - 1) >> _SHIFT
        if start >= stop:
            return self._pages[0][:0] if self._pages else np.empty(0)
        if first == last:
            base = first << _SHIFT
            return self._pages[first][start - base : stop - base]
        return np.concatenate(self._pages[first : last + 1])[
            start - (first << _SHIFT) : stop - (first << _SHIFT)
        ]

    def array(self) -> Array:
        """Return the whole column as one array not to be written to."""
        return self.span(0, self._length)

    def pages(self, start: int = 0) -> Iterator[tuple[int, Array]]:
        """Yield (row of its first value, values) page by page from the page that holds `start`."""
        for number in range(start >> _SHIFT, len(self._pages)):
            base = number << _SHIFT
            yield base, self._pages[number][: self._length - base]


class Column(FrozenColumn):
    """A growing column with one writer; `freeze()` shares it without copying."""

    __slots__ = ("_dtype", "_owned", "_writable")

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._writable: list[Array] = []
        self._owned: set[int] = set()
        super().__init__((), 0)

    def __getitem__(self, row: int) -> Any:
        return self._writable[row >> _SHIFT].item(row & _MASK)

    def __setitem__(self, row: int, value: float) -> None:
        self._page(row >> _SHIFT)[row & _MASK] = value

    def _page(self, number: int) -> Array:
        if number not in self._owned:
            self._writable[number] = self._writable[number].copy()
            self._owned.add(number)
        return self._writable[number]

    def append(self, value: float) -> None:
        """Add one row."""
        number = self._length >> _SHIFT
        if number == len(self._writable):
            self._writable.append(np.zeros(PAGE_ROWS, self._dtype))
            self._owned.add(number)
        self._page(number)[self._length & _MASK] = value
        self._length += 1

    def extend(self, value: float, count: int) -> None:
        """Add `count` rows of one value."""
        while count > 0:
            number, offset = self._length >> _SHIFT, self._length & _MASK
            if number == len(self._writable):
                self._writable.append(np.zeros(PAGE_ROWS, self._dtype))
                self._owned.add(number)
            part = min(count, PAGE_ROWS - offset)
            self._page(number)[offset : offset + part] = value
            self._length += part
            count -= part

    def span(self, start: int, stop: int) -> Array:
        return self.freeze().span(start, stop).copy()

    def pages(self, start: int = 0) -> Iterator[tuple[int, Array]]:
        return self.freeze().pages(start)

    def freeze(self) -> FrozenColumn:
        """Return the column as it is now, in O(pages); later writes do not show in it."""
        self._owned.clear()
        return FrozenColumn(tuple(self._writable), self._length)
