"""Numbers by row against a plain dict."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.rows import RowMap

FAR = 1 << 62
ROWS = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 3000)), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "add"]), ROWS, st.booleans()), max_size=8)


def assert_equal(numbers: RowMap, model: dict[int, int], nothing: int) -> None:
    sought = [-FAR, -1, *range(25), *model, *(row - 1 for row in model), max(model, default=0) + 1]
    sought = [*sought[::-1], *sought, FAR, (1 << 63) - 1, -(1 << 63)]
    found = numbers[np.array(sought, np.int64)]
    assert found.tolist() == [model.get(row, nothing) for row in sought]


@given(nothing=st.sampled_from([-1, 0, 7]), steps=STEPS, seed=st.integers(0, 10**6))
def test_row_map_equals_a_dict(
    nothing: int, steps: list[tuple[str, list[int], bool]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    numbers, model = RowMap(nothing), dict[int, int]()
    for step, rows, one_for_all in steps:
        given_rows, each = np.array(rows, np.int64), rng.integers(-9, 9, len(rows))
        if one_for_all:
            each[:] = 5
        if step == "set":
            numbers[given_rows] = 5 if one_for_all else each
            model |= zip(rows, each.tolist(), strict=True)
        else:
            numbers.add(given_rows, 5 if one_for_all else each)
            for row, number in zip(rows, each.tolist(), strict=True):
                model[row] = model.get(row, nothing) + number
        assert_equal(numbers, model, nothing)


def test_rows_never_set_have_minus_one_by_default() -> None:
    assert RowMap()[np.array([3, 0])].tolist() == [-1, -1]


def test_a_numpy_scalar_is_set_for_all_rows() -> None:
    numbers = RowMap()
    numbers[np.arange(2)] = np.int64(4)
    numbers.add(np.arange(2), np.int64(1))
    assert numbers[np.arange(3)].tolist() == [5, 5, -1]


def test_rows_may_be_given_in_descending_order() -> None:
    numbers, rows = RowMap(), np.arange(5000)
    for row in rows[::-1]:
        numbers[np.array([row])] = int(row)
    assert (numbers[rows] == rows).all()


@pytest.mark.parametrize(
    "write",
    [
        lambda numbers: numbers.__setitem__(np.array([1, 500, -1]), 3),
        lambda numbers: numbers.__setitem__(np.array([1, 500, -1]), np.arange(3)),
        lambda numbers: numbers.add(np.array([1, 500, -1]), 3),
        lambda numbers: numbers.add(np.array([1, 500, -1]), np.arange(3)),
        lambda numbers: numbers.__setitem__(np.array([1, 500]), np.arange(3)),
        lambda numbers: numbers.__setitem__(np.array([1, 500]), np.arange(1)),
        lambda numbers: numbers.__setitem__(np.array([], np.int64), np.arange(1)),
        lambda numbers: numbers.add(np.array([1, 500]), np.arange(3)),
    ],
)
def test_a_rejected_write_changes_nothing(write: Callable[[RowMap], None]) -> None:
    numbers = RowMap()
    numbers[np.array([1, 2])] = np.array([8, 9])
    with pytest.raises(ValueError, match=r"a row is negative|each row needs one number"):
        write(numbers)
    assert_equal(numbers, {1: 8, 2: 9}, -1)
