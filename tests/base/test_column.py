"""Columns against plain lists: whatever is written, a frozen view keeps its values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.column import PAGE_ROWS, Column, FrozenColumn
from headgate.base.rng import Random

NUMBER = st.integers(-1000, 1000)
# Lengths around the ends of pages, where errors are likely.
LENGTH = st.one_of(
    st.integers(0, 5),
    st.integers(PAGE_ROWS - 2, PAGE_ROWS + 2),
    st.integers(2 * PAGE_ROWS - 1, 2 * PAGE_ROWS + 1),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NUMBER),
        st.tuples(st.just("fill"), NUMBER, LENGTH),
        st.tuples(st.just("extend"), NUMBER, LENGTH),
        st.tuples(st.just("grow"), LENGTH),
        st.tuples(st.just("write"), NUMBER, LENGTH, st.integers(0, 10**6)),
        st.tuples(st.just("set"), NUMBER, st.integers(0, 10**6)),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("read"), st.integers(0, 10**6), st.integers(0, 10**6)),
        st.tuples(st.just("pickle")),
    ),
    max_size=20,
)


def do(column: Column, model: list[int], step: tuple[Any, ...]) -> None:
    match step:
        case ("append", value):
            column.append(value)
            model.append(value)
        case ("fill", value, count):
            column.extend(value, count)
            model += [value] * count
        case ("extend", value, count):
            values = np.arange(value, value + count)
            column.extend(values, count)
            model += values.tolist()
        case ("grow", count):
            column.grow(count)
            model += [0] * count
        case ("write", value, count, at) if count <= len(model):
            start, values = at % (len(model) - count + 1), list(range(value, value + count))
            column.write(start, values, count)
            model[start : start + count] = values
        case ("set", value, at) if model:
            column[at % len(model)] = value
            model[at % len(model)] = value
        case ("read", one, other):
            start, stop = sorted((one % (len(model) + 1), other % (len(model) + 1)))
            assert column.span(start, stop).tolist() == model[start:stop]
            assert all(column[i] == model[i] for i in range(start, min(stop, start + 3)))


def assert_equal(frozen: FrozenColumn, model: list[int]) -> None:
    assert len(frozen) == len(model)
    assert frozen.array().tolist() == model
    for at in (0, 1, PAGE_ROWS - 1, PAGE_ROWS, len(model) - 1):
        if 0 <= at < len(model):
            assert frozen[at] == model[at]
            assert type(frozen[at]) is int
    for start in (0, 1, PAGE_ROWS - 1, PAGE_ROWS):
        if start < len(model):
            first = start - start % PAGE_ROWS
            pages = list(frozen.pages(start))
            assert [base for base, _ in pages] == list(range(first, len(model), PAGE_ROWS))
            assert [v for _, values in pages for v in values.tolist()] == model[first:]


@settings(max_examples=200)
@given(steps=STEPS)
def test_a_frozen_view_never_changes_and_the_column_equals_a_list(
    steps: list[tuple[Any, ...]],
) -> None:
    column, model = Column("i8"), list[int]()
    seen: list[tuple[FrozenColumn, list[int]]] = []
    for step in steps:
        if step == ("freeze",):
            seen.append((column.freeze(), list(model)))
        elif step == ("pickle",):
            column = pickle.loads(pickle.dumps(column))
        else:
            do(column, model, step)
        assert len(column) == len(model)
    assert column.array().tolist() == model
    for frozen, said in [*seen, (column.freeze(), model)]:
        assert_equal(frozen, said)
        assert_equal(pickle.loads(pickle.dumps(frozen)), said)


@pytest.mark.parametrize(("dtype", "blank"), [("u1", 3), ("i4", -1), ("f8", 0.5), ("O", ())])
def test_new_rows_hold_the_blank_also_where_others_were_written(dtype: str, blank: Any) -> None:
    column = Column(dtype, blank)
    column.grow(2)
    column[1] = 9
    seen = column.freeze()
    column.grow(2 * PAGE_ROWS)
    copy = seen.thaw()
    copy.grow(3)
    assert seen.array().tolist() == [blank, 9]
    assert column.array().tolist() == [blank, 9] + [blank] * 2 * PAGE_ROWS
    assert copy.array().tolist() == [blank, 9] + [blank] * 3
    assert column.freeze().take(np.array([1, PAGE_ROWS])).tolist() == [9, blank]


def test_pages_on_which_nothing_was_written_take_no_memory_of_their_own() -> None:
    one, other = Column("f8"), Column("f8")
    one.grow(3 * PAGE_ROWS)
    other.grow(3 * PAGE_ROWS)
    other[PAGE_ROWS] = 1.0
    pages = [[page for _, page in column.freeze().pages()] for column in (one, other)]
    shared = [np.shares_memory(a, b) for a, b in zip(*pages, strict=True)]
    assert shared == [True, False, True]
    assert one.freeze().changed(other.freeze()).tolist() == [PAGE_ROWS]


@pytest.mark.parametrize("start", [-1, 2, 4])
def test_rows_that_are_not_there_are_not_written(start: int) -> None:
    column = Column("i4")
    column.grow(3)
    with pytest.raises(IndexError):
        column.write(start, 7, 2)
    assert column.array().tolist() == [0, 0, 0]


def test_freezing_twice_without_a_write_gives_the_same_view() -> None:
    column = Column("i4")
    column.append(1)
    first = column.freeze()
    assert column.freeze() is first
    column[0] = 2
    assert column.freeze() is not first
    assert first[0] == 1


def test_a_write_copies_its_own_page_and_no_other() -> None:
    column = Column("i8")
    column.extend(7, 3 * PAGE_ROWS)
    before = [page for _, page in column.freeze().pages()]
    column[PAGE_ROWS] = 8
    after = [page for _, page in column.freeze().pages()]
    shared = [np.shares_memory(a, b) for a, b in zip(before, after, strict=True)]
    assert shared == [True, False, True]


@settings(max_examples=200)
@given(steps=STEPS, rows=st.lists(st.integers(0, 10**6)))
def test_changed_rows_of_two_views_are_those_written_between_them(
    steps: list[tuple[Any, ...]], rows: list[int]
) -> None:
    column, model = Column("i8"), list[int]()
    views = [(column.freeze(), list[int]())]
    for step in steps:
        if step[0] not in ("read", "pickle"):
            do(column, model, step)
            views.append((column.freeze(), list(model)))
    for before, said in views:
        for after, says in views[views.index((before, said)) :]:
            other = [row for row, value in enumerate(says) if said[row : row + 1] != [value]]
            assert after.changed(before).tolist() == other
    chosen = np.array([row % len(model) for row in rows if model], np.int64)
    assert views[-1][0].take(chosen).tolist() == [model[row] for row in chosen]


@given(seed=st.integers(0, 10**6), count=st.sampled_from((0, 1, 7, 500)), ascending=st.booleans())
def test_take_returns_rows_across_pages_in_the_given_order(
    seed: int, count: int, ascending: bool
) -> None:
    for pages in (1, 40):
        column, rows = Column("i4"), Random(seed).choices(range(pages * PAGE_ROWS), k=count)
        column.extend(np.arange(pages * PAGE_ROWS) * 3, pages * PAGE_ROWS)
        chosen = sorted(rows) if ascending else rows
        taken = column.freeze().take(np.array(chosen, np.int64))
        assert (taken.dtype, taken.tolist()) == (np.int32, [3 * row for row in chosen])
    assert column.freeze().take(range(5, 9)).tolist() == [15, 18, 21, 24]


@pytest.mark.parametrize("dtype", ["f8", "O"])
@pytest.mark.parametrize("row", [-1, 3, PAGE_ROWS, 1 << 62])
def test_take_raises_index_error_for_a_row_out_of_range(row: int, dtype: str) -> None:
    column = Column(dtype)
    column.extend(1.0, 3)
    with pytest.raises(IndexError):
        column.freeze().take(np.array([0, row]))


@pytest.mark.parametrize("dtype", ["u1", "bool", "i4", "i8", "f8", "O"])
def test_columns_of_every_dtype_give_the_same_rows(dtype: str) -> None:
    column = Column(dtype)
    column.extend(0, 2 * PAGE_ROWS)
    before, rows = column.freeze(), np.array([1, PAGE_ROWS + 1, 2 * PAGE_ROWS - 1])
    column[PAGE_ROWS + 1] = 1
    assert column.freeze().take(rows).tolist() == [0, 1, 0]
    assert before.take(rows).tolist() == [0, 0, 0]
    assert column.freeze().changed(before).tolist() == [PAGE_ROWS + 1]


def test_nan_that_stays_nan_is_unchanged() -> None:
    column = Column("f8")
    column.extend(np.nan, 3)
    before = column.freeze()
    column[1], column[2] = 1.0, np.nan
    assert column.freeze().changed(before).tolist() == [1]


@given(steps=STEPS, more=STEPS)
def test_writes_to_a_thawed_column_leave_the_frozen_one_unchanged(
    steps: list[tuple[Any, ...]], more: list[tuple[Any, ...]]
) -> None:
    column, model = Column("i8"), list[int]()
    for step in steps:
        do(column, model, step)
    frozen = column.freeze()
    copy, copied, said = frozen.thaw(), list(model), list(model)
    for step in more:
        do(copy, copied, step)
        do(column, model, step)
        do(column, model, ("set", -1, 0))
    assert copy.array().tolist() == copied
    assert column.array().tolist() == model
    assert_equal(frozen, said)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 4), (3, 4), (2, PAGE_ROWS + 1)])
def test_reading_a_span_with_rows_out_of_range_raises_index_error(start: int, stop: int) -> None:
    column = Column("i4")
    column.extend(7, 3)
    for view in (column, column.freeze()):
        with pytest.raises(IndexError, match=f"rows {start} to {stop} of 3"):
            view.span(start, stop)
    with pytest.raises(IndexError, match=f"rows {start} to {stop} of 3"):
        column.freeze().take(range(start, stop))
    assert column.span(3, 3).tolist() == column.span(2, 1).tolist() == []


def test_objects_are_stored_by_identity() -> None:
    column = Column("O")
    column.extend(None, 2)
    column[1] = (1, 2)
    column.append("text")
    assert column.freeze().array().tolist() == [None, (1, 2), "text"]


def test_an_empty_column_reads_as_empty() -> None:
    column = Column("f8")
    assert (len(column), column.array().tolist(), list(column.freeze().pages())) == (0, [], [])


@pytest.mark.parametrize("row", [-1, 3, 1023, 1024, 10**9])
def test_reading_or_writing_a_row_out_of_range_raises_index_error(row: int) -> None:
    column = Column("i4")
    column.extend(7, 3)
    for view in (column, column.freeze()):
        with pytest.raises(IndexError, match=f"row {row} of 3"):
            view[row]
    with pytest.raises(IndexError, match=f"row {row} of 3"):
        column[row] = 1
    assert column.array().tolist() == [7, 7, 7]
