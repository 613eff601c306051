"""A column whose rows are short lists of row numbers: read one by one as tuples, or all in arrays.

The numbers of all lists stand one after the other in a column of their own. A list that is changed
is written anew at its end, so that frozen views keep reading the old one where it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.base.column import Array, Column, FrozenColumn

Ints = NDArray[np.int64]


class FrozenLists:
    """An immutable column of lists: what the writer's held when it was frozen."""

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
        """Return the whole column as an array of tuples, not to be written to."""
        return self._tuples.array()

    def flat(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the lists of some rows: offsets `[rows + 1]`, and the numbers, list after list.

        O(rows + numbers returned + pages).
        """
        return self._numbers.lists(self._first, self._count, rows)

    def changed(self, before: FrozenLists) -> Array:
        """Return the rows, ascending, that were written since `before`, or that are new."""
        parts = (self._first.changed(before._first), self._count.changed(before._count))
        rows: Array = np.union1d(*parts)  # an empty list, set anew, may stay where it is
        return rows

    def select(self, rows: Ints) -> Lists:
        """Return a column of its own with the lists of some rows, in their order; O(column)."""
        lists = Lists()
        for numbers in self._tuples.take(rows).tolist():
            lists.append(numbers)
        return lists

    def thaw(self) -> Lists:
        """Return a column of its own that says the same, in O(pages); writing copies pages."""
        columns = (self._tuples, self._first, self._count, self._numbers)
        tuples, first, count, numbers = (column.thaw() for column in columns)
        return Lists((tuples, first, count, numbers))


class Lists:
    """A growing column of lists with one writer; `freeze()` shares it without copying."""

    __slots__ = ("_count", "_first", "_numbers", "_tuples")

    def __init__(self, columns: tuple[Column, Column, Column, Column] | None = None) -> None:
        """Begin without rows, or with what others have read: tuples, first, count, numbers."""
        if columns is None:
            columns = (Column("O"), Column("i8"), Column("i4"), Column("i4"))
        self._tuples, self._first, self._count, self._numbers = columns

    def __len__(self) -> int:
        return len(self._tuples)

    def __getitem__(self, row: int) -> tuple[int, ...]:
        """Return one list."""
        found: tuple[int, ...] = self._tuples[row]
        return found

    def __setitem__(self, row: int, numbers: tuple[int, ...]) -> None:
        if numbers == self._tuples[row]:
            return
        self._tuples[row] = numbers
        self._first[row] = len(self._numbers)
        self._count[row] = len(numbers)
        self._write(numbers)

    def append(self, numbers: tuple[int, ...]) -> None:
        """Add one row."""
        self._tuples.append(numbers)
        self._first.append(len(self._numbers))
        self._count.append(len(numbers))
        self._write(numbers)

    def renumber(self, new: Ints) -> None:
        """Replace every number `n` of every list by `new[n]`; O(numbers)."""
        for row, numbers in enumerate(self._tuples.array().tolist()):
            self._tuples[row] = tuple(new[list(numbers)].tolist())
        self._numbers.renumber(new)

    def _write(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            self._numbers.append(number)

    def array(self) -> Array:
        """Return the whole column as an array of tuples, not to be written to."""
        return self._tuples.array()

    def freeze(self) -> FrozenLists:
        """Return the column as it is now, in O(pages)."""
        return FrozenLists(
            self._tuples.freeze(),
            self._first.freeze(),
            self._count.freeze(),
            self._numbers.freeze(),
        )
