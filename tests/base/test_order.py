"""Orders of whole numbers against Python's own stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.order import in_order, nth_of_equals

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    st.lists(st.integers(0, 3)),
    st.lists(st.integers(-5000, 5000)),
    st.lists(INT64),
    st.lists(st.sampled_from([-(1 << 63), -1, 0, 1 << 11, 1 << 22, (1 << 63) - 1])),
)


@given(VALUES)
def test_values_grow_and_equals_stay_as_given(values: list[int]) -> None:
    order = in_order(np.array(values, np.int64))
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


@given(VALUES)
def test_every_value_is_told_how_many_equals_come_before(values: list[int]) -> None:
    nth = nth_of_equals(np.array(values, np.int64))
    assert nth.tolist() == [values[:n].count(value) for n, value in enumerate(values)]
