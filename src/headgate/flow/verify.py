"""Proof that a flow is optimal: every condition, checked on every arc, by code of its own.

What is checked is linear programming duality. A feasible flow and one price per vertex (the
potential, what one more unit from there costs) prove each other optimal when no unit could go
cheaper along any arc with capacity left, and none is on an arc that costs more than it should.
Nothing here is shared with the solvers: the conditions are those of the network, not of a way to
solve it. Sums and products are exact, whatever their size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from headgate.flow.network import BadNetwork, Ints

_SAFE = 1 << 62
_FAR = np.iinfo(np.int64).max

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A condition that is broken: how often, and where first (the index of `what`)."""

    kind: str
    what: str
    count: int
    first: int

    def __str__(self) -> str:
        """Return the fault as a line of a message has it."""
        return f"{self.kind}: {self.count}, first at {self.what} {self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a check found; a clean one is a proof that the flow is optimal.

    `gap` is what the flow costs above the bound that its prices prove: the optimum is at most so
    much cheaper. It is 0 when clean, and means nothing where the flow is not feasible. `unplaced`
    counts the units of a laminar problem that have no place.
    """

    gap: int
    faults: tuple[Fault, ...] = ()
    unplaced: int = 0

    @property
    def violations(self) -> int:
        """The number of broken conditions, all kinds together."""
        return sum(fault.count for fault in self.faults)

    @property
    def clean(self) -> bool:
        """Whether every condition holds, and so the flow is optimal."""
        return not self.faults and self.gap == 0

    def __str__(self) -> str:
        """Return what was found, for a message."""
        if self.clean:
            return "optimal: every condition holds, gap 0"
        return "; ".join([*map(str, self.faults), f"gap {self.gap}"])


# ---------------------------------------------------------------- any network


def verify(
    tail: Ints,
    head: Ints,
    capacity: Ints,
    cost: Ints,
    supply: Ints,
    flow: Ints,
    potential: Ints,
) -> Certificate:
    """Check that `flow` is feasible and that `potential` proves it the cheapest.

    All arrays are int64; `supply` and `potential` have shape `[vertices]`, the others `[arcs]`.
    With the reduced cost `cost + potential[head] - potential[tail]`, as of a `Solution`:

    * conservation: what leaves a vertex, less what enters it, is its supply;
    * capacity: `0 <= flow <= capacity`;
    * price: the reduced cost is at least 0 where capacity is left, and at most 0 where there is
      flow.

    Proof: any feasible flow x costs `sum(supply * potential) + sum(reduced * x)`. The first sum is
    the same for all; each term of the second is, by the conditions on price, least at `flow`. The
    gap is the cost of `flow` less that bound, with each term at its least between 0 and capacity.

    O(arcs). Raises BadNetwork for arrays of different lengths and vertices that are not there.
    """
    _same_length("arcs", tail=tail, head=head, capacity=capacity, cost=cost, flow=flow)
    _same_length("vertices", supply=supply, potential=potential)
    _within("tail", tail, 0, len(supply))
    _within("head", head, 0, len(supply))

    number = _type_for(_largest(flow) * len(flow) + _largest(supply))
    kept = supply.astype(number)
    np.subtract.at(kept, tail, flow.astype(number, copy=False))
    np.add.at(kept, head, flow.astype(number, copy=False))

    spread = int(potential.max(initial=0)) - int(potential.min(initial=0))
    price = potential.astype(_type_for(_largest(cost) + spread), copy=False)
    reduced = cost + (price[head] - price[tail])
    dear, cheap = reduced > 0, reduced < 0
    bound = _dot(supply, price) + _dot(capacity[cheap], reduced[cheap])
    return Certificate(
        gap=_dot(cost, flow) - bound,
        faults=_faults(
            ("conservation", "vertex", kept != 0),
            ("capacity", "arc", (flow < 0) | (flow > capacity)),
            ("price", "arc", (dear & (flow > 0)) | (cheap & (flow < capacity))),
        ),
    )


# ---------------------------------------------------------------- laminar problems


def verify_laminar(
    parent: Ints,
    capacity: Ints,
    offsets: Ints,
    place: Ints,
    cost: Ints,
    chosen_place: Ints,
    leaf: Ints,
    prices: Ints,
) -> Certificate:
    """Check a plan of a laminar problem, and that `prices` prove it the cheapest.

    `parent, capacity, prices` have shape `[places]` (a place without children is a leaf, and only
    leaves have capacity); unit u has the options `place, cost[offsets[u] : offsets[u + 1]]`;
    `chosen_place, leaf` have shape `[units]`, -1 where a unit has no place. A unit that chose a
    place with several options there pays the cheapest of them.

    The network meant has the arcs unit -> place (capacity 1, the option's cost), parent -> child
    (no limit, cost 0) and leaf -> sink (its capacity, cost 0); the sink's price is 0. Checked are

    * option: the place chosen is an option of its unit;
    * leaf: it has no children and lies in the subtree of the place chosen; both are there or none;
    * capacity: no leaf holds more units than it has room for;
    * tree: no place has a higher price than its child, and the same one where units go through;
    * spare: no price is below 0, and a leaf with room left has price 0;
    * price: no option of a unit has less cost + price than the one chosen;
    * room: units without a place are beyond reach of all room left, however the others move: the
      places of their options, and of the options of all units on leaves below them, and so on, are
      full;
    * waiting: options of a unit without a place cost + price at least as much as any chosen one.

    Proof: the first three make the plan a feasible flow; with the next three every arc of the
    network meets the conditions of `verify`. Where units have no place, `room` proves that as many
    have one as possible: the full leaves hold only units that can go nowhere else. `waiting` is
    `price` for one more option of each unit, to go nowhere at the highest cost + price chosen; the
    number that go there is fixed, so its level moves no choice. The gap is the cost of the plan
    less the bound that the prices prove for plans with as many units placed.

    O(options + places x depth) when every unit has a place; where some have none, once more
    O(places) for each step of the longest chain of moves. Raises BadNetwork for arrays that do not
    fit together, and for a unit without options.
    """
    plan = _Plan(
        parent=parent,
        capacity=capacity,
        offsets=offsets,
        place=place,
        cost=cost,
        chosen_place=chosen_place,
        leaf=leaf,
        prices=prices,
    )
    plan.check_arrays()
    return plan.certificate()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """The arrays of `verify_laminar`."""

    parent: Ints
    capacity: Ints
    offsets: Ints
    place: Ints
    cost: Ints
    chosen_place: Ints
    leaf: Ints
    prices: Ints

    def certificate(self) -> Certificate:
        """Check every condition."""
        number = _type_for(_largest(self.cost) + _largest(self.prices))
        price = self.prices.astype(number, copy=False)
        placed, paid = self.chosen_place >= 0, self._paid()
        waits, known = ~placed, paid < _FAR

        # Of each unit: cost + price of the option chosen, and of the best. Who has no place
        # stands beside those placed for `level`.
        chosen = np.zeros(len(paid), number)
        chosen[known] = paid[known] + price[self.chosen_place[known]]
        value = self.cost + price[self.place]
        least = np.minimum.reduceat(value, self.offsets[:-1]) if len(paid) else chosen
        level = chosen[known].max() if known.any() else least.min(initial=0)

        inner = np.zeros(len(price), bool)
        inner[self.parent[self.parent >= 0]] = True
        inside, used = self._walk_up()
        load = np.bincount(self.leaf[self.leaf >= 0], minlength=len(price))
        room = ~inner & (load < self.capacity)
        steps = np.where(self.parent >= 0, price - price[self.parent], 0)

        # Through an arc of the tree at most all units go.
        bound = _sum(np.minimum(least, level) if waits.any() else least)
        bound += len(paid) * _sum(np.minimum(steps, 0)) - int(level) * int(waits.sum())
        bound -= _dot(self.capacity[~inner], np.maximum(price[~inner], 0))
        return Certificate(
            gap=_sum(paid[known]) - bound,
            unplaced=int(waits.sum()),
            faults=_faults(
                ("option", "unit", placed & ~known),
                ("leaf", "unit", ~inside | (placed != (self.leaf >= 0)) | self._on(inner)),
                ("capacity", "place", ~inner & (load > self.capacity)),
                ("tree", "place", (steps < 0) | (used & (steps != 0))),
                ("spare", "place", (price < 0) | (room & (price != 0))),
                ("price", "unit", known & (least < chosen)),
                ("room", "place", room & self._in_reach(waits)),
                ("waiting", "unit", waits & (least < level)),
            ),
        )

    def _on(self, places: Flags) -> Flags:
        """Return which units stand on one of the places."""
        return (self.leaf >= 0) & places[self.leaf]

    def _walk_up(self) -> tuple[Flags, Flags]:
        """Return who stands below the place chosen, and which places units enter from above.

        A unit without a leaf stands where it should.
        """
        inside, used = self.leaf < 0, np.zeros(len(self.parent), bool)
        unit = np.flatnonzero(~inside)
        at = self.leaf[unit]
        while len(unit):
            there = at == self.chosen_place[unit]
            inside[unit[there]] = True
            unit, at = unit[~there], at[~there]
            used[at] = True
            at = self.parent[at]
            unit, at = unit[at >= 0], at[at >= 0]
        return inside, used

    def _paid(self) -> Ints:
        """Return what each unit's cheapest option at its chosen place costs; `_FAR` for none."""
        chosen_by_option = np.repeat(self.chosen_place, np.diff(self.offsets))
        taken = np.flatnonzero(self.place == chosen_by_option)
        unit = np.searchsorted(self.offsets, taken, side="right") - 1
        paid = np.full(len(self.chosen_place), _FAR)
        np.minimum.at(paid, unit, self.cost[taken])
        return paid

    def _in_reach(self, waits: Flags) -> Flags:
        """Return the places to which some chain of moves takes a unit that waits."""
        reached = np.zeros(len(self.parent), bool)
        seen, fresh = waits.copy(), np.flatnonzero(waits)
        while len(fresh):
            first, count = self.offsets[fresh], np.diff(self.offsets)[fresh]
            nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            reached[self.place[np.repeat(first, count) + nth]] = True
            below = reached
            while below.any():
                below = (self.parent >= 0) & reached[self.parent] & ~reached
                reached |= below
            fresh = np.flatnonzero(~seen & self._on(reached))
            seen[fresh] = True
        return reached

    def check_arrays(self) -> None:
        """Raise BadNetwork when the arrays do not fit together, or the places are no forest."""
        _same_length("places", parent=self.parent, capacity=self.capacity, prices=self.prices)
        _same_length("options", place=self.place, cost=self.cost)
        _same_length("units", chosen_place=self.chosen_place, leaf=self.leaf)
        units, places, options = len(self.leaf), len(self.parent), len(self.place)
        offsets = self.offsets
        if len(offsets) != units + 1 or offsets[0] != 0 or offsets[-1] != options:
            raise BadNetwork(f"offsets do not cut {options} options into those of {units} units")
        bare = np.flatnonzero(np.diff(offsets) < 1)
        if len(bare):
            raise BadNetwork(f"unit {bare[0]} has no option")
        _within("parent", self.parent, -1, places)
        _within("place", self.place, 0, places)
        _within("chosen_place", self.chosen_place, -1, places)
        _within("leaf", self.leaf, -1, places)
        above = self.parent
        for _ in range(places.bit_length()):
            above = np.where(above >= 0, above[above], -1)
        if (above >= 0).any():
            raise BadNetwork(f"place {int((above >= 0).argmax())} is below itself")


# ---------------------------------------------------------------- exact arithmetic, faults


def _largest(values: Ints) -> int:
    """Return the largest absolute value."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))


def _type_for(bound: int) -> DTypeLike:
    """Return the type of numbers that hold values up to `bound`: Python's, where int64 may not."""
    return np.int64 if bound < _SAFE else object


def _sum(values: Ints) -> int:
    """Return the exact sum."""
    return int(values.astype(_type_for(_largest(values) * len(values)), copy=False).sum())


def _dot(one: Ints, other: Ints) -> int:
    """Return the exact sum of products."""
    both = np.flatnonzero((one != 0) & (other != 0))
    one, other = one[both], other[both]
    number = _type_for(_largest(one) * _largest(other) * len(both))
    return int((one.astype(number, copy=False) * other.astype(number, copy=False)).sum())


def _faults(*kinds: tuple[str, str, ArrayLike]) -> tuple[Fault, ...]:
    """Return what is broken, for each (kind, what, flags) with flags set."""
    found = []
    for kind, what, flags in kinds:
        where = np.flatnonzero(flags)
        if len(where):
            found.append(Fault(kind=kind, what=what, count=len(where), first=int(where[0])))
    return tuple(found)


def _same_length(of: str, **arrays: Ints) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise BadNetwork(f"arrays of {of} have different lengths: {lengths}")


def _within(name: str, values: Ints, low: int, end: int) -> None:
    if len(values) and (values.min() < low or values.max() >= end):
        where = int(np.flatnonzero((values < low) | (values >= end))[0])
        raise BadNetwork(f"{name}[{where}] is {values[where]}, not in {low}..{end - 1}")
