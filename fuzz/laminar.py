"""Random laminar problems and changes, for the solver and OR-tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from random_numbers import RandomNumbers
from tests.flow.laminar_oracle import (
    Add,
    AddPlaces,
    Case,
    Change,
    Options,
    Remove,
    Replace,
    Reprice,
    RepriceAll,
    SetCapacity,
    Solve,
    play,
)

from headgate.flow import LaminarSolver

PLENTY = 1000


class Cases:
    """Draws cases: a forest, units with options in it, and changes."""

    def __init__(self, rng: RandomNumbers) -> None:
        self._rng = rng
        # A few cases are large, for code that solvers reach only after many steps of a search.
        self._most_places, self._most_units = rng.one_of(
            [(10, 14)] * 95 + [(40, 60)] * 4 + [(400, 800)]
        )
        self._all_fit = rng.chance(75)
        low, high = rng.one_of(
            [(0, 0), (0, 1), (0, 3), (0, 9), (-5, 20), (0, 40), (0, 10**6)]
            + [(2**50 - 3, 2**50), (-(2**50), 2**50)] * (self._most_units < 60)
        )
        self._cost: Callable[[], int] = lambda: rng.number(low, high)
        self._dear = high + 1
        self._most_options = rng.one_of([1, 2, 4, 7])
        self._most_room = rng.one_of([1, 1, 3, 8])
        self._hurried = rng.chance(25)

    def case(self) -> Case:
        """Return a case; place 0 is a pool, in most cases with room for all units."""
        rng = self._rng
        parent = self._classes() if rng.chance(20) else self._forest()
        capacity = [0 if place in parent else self._room() for place in range(len(parent))]
        capacity[0] = PLENTY if self._all_fit else rng.number(0, 2)
        self._places = len(parent)
        first = Add(self._units(self._most_units))
        return Case(
            parent=parent,
            capacity=capacity,
            changes=[first, *(self._change() for _ in range(rng.number(0, 16)))],
        )

    def _forest(self) -> list[int]:
        """Return parents in any order: trees of up to five levels, and single leaves."""
        rng, places = self._rng, self._rng.number(1, self._most_places)
        label, depth, parent = list(range(places)), [1], [-1] * places
        for place in range(1, places):
            other = rng.number(1, place)
            label[place], label[other] = label[other], label[place]
        roots = rng.one_of([10, 30, 80])
        for place in range(1, places):
            above = -1 if place == 1 or rng.chance(roots) else rng.number(1, place - 1)
            if above >= 0 and depth[above] == 5:
                above = -1
            depth.append(1 if above < 0 else depth[above] + 1)
            parent[label[place]] = above if above < 0 else label[above]
        return parent

    def _classes(self) -> list[int]:
        """Return parents: root, hubs of classes, (rack, class), nodes."""
        rng, parent = self._rng, [-1, -1]
        hubs = range(2, 2 + rng.number(1, 3))
        parent += [1] * len(hubs)
        racks = range(len(parent), len(parent) + rng.number(1, 4))
        parent += [rng.one_of(hubs) for _ in racks]
        return parent + [rng.one_of(racks) for _ in range(rng.number(1, 6))]

    def _room(self) -> int:
        return self._rng.number(0, self._most_room)

    def _units(self, most: int) -> list[Options]:
        return [self._unit() for _ in range(self._rng.number(0, most))]

    def _unit(self) -> Options:
        rng = self._rng
        options = [
            (rng.number(0, self._places), self._cost())
            for _ in range(rng.number(1, self._most_options))
        ]
        if rng.chance(20):  # like a unit that fits several classes: equal cost at several places
            options = [(place, options[0][1]) for place, _ in options]
        if self._all_fit:
            options.append((0, self._cost() if rng.chance(20) else self._dear))
        return options

    def _change(self) -> Change:
        rng, some = self._rng, 3 + self._most_units // 10
        match rng.number(0, 13):
            case 0 | 1:
                return Add(self._units(some))
            case 2:
                return Remove(rng.numbers(rng.number(1, some), 0, 999))
            case 3:
                few = rng.number(1, some)
                return Replace(rng.numbers(few, 0, 999), [self._unit() for _ in range(few)])
            case 4 | 5 | 6:
                few = rng.number(1, some)
                return SetCapacity(rng.numbers(few, 0, 999), [self._room() for _ in range(few)])
            case 7 if rng.chance(50):
                few = rng.number(1, 3)
                return AddPlaces(rng.numbers(few, -1, 9), [self._room() for _ in range(few)])
            case 8 if rng.chance(20):
                return Remove(list(range(1000)))
            case 8:
                few = rng.number(1, some)
                return RepriceAll(rng.numbers(few, 0, 999), [self._cost() for _ in range(few)])
            case 9 | 10:
                many = rng.number(1, self._most_units)
                costs = [self._cost() for _ in range(many)]
                return Reprice(rng.number(0, self._places), rng.numbers(many, 0, 999), costs)
        return Solve(hurried=self._hurried and rng.chance(50))


def draw(rng: RandomNumbers) -> Case:
    """Return a random case."""
    return Cases(rng).case()


def check(case: Case) -> None:
    """Raise AssertionError if the solver and OR-tools disagree."""
    play(case, LaminarSolver)


def smaller(case: Case) -> Iterator[Case]:
    """Yield cases with fewer changes, then with fewer units arriving, then with fewer options."""
    changes = case.changes
    for end in sorted({len(changes) // 4, len(changes) // 2} - {len(changes)}):
        yield replace(case, changes=changes[:end])
    for n in reversed(range(len(changes))):
        yield replace(case, changes=changes[:n] + changes[n + 1 :])
    for n, change in enumerate(changes):
        if isinstance(change, Add):
            for units in _fewer(change.units):
                yield replace(case, changes=[*changes[:n], Add(units), *changes[n + 1 :]])


def _fewer(units: list[Options]) -> Iterator[list[Options]]:
    """Yield the units without one, then without one option of one."""
    for n in range(len(units)):
        yield units[:n] + units[n + 1 :]
    for n, options in enumerate(units):
        for drop in range(len(options) if len(options) > 1 else 0):
            yield [*units[:n], options[:drop] + options[drop + 1 :], *units[n + 1 :]]
