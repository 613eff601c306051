"""Options put together part by part, against doing so unit by unit; and what does not match."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.flow import BadNetwork, OptionsPart, joined_options, options_of

DTYPE = st.sampled_from(["i8", "i4", "i2", "u4"])
Part = tuple[list[list[tuple[int, int]]], str, bool]


@st.composite
def parts_of(draw: st.DrawFn) -> tuple[int, list[Part]]:
    """Parts: the options (place, cost) of each unit, a type, and whether all have one place."""
    units = draw(st.integers(0, 4))
    number = st.integers(0, 99)
    one = st.lists(st.tuples(number, number), min_size=1, max_size=1)
    some = st.lists(st.tuples(number, number), max_size=3)
    each = st.sampled_from([one, some]).flatmap(
        lambda options: st.lists(options, min_size=units, max_size=units)
    )
    return units, draw(st.lists(st.tuples(each, DTYPE, st.booleans()), max_size=3))


def part_of(units: list[list[tuple[int, int]]], dtype: str, *, same: bool) -> OptionsPart:
    place = np.array([place for options in units for place, _ in options], dtype)
    cost = np.array([cost for options in units for _, cost in options], dtype)
    counts = np.array([len(options) for options in units], dtype)
    single = all(len(options) == 1 for options in units)
    return OptionsPart(None if single else counts, 7 if same else place, cost)


@given(parts_of())
def test_joined_options_are_grouped_by_unit_part_after_part(drawn: tuple[int, list[Part]]) -> None:
    units, parts = drawn
    parts_given = [part_of(of_units, dtype, same=same) for of_units, dtype, same in parts]
    offsets, place, cost = joined_options(units, parts_given)
    assert {one.dtype for one in (offsets, place, cost)} == {np.dtype(np.int64)}
    found = list(zip(place.tolist(), cost.tolist(), strict=True))
    assert [found[first:end] for first, end in pairwise(offsets.tolist())] == [
        [
            (7 if same else place, cost)
            for of_units, _, same in parts
            for place, cost in of_units[unit]
        ]
        for unit in range(units)
    ]


@pytest.mark.parametrize(
    ("counts", "place", "cost", "says"),
    [
        ([1], [1, 2], [3, 4], "1 counts where 2 are needed"),
        ([1, 2], [1, 2], [3, 4, 5], "2 places where 3 are needed"),
        ([1, 2], [1, 2, 3], [3, 4], "2 costs where 3 are needed"),
        (None, [1], [3, 4], "1 places where 2 are needed"),
        ([3, -1], [1, 2], [3, 4], "a unit with less than none"),
        ([1, 1 << 31], [1, 2], [3, 4], "2\\^31 and more"),
    ],
)
def test_parts_that_do_not_match_their_units_are_rejected(
    counts: list[int] | None, place: list[int], cost: list[int], says: str
) -> None:
    part: Any = OptionsPart(
        None if counts is None else np.array(counts), *map(np.array, (place, cost))
    )
    with pytest.raises(BadNetwork, match=says):
        joined_options(2, [part])
    with pytest.raises(BadNetwork, match="not that many units"):
        joined_options(-1, [])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_options_of_returns_the_indices_of_units_options(
    counts: list[int], data: st.DataObject
) -> None:
    offsets = np.cumsum([0, *counts])
    chosen = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=6))
    first, at = options_of(offsets, np.array(chosen, np.int64))
    own = [list(range(offsets[unit], offsets[unit + 1])) for unit in chosen]
    assert [at[a:b].tolist() for a, b in pairwise(first.tolist())] == own
