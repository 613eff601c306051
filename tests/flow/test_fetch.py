"""What units may take that fetch items, against looking at every leaf; and nonsense is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.flow import BadNetwork, fetch_options

DEARER, MOST = 2, 10


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Items: prices (on a leaf, in a region, elsewhere) and the leaves with copies."""

    items: list[tuple[tuple[int, ...], list[int]]]
    smallest: int
    own: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Units, the region of each leaf, and the places of leaves, regions and all there is."""

    units: list[Unit]
    region: list[int]
    at: list[list[int]]

    def arrays(self) -> dict[str, Any]:
        items = [item for unit in self.units for item in unit.items]
        flat = {
            "first": np.cumsum([0, *(len(unit.items) for unit in self.units)]),
            "price": [price for prices, _ in items for price in prices],
            "copy_first": np.cumsum([0, *(len(leaves) for _, leaves in items)]),
            "copies": [leaf for _, leaves in items for leaf in leaves],
            "region": self.region,
            "smallest": [unit.smallest for unit in self.units],
            "at": self.at,
        }
        width = len(self.units[0].own) if self.units else 0
        own = np.array([unit.own for unit in self.units], np.int64)
        own = own.reshape(len(self.units), width, 2)
        return {
            **{name: np.array(values, np.int64) for name, values in flat.items()},
            "dearer": DEARER,
            "most": MOST,
            "own_place": own[:, :, 0].copy(),
            "own_cost": own[:, :, 1].copy(),
        }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    region = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    rows, classes = len(region) + 4 + 1, draw(st.integers(0, 3))
    own = draw(st.integers(0, 2))
    prices = st.tuples(*[st.integers(0, 3)] * 3).map(lambda each: tuple(np.cumsum(each).tolist()))
    leaves = st.lists(st.integers(0, len(region) - 1), unique=True, max_size=5)
    unit = st.builds(
        Unit,
        items=st.lists(st.tuples(prices, leaves), max_size=4),
        smallest=st.integers(0, classes),
        own=st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), min_size=own, max_size=own),
    )
    place = st.integers(0, rows * classes).map(lambda number: number - 1)
    row = st.lists(place, min_size=classes, max_size=classes)
    at = draw(st.lists(row, min_size=rows, max_size=rows))
    return Case(units=draw(st.lists(unit, max_size=4)), region=region, at=at)


def looked_up(case: Case, unit: Unit) -> list[tuple[int, int]]:
    """Ask every item of a unit for its price at every place."""

    def price(*, leaf: int | None = None, region: int | None = None) -> int:
        return sum(
            prices[0] if leaf in leaves
            else prices[1] if region in [case.region[each] for each in leaves]
            else prices[2]
            for prices, leaves in unit.items
        )  # fmt: skip

    far, leaves = price(), range(len(case.region))
    near = {region: price(region=region) for region in sorted(set(case.region))}
    here = {leaf: price(leaf=leaf, region=case.region[leaf]) for leaf in leaves}
    by_region = sorted(leaves, key=lambda leaf: (case.region[leaf], leaf))
    groups = (
        [(leaf, here[leaf]) for leaf in by_region if here[leaf] < near[case.region[leaf]]],
        [(len(leaves) + region, each) for region, each in near.items() if each < far],
        [(len(case.at) - 1, far)],
    )
    told = [
        (case.at[row][kind], min(cost, MOST) + DEARER * (kind - unit.smallest))
        for group in groups
        for kind in range(unit.smallest, len(case.at[0]))
        for row, cost in group
        if case.at[row][kind] >= 0
    ]
    return told + unit.own


@given(cases())
def test_options_are_where_items_cost_less_than_around_and_anywhere(case: Case) -> None:
    offsets, place, cost = fetch_options(**case.arrays())
    ways = list(zip(place.tolist(), cost.tolist(), strict=True))
    told = [ways[first:end] for first, end in pairwise(offsets.tolist())]
    assert told == [looked_up(case, unit) for unit in case.units]


FINE = Case(
    units=[Unit(items=[((0, 1, 2), [0]), ((1, 1, 1), [0, 1])], smallest=0, own=[(1, 1)])],
    region=[0, 0],
    at=[[0, 1]] * 4,
)


@pytest.mark.parametrize(
    ("which", "values", "says"),
    [
        ("first", [0, 1], "`first`"),
        ("first", [1, 2], "`first`"),
        ("first", [], "`first`"),
        ("price", [0, 1, 2, 1, 1], "three prices"),
        ("price", [0, 1, 2, 1, 1, 0], "grow"),
        ("price", [-1, 1, 2, 1, 1, 1], "grow"),
        ("price", [0, 1, 2, 1, 1, 1 << 41], "grow"),
        ("copy_first", [0, 2, 1, 3], "`copy_first`"),
        ("copy_first", [0, 3], "`copy_first`"),
        ("copies", [0, 0, 2], "no leaf"),
        ("copies", [0, 0, -1], "no leaf"),
        ("region", [0, -1], "no region"),
        ("region", [0, 1], "no region"),
        ("at", [[0]] * 2, "not a row for each"),
        ("smallest", [0, 0], "smallest class for each"),
        ("smallest", [-1], "negative"),
        ("dearer", -1, "less than one below"),
        ("dearer", 1 << 40, "less than one below"),
        ("own_cost", [[1, 1]], "of its own"),
        ("own_cost", [[1], [1]], "of its own"),
    ],
)
def test_what_cannot_be_is_refused(which: str, values: Any, says: str) -> None:
    arrays = FINE.arrays()
    fetch_options(**arrays)
    arrays[which] = values if isinstance(values, int) else np.array(values, np.int64)
    with pytest.raises(BadNetwork, match=says):
        fetch_options(**arrays)


def test_nobody_fetches_nothing() -> None:
    offsets, place, cost = fetch_options(**replace(FINE, units=[]).arrays())
    assert [offsets.tolist(), place.tolist(), cost.tolist()] == [[0], [], []]
