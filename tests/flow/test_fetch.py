"""What fetching costs where copies are near, against looking at every leaf."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.flow import BadNetwork, Ints, fetch_prices


@dataclass(frozen=True, kw_only=True)
class Case:
    """Items of units: prices (on a leaf, in a region, elsewhere) and the leaves with copies."""

    units: list[list[tuple[tuple[int, ...], list[int]]]]
    region: list[int]

    def arrays(self) -> list[Ints]:
        items = [item for unit in self.units for item in unit]
        return [
            np.array(values, np.int64)
            for values in (
                np.cumsum([0, *map(len, self.units)]),
                [price for prices, _ in items for price in prices],
                np.cumsum([0, *(len(leaves) for _, leaves in items)]),
                [leaf for _, leaves in items for leaf in leaves],
                self.region,
            )
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    region = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    prices = st.tuples(*[st.integers(0, 3)] * 3).map(lambda each: tuple(np.cumsum(each).tolist()))
    leaves = st.lists(st.integers(0, len(region) - 1), unique=True, max_size=5)
    unit = st.lists(st.tuples(prices, leaves), max_size=4)
    return Case(units=draw(st.lists(unit, max_size=4)), region=region)


def looked_up(case: Case) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[int]]:
    """Ask every item for its price at every place."""
    regions = sorted(set(case.region))
    on_leaf, in_region, anywhere = [], [], []
    for number, unit in enumerate(case.units):
        far = sum(prices[2] for prices, _ in unit)
        anywhere.append(far)
        for region in regions:
            near = sum(
                prices[1 if any(case.region[leaf] == region for leaf in leaves) else 2]
                for prices, leaves in unit
            )
            if near < far:
                in_region.append((number, region, near))
            for leaf in (leaf for leaf, where in enumerate(case.region) if where == region):
                here = sum(
                    prices[0] if leaf in leaves
                    else prices[1] if any(case.region[other] == region for other in leaves)
                    else prices[2]
                    for prices, leaves in unit
                )  # fmt: skip
                if here < near:
                    on_leaf.append((number, leaf, here))
    return on_leaf, in_region, anywhere


@given(cases())
def test_prices_are_what_every_item_costs_at_every_place(case: Case) -> None:
    on_leaf, in_region, anywhere = fetch_prices(*case.arrays())
    told = [list(zip(*(a.tolist() for a in part), strict=True)) for part in (on_leaf, in_region)]
    assert (*told, anywhere.tolist()) == looked_up(case)


FINE = Case(units=[[((0, 1, 2), [0]), ((1, 1, 1), [0, 1])]], region=[0, 0])


@pytest.mark.parametrize(
    ("which", "values", "says"),
    [
        (0, [0, 1], "`first`"),
        (0, [1, 2], "`first`"),
        (0, [], "`first`"),
        (1, [0, 1, 2, 1, 1], "three prices"),
        (1, [0, 1, 2, 1, 1, 0], "grow"),
        (1, [-1, 1, 2, 1, 1, 1], "grow"),
        (1, [0, 1, 2, 1, 1, 1 << 41], "grow"),
        (2, [0, 2, 1, 3], "`copy_first`"),
        (2, [0, 3], "`copy_first`"),
        (3, [0, 0, 2], "no leaf"),
        (3, [0, 0, -1], "no leaf"),
        (4, [0, -1], "no region"),
    ],
)
def test_what_cannot_be_is_refused(which: int, values: list[int], says: str) -> None:
    arrays = FINE.arrays()
    fetch_prices(*arrays)
    arrays[which] = np.array(values, np.int64)
    with pytest.raises(BadNetwork, match=says):
        fetch_prices(*arrays)


def test_nobody_fetches_nothing() -> None:
    empty = replace(FINE, units=[]).arrays()
    on_leaf, in_region, anywhere = fetch_prices(*empty)
    assert [len(each) for each in (*on_leaf, *in_region, anywhere)] == [0] * 7
