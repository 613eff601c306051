"""Hypothesis strategies for laminar problems and changes to them."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.flow.laminar_oracle import (
    Add,
    AddPlaces,
    Case,
    Change,
    Options,
    Problem,
    Remove,
    Replace,
    Reprice,
    RepriceAll,
    SetCapacity,
    Solve,
    problem_of,
)

DEEPEST = 5
PLENTY = 1000

COSTS = {
    "nothing": st.just(0),
    "ties": st.integers(0, 2),
    "small": st.integers(-5, 20),
    "large": st.integers(2**50 - 2**10, 2**50) | st.integers(-(2**50), 2**50),
}


@st.composite
def forests(draw: st.DrawFn, *, most_places: int = 12, pool: int) -> tuple[list[int], list[int]]:
    """Return parents and capacities: a pool of its own at place 0, then trees in any order."""
    places = draw(st.integers(1, most_places))
    label = [0, *draw(st.permutations(range(1, places)))]
    depth, parent = [1], [-1] * places
    for place in range(1, places):
        above = draw(st.sampled_from([-1, *(p for p in range(1, place) if depth[p] < DEEPEST)]))
        depth.append(1 if above < 0 else depth[above] + 1)
        parent[label[place]] = above if above < 0 else label[above]
    leaf = set(range(places)) - set(parent)
    capacity = [draw(st.integers(0, 3)) if place in leaf else 0 for place in range(places)]
    capacity[0] = pool
    return parent, capacity


@st.composite
def options(draw: st.DrawFn, cost: st.SearchStrategy[int], *, all_fit: bool) -> Options:
    """Return options of one unit; where all fit, one at the pool, usually an expensive one."""
    found = draw(st.lists(st.tuples(st.integers(0, 30), cost), min_size=not all_fit, max_size=4))
    if all_fit:
        dear = draw(st.booleans()) or not found
        found.append((0, max(c for _, c in [*found, (0, 0)]) + 1 if dear else draw(cost)))
    return draw(st.permutations(found))


@st.composite
def of_all_classes(draw: st.DrawFn, cost: st.SearchStrategy[int], *, all_fit: bool) -> Options:
    """Return options at several places at the same cost, as of a unit that accepts classes."""
    places = draw(st.lists(st.integers(0, 30), min_size=2, max_size=4))
    price = draw(cost)
    return [*((place, price) for place in places), *([(0, price + 1)] if all_fit else [])]


def units(cost: st.SearchStrategy[int], *, all_fit: bool) -> st.SearchStrategy[Options]:
    return options(cost, all_fit=all_fit) | of_all_classes(cost, all_fit=all_fit)


@st.composite
def problems(draw: st.DrawFn, *, most_places: int = 12, most_units: int = 12) -> Problem:
    """Return a problem; in a third of them some units may not fit."""
    all_fit = draw(st.integers(0, 2)) > 0
    pool = PLENTY if all_fit else draw(st.integers(0, 2))
    parent, capacity = draw(forests(most_places=most_places, pool=pool))
    cost = COSTS[draw(st.sampled_from(sorted(COSTS)))]
    wanted = draw(st.lists(units(cost, all_fit=all_fit), min_size=1, max_size=most_units))
    return problem_of(
        parent, capacity, [[(p % len(parent), c) for p, c in some] for some in wanted]
    )


@st.composite
def cases(draw: st.DrawFn, *, all_fit: bool, budgets: bool = False) -> Case:
    """Return changes; between two solves there may be none, one or several."""
    pool = PLENTY if all_fit else draw(st.integers(0, 2))
    parent, capacity = draw(forests(pool=pool))
    cost = COSTS[draw(st.sampled_from(sorted(COSTS)))]
    numbers = st.integers(0, 100)
    unit = units(cost, all_fit=all_fit)
    room = st.integers(0, 4)
    change: st.SearchStrategy[Change] = st.one_of(
        st.builds(Add, st.lists(unit, max_size=6)),
        st.builds(Remove, st.lists(numbers, max_size=3)),
        st.builds(Remove, st.just(list(range(100)))),
        st.builds(lambda pairs: Replace(*map(list, zip(*pairs, strict=True))), _pairs(unit)),
        st.builds(
            lambda place, pairs: Reprice(place, *map(list, zip(*pairs, strict=True))),
            numbers,
            _pairs(cost, most=9),
        ),
        st.builds(lambda pairs: RepriceAll(*map(list, zip(*pairs, strict=True))), _pairs(cost)),
        st.builds(lambda pairs: SetCapacity(*map(list, zip(*pairs, strict=True))), _pairs(room)),
        st.builds(
            lambda pairs: AddPlaces(*map(list, zip(*pairs, strict=True))),
            st.lists(st.tuples(st.integers(-1, 9), room), min_size=1, max_size=4),
        ),
        st.builds(Solve, st.booleans() if budgets else st.just(False)),
    )
    first = Add(draw(st.lists(unit, max_size=12)))
    return Case(
        parent=parent, capacity=capacity, changes=[first, *draw(st.lists(change, max_size=12))]
    )


def _pairs(
    second: st.SearchStrategy[object], *, most: int = 3
) -> st.SearchStrategy[list[tuple[int, object]]]:
    return st.lists(st.tuples(st.integers(0, 100), second), min_size=1, max_size=most)
