"""Columns of lists against plain lists of tuples."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.column import PAGE_ROWS, Column
from headgate.base.lists import FrozenLists, Lists

Rows = list[tuple[int, ...]]
LIST = st.lists(st.integers(0, 9), max_size=3).map(tuple)
WRITES = st.lists(st.tuples(st.integers(0, 12), LIST), max_size=20)


def write(lists: Lists, model: Rows, writes: list[tuple[int, tuple[int, ...]]]) -> None:
    for row, numbers in writes:
        if row < len(model):
            lists[row] = model[row] = numbers
        else:
            lists.append(numbers)
            model.append(numbers)


def assert_equal(frozen: FrozenLists, model: Rows, rows: list[int]) -> None:
    assert (len(frozen), frozen.array().tolist()) == (len(model), model)
    chosen = [model[row] for row in rows]
    assert [frozen[row] for row in rows] == chosen
    offsets, numbers = frozen.flat(np.array(rows, np.int64))
    assert offsets.tolist() == np.cumsum([0, *map(len, chosen)]).tolist()
    assert numbers.tolist() == list(chain.from_iterable(chosen))


@given(first=WRITES, then=WRITES, copied=WRITES, seed=st.integers(0, 10**6))
def test_lists_equal_a_model_and_views_and_copies_are_independent(
    first: list[tuple[int, tuple[int, ...]]],
    then: list[tuple[int, tuple[int, ...]]],
    copied: list[tuple[int, tuple[int, ...]]],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    lists, model = Lists(), Rows()
    write(lists, model, first)
    before, said = lists.freeze(), list(model)
    copy, own = before.thaw(), list(model)
    write(lists, model, then)
    write(copy, own, copied)
    after = lists.freeze()
    for frozen, expected in ((before, said), (after, model), (copy.freeze(), own)):
        assert_equal(
            frozen, expected, rng.integers(0, max(len(expected), 1), 5 * bool(expected)).tolist()
        )

    changed = after.changed(before).tolist()
    differs = [row for row, numbers in enumerate(model) if said[row : row + 1] != [numbers]]
    assert set(differs) <= set(changed)
    assert changed == sorted(set(changed))
    written = {min(row, len(said) + n) for n, (row, _) in enumerate(then)}
    assert set(changed) <= written | set(range(len(said), len(model)))


def lists_on_pages() -> tuple[FrozenLists, Rows]:
    """Return lists of 0 to 4 numbers on several pages; some lists span two pages."""
    lists, model = Lists(), Rows()
    for row in range(2 * PAGE_ROWS + 10):
        model.append(tuple(range(row, row + row % 5)))
        lists.append(model[-1])
    return lists.freeze(), model


def test_flat_reads_lists_across_pages_in_any_order_and_repeatedly() -> None:
    frozen, model = lists_on_pages()
    rng = np.random.default_rng(1)
    assert_equal(frozen, model, [])
    assert_equal(frozen, model, list(range(len(model))))
    assert_equal(frozen, model, rng.permutation(len(model)).tolist())
    assert_equal(frozen, model, [PAGE_ROWS, 7, PAGE_ROWS, PAGE_ROWS - 1, 7, 0, 0, len(model) - 1])


@pytest.mark.parametrize("row", [-1, 2 * PAGE_ROWS + 10, 1 << 62, -(1 << 63)])
def test_flat_raises_index_error_for_a_row_out_of_range(row: int) -> None:
    frozen, _ = lists_on_pages()
    with pytest.raises(IndexError, match="a row is not of this column"):
        frozen.flat(np.array([3, row]))


@pytest.mark.parametrize(
    ("first", "count"), [(2, 2), (4, 0), (-1, 1), (0, -1), ((1 << 63) - 1, 1), (0, (1 << 31) - 1)]
)
def test_flat_raises_index_error_for_numbers_out_of_range(first: int, count: int) -> None:
    held, firsts, counts = Column("i4"), Column("i8"), Column("i4")
    held.extend(np.arange(3), 3)
    firsts.append(first)
    counts.append(count)
    with pytest.raises(IndexError, match="a list is not of this column"):
        held.freeze().lists(firsts.freeze(), counts.freeze(), np.array([0]))
