"""A column whose rows are short lists of row numbers: read one by one as tuples, or as arrays.

The numbers of all lists are stored consecutively in one column. A changed list is appended to it,
so that frozen views still read the old one in its place.
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.column import Array, Column, FrozenColumn


class FrozenLists:
    """An immutable view of a column of lists: its values when it was frozen."""

    __slots__ = ("_count", "_first", "_numbers", "_tuples")

    def __init__(
        self,
        tuples: FrozenColumn,
        first: FrozenColumn,
        count: FrozenColumn,
        numbers: FrozenColumn,
    ) -> None:
        self._tuples, self._first, self._count, self._numbers = tuples, first, count, numbers

    def __len__(self) -> int:
        return len(self._tuples)

    def __getitem__(self, row: int) -> tuple[int, ...]:
        """Return one list."""
        found: tuple[int, ...] = self._tuples[row]
        return found

    def array(self) -> Array:
        """Return the whole column as a read-only array of tuples."""
        return self._tuples.array()

    def flat(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the lists of these rows, in CSR form: offsets `[rows + 1]`, and their numbers.

        O(rows + numbers returned + pages).
        """
        return self._numbers.lists(self._first, self._count, rows)

    def having(self, number: int) -> Ints:
        """Return the rows, ascending, whose list has a number once or more; O(rows + numbers)."""
        offsets, numbers = self.flat(np.arange(len(self)))
        places = np.flatnonzero(numbers == number)
        return np.unique(np.searchsorted(offsets, places, side="right") - 1)

    def changed(self, before: FrozenLists) -> Array:
        """Return the rows, ascending, that were written since `before`, and the new rows."""
        parts = (self._first.changed(before._first), self._count.changed(before._count))
        rows: Array = np.union1d(*parts)  # an empty list may be replaced in its place
        return rows

    def select(self, rows: Ints) -> Lists:
        """Return a column of its own with the lists of some rows, in their order; O(column)."""
        lists = Lists()
        for numbers in self._tuples.take(rows).tolist():
            lists.append(numbers)
        return lists

    def thaw(self) -> Lists:
        """Return a writable copy, in O(pages); a write copies the page that it changes."""
        columns = (self._tuples, self._first, self._count, self._numbers)
        tuples, first, count, numbers = (column.thaw() for column in columns)
        return Lists((tuples, first, count, numbers))


class Lists:
    """A growing column of lists with one writer; `freeze()` shares it without copying.

    `frozen` is the view that `freeze()` would return, None once the column was written to since.
    """

    __slots__ = ("_count", "_first", "_numbers", "_tuples", "frozen")

    def __init__(self, columns: tuple[Column, Column, Column, Column] | None = None) -> None:
        """Start empty, or from thawed columns: tuples, first, count, numbers."""
        if columns is None:
            columns = (Column("O", ()), Column("i8"), Column("i4"), Column("i4"))
        self._tuples, self._first, self._count, self._numbers = columns
        self.frozen: FrozenLists | None = None

    def __len__(self) -> int:
        return len(self._tuples)

    def __getitem__(self, row: int) -> tuple[int, ...]:
        """Return one list."""
        found: tuple[int, ...] = self._tuples[row]
        return found

    def __setitem__(self, row: int, numbers: tuple[int, ...]) -> None:
        if numbers == self._tuples[row]:
            return
        self.frozen = None
        start, count = len(self._numbers), len(numbers)
        self._tuples[row] = numbers
        self._first[row] = start
        self._count[row] = count
        self._numbers.grow(count)
        for place, number in enumerate(numbers, start):
            self._numbers[place] = number

    def grow(self, count: int = 1) -> None:
        """Append `count` rows, empty lists."""
        self.frozen = None
        for column in (self._tuples, self._first, self._count):
            column.grow(count)

    def append(self, numbers: tuple[int, ...]) -> None:
        """Append one row."""
        self.grow()
        self[len(self) - 1] = numbers

    def renumber(self, new: Ints) -> None:
        """Replace every number `n` of every list by `new[n]`; O(numbers)."""
        self.frozen = None
        for row, numbers in enumerate(self._tuples.array().tolist()):
            self._tuples[row] = tuple(new[list(numbers)].tolist())
        self._numbers.renumber(new)

    def array(self) -> Array:
        """Return the whole column as a read-only array of tuples."""
        return self._tuples.array()

    def having(self, number: int) -> Ints:
        """Return the rows, ascending, whose list has a number; O(rows + numbers)."""
        return self.freeze().having(number)

    def freeze(self) -> FrozenLists:
        """Return an immutable view, in O(pages)."""
        if self.frozen is None:
            self.frozen = FrozenLists(
                self._tuples.freeze(),
                self._first.freeze(),
                self._count.freeze(),
                self._numbers.freeze(),
            )
        return self.frozen
