"""Sorting of numbers against Python's stable sort, and minima of groups against `min`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.order import floats_in_order, in_order, least_of_each, nth_of_equals, ranks

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    st.lists(st.integers(0, 3)),
    st.lists(st.integers(-5000, 5000)),
    st.lists(INT64),
    st.lists(st.sampled_from([-(1 << 63), -1, 0, 1 << 11, 1 << 22, (1 << 63) - 1])),
)


@given(VALUES)
def test_in_order_sorts_stably(values: list[int]) -> None:
    order = in_order(np.array(values, np.int64))
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


@given(st.lists(st.one_of(st.sampled_from([0.0, -0.0, 1.5, -1.5]), st.floats(allow_nan=False))))
def test_floats_in_order_sorts_stably(values: list[float]) -> None:
    order = floats_in_order(np.array(values, np.float64))
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


@given(st.integers(0, 50).flatmap(lambda count: st.permutations(range(count))))
def test_ranks_are_the_positions_in_an_order(order: list[int]) -> None:
    found = ranks(np.array(order, np.int64)).tolist()
    assert found == [order.index(each) for each in range(len(order))]


@given(VALUES)
def test_nth_of_equals_counts_earlier_equal_values(values: list[int]) -> None:
    nth = nth_of_equals(np.array(values, np.int64))
    assert nth.tolist() == [values[:n].count(value) for n, value in enumerate(values)]


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.integers(-3, 3), INT64))), INT64)
def test_least_of_each_is_the_minimum_of_each_group(
    values: list[tuple[int, int]], otherwise: int
) -> None:
    group, value = np.array(values, np.int64).reshape(-1, 2).T
    expected = [
        min((value for group, value in values if group == each), default=otherwise)
        for each in range(6)
    ]
    assert least_of_each(group, value, 6, otherwise).tolist() == expected


@pytest.mark.parametrize(
    ("group", "value"), [([0, 2], [5, 5]), ([0, -1], [5, 5]), ([0], [5, 5]), ([0, 1], [5])]
)
def test_least_of_each_rejects_a_value_without_a_group(group: list[int], value: list[int]) -> None:
    with pytest.raises(ValueError, match="group"):
        least_of_each(np.array(group), np.array(value), 2, 0)
