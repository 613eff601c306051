"""Columns of numbers that a snapshot shares with a writer: paged, copied on write.

A column is a list of pages. Freezing shares the pages with the view and clears the set of pages
that the writer owns; the first write to a page afterwards copies that page alone. So a frozen view
costs one tuple, and a round over 100,000 rows copies only the pages it changes.

Every column has a blank: the value that its new rows begin with. What lies past its end is blank,
so rows are added by counting them, and pages on which nothing was ever written are one and the same
page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headgate.base import _native

_SHIFT = 10
PAGE_ROWS = 1 << _SHIFT
_MASK = PAGE_ROWS - 1

Array = NDArray[Any]
_MANY = (np.ndarray, list)


@cache
def _blank_page(dtype: np.dtype[Any], blank: Any) -> Array:
    page = np.empty(PAGE_ROWS, dtype)
    page.fill(blank)
    page.setflags(write=False)
    return page


class FrozenColumn:
    """An immutable view of a column: its values when it was frozen."""

    __slots__ = ("_blank", "_dtype", "_length", "_pages")

    def __init__(
        self, dtype: np.dtype[Any], pages: tuple[Array, ...], length: int, blank: Any
    ) -> None:
        self._dtype = dtype
        self._pages = pages
        self._length = length
        self._blank = blank

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        """Return one value as a Python number; IndexError for a row out of range."""
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        return self._pages[row >> _SHIFT].item(row & _MASK)

    def span(self, start: int, stop: int) -> Array:
        """Return rows `[start, stop)` as a read-only array; a view within one page.

        IndexError for a row out of range.
        """
        if start >= stop:
            return np.empty(0, self._dtype)
        if start < 0 or stop > self._length:
            raise IndexError(f"rows {start} to {stop} of {self._length}")
        first, last = start >> _SHIFT, (stop - 1) >> _SHIFT
        if first == last:
            base = first << _SHIFT
            return self._pages[first][start - base : stop - base]
        return np.concatenate(self._pages[first : last + 1])[
            start - (first << _SHIFT) : stop - (first << _SHIFT)
        ]

    def array(self) -> Array:
        """Return the whole column as one read-only array."""
        return self.span(0, self._length)

    def pages(self, start: int = 0) -> Iterator[tuple[int, Array]]:
        """Yield (row of its first value, values) page by page from the page that holds `start`."""
        for number in range(start >> _SHIFT, len(self._pages)):
            base = number << _SHIFT
            yield base, self._pages[number][: self._length - base]

    def take(self, rows: Array | range) -> Array:
        """Return the values of these rows, in their order; read-only for a range.

        IndexError for a row out of range. O(rows + pages); O(column) for objects.
        """
        if isinstance(rows, range):
            return self.span(rows.start, rows.stop)
        if self._dtype.hasobject:
            if rows.min(initial=0) < 0:
                raise IndexError("a row is not of this column")
            objects: Array = self.array()[rows]
            return objects
        taken = np.empty(len(rows), self._dtype)
        _native.take(self._pages, rows, self._length, _SHIFT, taken)
        return taken

    def lists(self, first: FrozenColumn, count: FrozenColumn, rows: Array) -> tuple[Array, Array]:
        """Return the lists of these rows, in CSR form: offsets `[rows + 1]`, and their numbers.

        The list of a row is `count` (i4) numbers (i4) of this column from `first` (i8) on.
        IndexError for a row or a list out of range. O(rows + numbers + pages).
        """
        length, held = min(len(first), len(count)), len(self)
        return _native.lists(first._pages, count._pages, length, self._pages, held, rows, _SHIFT)

    def changed(self, before: FrozenColumn) -> Array:
        """Return the rows, ascending, whose bits differ from those in `before`, and the new rows.

        `before` is an earlier view of the same column. Objects are compared by identity. O(pages),
        and O(rows) of the pages that were written to.
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
        column = Column(self._dtype, self._blank)
        column.extend(self.take(rows), len(rows))
        return column

    def thaw(self) -> Column:
        """Return a writable copy, in O(pages); a write copies the page that it changes."""
        return Column(self._dtype, self._blank, self._pages, self._length)


class Column:
    """A growing column with one writer; `freeze()` shares it without copying.

    `frozen` is the view that `freeze()` would return, None once the column was written to since.
    """

    __slots__ = ("_blank", "_dtype", "_length", "_owned", "_pages", "frozen")

    def __init__(
        self, dtype: DTypeLike, blank: Any = 0, pages: Sequence[Array] = (), length: int = 0
    ) -> None:
        """Start empty, or with `length` rows on pages that other columns share.

        Values are numbers of 1, 4 or 8 bytes, or objects; new ones hold `blank`.
        """
        self._dtype = np.dtype(dtype)
        self._blank = blank
        self._pages = list(pages)
        self._owned: dict[int, Array] = {}  # pages that no view has seen, by number
        self._length = length
        self.frozen: FrozenColumn | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        """Return one value as a Python number (or object); IndexError for a row out of range."""
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        return self._pages[row >> _SHIFT].item(row & _MASK)

    def __setitem__(self, row: int, value: Any) -> None:
        if not 0 <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        page = self._owned.get(row >> _SHIFT)
        if page is None:
            page = self._own(row >> _SHIFT)
        page[row & _MASK] = value

    def _own(self, number: int) -> Array:
        """Return a page to write to: the writer's own copy."""
        self.frozen = None
        page = self._owned[number] = self._pages[number] = self._pages[number].copy()
        return page

    def grow(self, count: int = 1) -> None:
        """Append `count` rows that hold the blank."""
        self.frozen = None
        self._length += count
        while len(self._pages) << _SHIFT < self._length:
            self._pages.append(_blank_page(self._dtype, self._blank))

    def append(self, value: Any) -> None:
        """Append one row."""
        self.grow()
        self[self._length - 1] = value

    def extend(self, values: Any, count: int) -> None:
        """Append `count` rows: one number for all, or a list or array of that length."""
        self.grow(count)
        self.write(self._length - count, values, count)

    def write(self, start: int, values: Any, count: int) -> None:
        """Write `count` rows from `start` on: one number for all, or a list or array of them."""
        if not 0 <= start <= start + count <= self._length:
            raise IndexError(f"rows {start} to {start + count} of {self._length}")
        many, done = isinstance(values, _MANY), 0
        while done < count:
            number, offset = (start + done) >> _SHIFT, (start + done) & _MASK
            part = min(count - done, PAGE_ROWS - offset)
            page = self._owned.get(number)
            if page is None:
                page = self._own(number)
            page[offset : offset + part] = values[done : done + part] if many else values
            done += part

    def renumber(self, new: Array) -> None:
        """Replace every row number `n` in this column by `new[n]`; negative ones stay."""
        values = self.array()
        known = values >= 0
        values = values.copy()
        values[known] = new[values[known]]
        self.write(0, values, self._length)

    def span(self, start: int, stop: int) -> Array:
        """Return rows `[start, stop)` as a read-only array, valid until the next write."""
        return self.freeze().span(start, stop)

    def array(self) -> Array:
        """Return the whole column as one read-only array, valid until the next write."""
        return self.freeze().array()

    def freeze(self) -> FrozenColumn:
        """Return an immutable view; O(pages), O(1) when nothing was written since the last call."""
        if self.frozen is None:
            self._owned.clear()
            self.frozen = FrozenColumn(self._dtype, tuple(self._pages), self._length, self._blank)
        return self.frozen
