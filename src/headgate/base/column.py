"""Columns of numbers that a snapshot can share with a writer: paged, copied on write.

A column is a list of pages. Freezing hands out the pages as they are and forgets which of them the
writer owns; the first write to a page afterwards copies that page alone. So a frozen view costs one
tuple, and a round over 100,000 rows copies only the pages it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headgate.base import _native

_SHIFT = 10
PAGE_ROWS = 1 << _SHIFT
_MASK = PAGE_ROWS - 1

Array = NDArray[Any]


class FrozenColumn:
    """An immutable column: what the writer's column held when it was frozen."""

    __slots__ = ("_dtype", "_length", "_pages")

    def __init__(self, dtype: np.dtype[Any], pages: tuple[Array, ...], length: int) -> None:
        self._dtype = dtype
        self._pages = pages
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        """Return one value as a Python number; IndexError for a row that is not there."""
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        return self._pages[row >> _SHIFT].item(row & _MASK)

    def span(self, start: int, stop: int) -> Array:
        """Return rows `[start, stop)` as an array not to be written to; a view within one page."""
        if start >= stop:
            return np.empty(0, self._dtype)
        first, last = start >> _SHIFT, (stop - 1) >> _SHIFT
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

    def take(self, rows: Array | range) -> Array:
        """Return the values of some rows, in their order; a range's are not to be written to.

        O(rows + pages).
        """
        if isinstance(rows, range):
            return self.span(rows.start, rows.stop)
        if self._dtype.hasobject:
            objects: Array = self.array()[rows]
            return objects
        taken = np.empty(len(rows), self._dtype)
        _native.take(self._pages, rows, self._length, _SHIFT, taken)
        return taken

    def lists(self, first: FrozenColumn, count: FrozenColumn, rows: Array) -> tuple[Array, Array]:
        """Return parts of this column: offsets `[rows + 1]`, and the numbers, part after part.

        That of a row is `count` (i4) numbers (i4) from `first` (i8) on. O(rows + numbers + pages).
        """
        length, held = min(len(first), len(count)), len(self)
        return _native.lists(first._pages, count._pages, length, self._pages, held, rows, _SHIFT)

    def changed(self, before: FrozenColumn) -> Array:
        """Return the rows, ascending, whose bits are not what they were, or that are new.

        `before` is an earlier view of the same column. Objects count as changed when they are other
        objects. O(pages), and O(rows) of the pages that were written to.
        """
        new = np.arange(before._length, self._length)
        if self is before:
            return new
        pages, others, item_bytes = self._pages, before._pages, self._dtype.itemsize
        rows = _native.differing(pages, others, before._length, _SHIFT, item_bytes)
        if not len(new):
            return rows
        return np.concatenate([rows, new])

    def select(self, rows: Array) -> Column:
        """Return a column of its own with the values of some rows, in their order; O(column)."""
        column = Column(self._dtype)
        column.extend(self.take(rows), len(rows))
        return column

    def thaw(self) -> Column:
        """Return a column of its own that says the same, in O(pages); writing copies pages."""
        return Column(self._dtype, self._pages, self._length)


class Column:
    """A growing column with one writer; `freeze()` shares it without copying."""

    __slots__ = ("_dtype", "_frozen", "_length", "_owned", "_pages")

    def __init__(self, dtype: DTypeLike, pages: Sequence[Array] = (), length: int = 0) -> None:
        """Begin without rows, or with `length` rows on pages that others read too.

        Rows are numbers of 1, 4 or 8 bytes, or objects.
        """
        self._dtype = np.dtype(dtype)
        self._pages = list(pages)
        self._owned: set[int] = set()
        self._length = length
        self._frozen: FrozenColumn | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        """Return one value as a Python number (or object); IndexError for a row not there."""
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        return self._pages[row >> _SHIFT].item(row & _MASK)

    def __setitem__(self, row: int, value: Any) -> None:
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        self._page(row >> _SHIFT)[row & _MASK] = value

    def _page(self, number: int) -> Array:
        self._frozen = None
        if number not in self._owned:
            if number == len(self._pages):
                self._pages.append(np.zeros(PAGE_ROWS, self._dtype))
            else:
                self._pages[number] = self._pages[number].copy()
            self._owned.add(number)
        return self._pages[number]

    def append(self, value: Any) -> None:
        """Add one row."""
        self._page(self._length >> _SHIFT)[self._length & _MASK] = value
        self._length += 1

    def extend(self, values: Any, count: int) -> None:
        """Add `count` rows: one number for all, or an array of that length."""
        done = 0
        while done < count:
            offset = self._length & _MASK
            part = min(count - done, PAGE_ROWS - offset)
            piece = values if np.ndim(values) == 0 else values[done : done + part]
            self._page(self._length >> _SHIFT)[offset : offset + part] = piece
            self._length += part
            done += part

    def renumber(self, new: Array) -> None:
        """Replace every row number `n` in this column by `new[n]`; negative ones stay."""
        values = self.array()
        known = values >= 0
        values = values.copy()
        values[known] = new[values[known]]
        length, self._length = self._length, 0
        self.extend(values, length)

    def span(self, start: int, stop: int) -> Array:
        """Return rows `[start, stop)` as an array not to be written to, nor kept past a write."""
        return self.freeze().span(start, stop)

    def array(self) -> Array:
        """Return the whole column as one array not to be written to, nor kept past a write."""
        return self.freeze().array()

    def freeze(self) -> FrozenColumn:
        """Return the column as it is now, in O(pages), or O(1) when nothing was written since."""
        if self._frozen is None:
            self._owned.clear()
            self._frozen = FrozenColumn(self._dtype, tuple(self._pages), self._length)
        return self._frozen
