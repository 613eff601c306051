"""The compiled part of the lowest layer; its sources are in `native/`."""

from headgate.base.arrays import Ints
from headgate.base.column import Array

def take(pages: tuple[Array, ...], rows: Ints, length: int, shift: int, taken: Array) -> None:
    """Copy these of `length` rows, on pages of `2^shift` rows, into `taken`; raises IndexError.

    Items are of 1, 4 or 8 bytes. O(rows + pages).
    """

def differing(
    pages: tuple[Array, ...],
    others: tuple[Array, ...],
    length: int,
    shift: int,
    item_bytes: int,
) -> Ints:
    """Return the rows below `length` whose bits differ, ascending.

    Items are of 1, 4 or 8 bytes. O(pages + rows of pages that are not the same object).
    """

def lists(
    first: tuple[Array, ...],
    count: tuple[Array, ...],
    length: int,
    numbers: tuple[Array, ...],
    held: int,
    rows: Ints,
    shift: int,
) -> tuple[Ints, Ints]:
    """Return the lists of these rows, in CSR form: offsets `[rows + 1]` and numbers.

    The list of a row is `count` (i4) of the `held` numbers (i4) from `first` (i8) on.
    Raises IndexError. O(rows + numbers returned + pages).
    """

def in_order(values: Ints) -> Ints:
    """Return the indices that sort integers, stably: `numpy.argsort(values, kind="stable")`.

    A radix sort, several times as fast as NumPy's; O(values x digits).
    """

def nth_of_equals(values: Ints) -> Ints:
    """Return for each value how many equal ones come before it. O(values x digits)."""

def least_of_each(group: Ints, value: Ints, groups: int, otherwise: int) -> Ints:
    """Return the minimum of each group, `[groups]`; `otherwise` for an empty one.

    Raises ValueError where lengths differ or a group is out of range. O(values + groups).
    """

class RowMap:
    """Numbers by row; `nothing` for rows that were never set. Memory is O(range of the rows set).

    Writing raises ValueError, and changes nothing, where a row is negative or where there is
    neither one number for all rows nor one for each. Writing is amortised O(rows).
    """

    def __init__(self, nothing: int = -1) -> None:
        """Start empty."""

    def __deepcopy__(self, memo: object) -> RowMap: ...
    def __getitem__(self, rows: Ints) -> Ints:
        """Return the numbers of rows, in any order; rows may be any integers. O(rows)."""

    def __setitem__(self, rows: Ints, numbers: Ints | int) -> None:
        """Set the numbers of rows; of equal rows the last one wins."""

    def add(self, rows: Ints, numbers: Ints | int) -> None:
        """Add to the numbers of rows, which start at `nothing`; a row may occur several times."""
