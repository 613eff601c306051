"""A growing matrix of integers: a row per object, a column per kind; paged, copied on write.

Kinds may be added later: existing rows have 0 of a new kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.base.column import Array, Column, FrozenColumn

Vector = tuple[int, ...]
"""Amounts by kind; kinds past its end are 0."""


class FrozenVectors:
    """An immutable view of a matrix: its values when it was frozen."""

    __slots__ = ("_kinds", "_length")

    def __init__(self, kinds: tuple[FrozenColumn, ...], length: int) -> None:
        self._kinds, self._length = kinds, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Vector:
        """Return one row."""
        return tuple(kind[row] for kind in self._kinds)

    def at(self, row: int, kind: int) -> int:
        """Return one amount."""
        amount: int = self._kinds[kind][row] if kind < len(self._kinds) else 0
        return amount

    def kind(self, number: int) -> Array:
        """Return the amounts of one kind, `[rows]`, read-only."""
        if number >= len(self._kinds):
            return np.zeros(self._length, np.int64)
        return self._kinds[number].array()

    def array(self) -> NDArray[np.int64]:
        """Return the whole matrix, `[rows, kinds]`."""
        if not self._kinds:
            return np.zeros((self._length, 0), np.int64)
        return np.stack([kind.array() for kind in self._kinds], axis=1)

    def thaw(self) -> Vectors:
        """Return a writable copy, in O(pages); a write copies the page that it changes."""
        return Vectors([kind.thaw() for kind in self._kinds], self._length)


class Vectors:
    """A growing matrix with one writer; `freeze()` shares it without copying.

    `frozen` is the view that `freeze()` would return, None once the matrix was written to since.
    """

    __slots__ = ("_kinds", "_length", "frozen")

    def __init__(self, kinds: Iterable[Column] = (), length: int = 0) -> None:
        """Start empty, or from the thawed columns of the kinds."""
        self._kinds, self._length = list(kinds), length
        self.frozen: FrozenVectors | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Vector:
        """Return one row."""
        return tuple(kind[row] for kind in self._kinds)

    def __setitem__(self, row: int, amounts: Sequence[int]) -> None:
        """Write one row; kinds past the end of `amounts` become 0."""
        self.frozen = None
        self._widen(len(amounts))
        for number, kind in enumerate(self._kinds):
            kind[row] = amounts[number] if number < len(amounts) else 0

    def grow(self, count: int = 1) -> None:
        """Append `count` rows that have nothing of any kind."""
        self.frozen = None
        self._length += count
        for kind in self._kinds:
            kind.grow(count)

    def append(self, amounts: Sequence[int]) -> None:
        """Append one row."""
        self.grow()
        self[self._length - 1] = amounts

    def add(self, row: int, needs: Iterable[tuple[int, int]], sign: int) -> None:
        """Add (kind, amount) pairs to one row; `sign` -1 subtracts them."""
        self.frozen = None
        for number, amount in needs:
            self._widen(number + 1)
            kind = self._kinds[number]
            kind[row] = kind[row] + sign * amount

    def _widen(self, kinds: int) -> None:
        while len(self._kinds) < kinds:
            column = Column("i8")
            column.grow(self._length)
            self._kinds.append(column)

    def at(self, row: int, kind: int) -> int:
        """Return one amount."""
        amount: int = self._kinds[kind][row] if kind < len(self._kinds) else 0
        return amount

    def kind(self, number: int) -> Array:
        """Return the amounts of one kind, `[rows]`, read-only, valid until the next write."""
        return self.freeze().kind(number)

    def array(self) -> NDArray[np.int64]:
        """Return the whole matrix, `[rows, kinds]`."""
        return self.freeze().array()

    def freeze(self) -> FrozenVectors:
        """Return an immutable view, in O(pages written since the last call)."""
        if self.frozen is None:
            kinds = tuple(kind.freeze() for kind in self._kinds)
            self.frozen = FrozenVectors(kinds, self._length)
        return self.frozen
