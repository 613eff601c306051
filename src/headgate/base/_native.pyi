"""The compiled part of what everything stands on; its sources are in `native/`."""

from headgate.base.column import Array
from headgate.base.lists import Ints

def take(pages: tuple[Array, ...], rows: Ints, length: int, shift: int, taken: Array) -> None:
    """Read some of `length` rows on pages of `2^shift` into `taken`; raises IndexError.

    Items are of 1, 4 or 8 bytes. O(rows + pages).
    """

def differing(
    pages: tuple[Array, ...],
    others: tuple[Array, ...],
    length: int,
    shift: int,
    item_bytes: int,
) -> Ints:
    """Return those of the first `length` rows that differ in their bits, ascending.

    Items are of 1, 4 or 8 bytes. O(pages + rows of those that are not the same object).
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
    """Return offsets `[rows + 1]` and numbers, list after list; raises IndexError.

    The list of a row is `count` (i4) of the `held` numbers (i4) from `first` (i8) on.
    O(rows + numbers returned + pages).
    """

def in_order(values: Ints) -> Ints:
    """Return the indices of whole numbers by growing value; of equals, as given.

    A radix sort: several times as fast as a stable sort that compares.
    """

def nth_of_equals(values: Ints) -> Ints:
    """Return how many equal values come before each one."""

def least_of_each(group: Ints, value: Ints, groups: int, otherwise: int) -> Ints:
    """Return the least value of each group, `[groups]`; `otherwise` where it has none.

    Raises ValueError where lengths differ or a group is none of these. O(values + groups).
    """

class RowMap:
    """Numbers by row; `nothing` for rows that were given none. Memory follows the range of rows.

    Writing raises ValueError, and changes nothing, where a row is negative or where there is
    neither one number for all rows nor one for each. It is O(rows), and now and then O(range).
    """

    def __init__(self, nothing: int = -1) -> None:
        """Begin with no numbers."""

    def __getitem__(self, rows: Ints) -> Ints:
        """Return the numbers of rows, in any order; rows may be any whole numbers. O(rows)."""

    def __setitem__(self, rows: Ints, numbers: Ints | int) -> None:
        """Give rows numbers; of equal rows the last one wins."""

    def add(self, rows: Ints, numbers: Ints | int) -> None:
        """Add to the numbers of rows, `nothing` at first; a row may be named several times."""
