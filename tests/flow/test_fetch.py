"""Options of units that fetch items, against a look at every leaf; bad input is rejected."""

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
    """Items: sizes and the leaves with copies."""

    items: list[tuple[int, list[int]]]
    type: int
    shortest: int
    own: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Units, prices (on a leaf, in a region, elsewhere), the region of each leaf, and places.

    These are of leaves, regions and all there is.
    """

    units: list[Unit]
    price: list[float]
    region: list[int]
    at: list[list[int]]
    accepts: list[list[bool]]
    windows: int = 1

    def arrays(self) -> dict[str, Any]:
        items = [item for unit in self.units for item in unit.items]
        flat = {
            "first": np.cumsum([0, *(len(unit.items) for unit in self.units)]),
            "size": [size for size, _ in items],
            "copy_first": np.cumsum([0, *(len(leaves) for _, leaves in items)]),
            "copies": [leaf for _, leaves in items for leaf in leaves],
            "region": self.region,
            "unit_type": [unit.type for unit in self.units],
            "shortest": [unit.shortest for unit in self.units],
            "places": self.at,
        }
        width = len(self.units[0].own) if self.units else 0
        own = np.array([unit.own for unit in self.units], np.int64)
        own = own.reshape(len(self.units), width, 2)
        return {
            **{name: np.array(values, np.int64) for name, values in flat.items()},
            "price": self.price,
            "accepts": np.array(self.accepts, bool).reshape(len(self.accepts), -1),
            "windows": self.windows,
            "dearer": DEARER,
            "most": MOST,
            "own_place": own[:, :, 0].copy(),
            "own_cost": own[:, :, 1].copy(),
        }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    region = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    rows, classes = len(region) + 4 + 1, draw(st.integers(0, 3))
    windows = draw(st.integers(1, 3))
    own = draw(st.integers(0, 2))
    halves = st.integers(0, 3).map(lambda number: number / 2)
    price = np.cumsum(draw(st.tuples(*[halves] * 3))).tolist()
    leaves = st.lists(st.integers(0, len(region) - 1), unique=True, max_size=5)
    unit = st.builds(
        Unit,
        items=st.lists(st.tuples(st.integers(0, 5), leaves), max_size=4),
        type=st.integers(0, 2),
        shortest=st.integers(0, windows),
        own=st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), min_size=own, max_size=own),
    )
    kinds = classes * windows
    place = st.integers(0, rows * kinds).map(lambda number: number - 1)
    row = st.lists(place, min_size=kinds, max_size=kinds)
    at = draw(st.lists(row, min_size=rows, max_size=rows))
    units = draw(st.lists(unit, max_size=4))
    accepted = st.lists(st.booleans(), min_size=classes, max_size=classes)
    accepts = draw(st.lists(accepted, min_size=3, max_size=3))
    return Case(units=units, price=price, region=region, at=at, accepts=accepts, windows=windows)


def looked_up(case: Case, unit: Unit) -> list[tuple[int, int]]:
    """Return the options from the price of every item of a unit at every place."""

    def price(*, leaf: int | None = None, region: int | None = None) -> int:
        total = 0
        for size, leaves in unit.items:
            regions = [case.region[each] for each in leaves]
            far = 0 if leaf in leaves else 1 if region in regions else 2
            total += round(min(size * case.price[far], MOST))
        return total

    far, leaves = price(), range(len(case.region))
    near = {region: price(region=region) for region in sorted(set(case.region))}
    here = {leaf: price(leaf=leaf, region=case.region[leaf]) for leaf in leaves}
    by_region = sorted(leaves, key=lambda leaf: (case.region[leaf], leaf))
    groups = (
        [(leaf, here[leaf]) for leaf in by_region if here[leaf] < near[case.region[leaf]]],
        [(len(leaves) + region, each) for region, each in near.items() if each < far],
        [(len(case.at) - 1, far)],
    )
    classes = [kind for kind, accepted in enumerate(case.accepts[unit.type]) if accepted]
    priced = [
        (place, min(cost, MOST) + DEARER * (below + (window + 1 < case.windows)))
        for group in groups
        for below, kind in enumerate(classes)
        for window in range(unit.shortest, case.windows)
        for row, cost in group
        if (place := case.at[row][kind * case.windows + window]) >= 0
    ]
    return priced + unit.own


@given(cases())
def test_options_are_where_items_cost_less_than_around(case: Case) -> None:
    offsets, place, cost = fetch_options(**case.arrays())
    options = list(zip(place.tolist(), cost.tolist(), strict=True))
    found = [options[first:end] for first, end in pairwise(offsets.tolist())]
    assert found == [looked_up(case, unit) for unit in case.units]


FINE = Case(
    units=[Unit(items=[(1, [0]), (2, [0, 1])], type=0, shortest=0, own=[(1, 1)])],
    price=[0.0, 1.0, 2.5],
    region=[0, 0],
    at=[[0, 1]] * 4,
    accepts=[[True, True]],
)


@pytest.mark.parametrize(
    ("which", "values", "says"),
    [
        ("first", [0, 1], "`first`"),
        ("first", [1, 2], "`first`"),
        ("first", [], "`first`"),
        ("size", [1], "`first`"),
        ("size", [1, -1], "negative"),
        ("price", [0.0, 2.0, 1.0], "grow"),
        ("price", [-1.0, 1.0, 2.0], "grow"),
        ("price", [0.0, 1.0, float("nan")], "grow"),
        ("price", [0.0, 1.0, float("inf")], "finite"),
        ("most", 1 << 41, "2\\^40"),
        ("most", -1, "2\\^40"),
        ("copy_first", [0, 2, 1, 3], "`copy_first`"),
        ("copy_first", [0, 3], "`copy_first`"),
        ("copies", [0, 0, 2], "no leaf"),
        ("copies", [0, 0, -1], "no leaf"),
        ("region", [0, -1], "no region"),
        ("region", [0, 1], "no region"),
        ("places", [[0]] * 2, "not a row for each"),
        ("unit_type", [0, 0], "type for each"),
        ("unit_type", [-1], "no row"),
        ("unit_type", [1], "no row"),
        ("shortest", [0, 0], "shortest window for each"),
        ("shortest", [-1], "negative"),
        ("windows", 0, "column for each window"),
        ("windows", 3, "column for each window"),
        ("dearer", -1, "less than one below"),
        ("dearer", 1 << 40, "less than one below"),
        ("own_cost", [[1, 1]], "of its own"),
        ("own_cost", [[1], [1]], "of its own"),
    ],
)
def test_invalid_arguments_are_rejected(which: str, values: Any, says: str) -> None:
    arrays = FINE.arrays()
    fetch_options(**arrays)
    is_array = isinstance(values, list) and which != "price"
    arrays[which] = np.array(values, np.int64) if is_array else values
    with pytest.raises(BadNetwork, match=says):
        fetch_options(**arrays)


def test_no_units_and_no_items_give_no_options() -> None:
    offsets, place, cost = fetch_options(**replace(FINE, units=[]).arrays())
    assert [offsets.tolist(), place.tolist(), cost.tolist()] == [[0], [], []]
