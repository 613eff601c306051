"""Certificates: whether a flow is optimal, every condition checked on every arc, independently.

The conditions are those of linear programming duality. A feasible flow and one dual price per
vertex (the potential, the cost of one more unit from there) prove each other optimal by
complementary slackness: no arc with residual capacity has a negative reduced cost, and no arc with
flow a positive one. No code is shared with the solvers: the conditions depend on the network, not
on the algorithm. Sums and products are exact, whatever their size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from headgate.base.arrays import Ints
from headgate.flow.network import BadNetwork

_SAFE = 1 << 62
_FAR = np.iinfo(np.int64).max

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A violated condition: how often, and the index of the first `what` that violates it."""

    kind: str
    what: str
    count: int
    first: int

    def __str__(self) -> str:
        """Return the fault as text for a message."""
        return f"{self.kind}: {self.count}, first at {self.what} {self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The result of a check; a clean one proves that the flow is optimal.

    `gap` is the duality gap: the cost of the flow minus the lower bound that the dual prices prove,
    so the optimum is cheaper by at most that. It is 0 when clean, and undefined where the flow is
    not feasible. `unplaced` counts the units of a laminar problem without a place.
    """

    gap: int
    faults: tuple[Fault, ...] = ()
    unplaced: int = 0

    @property
    def violations(self) -> int:
        """The number of violations of all conditions together."""
        return sum(fault.count for fault in self.faults)

    @property
    def clean(self) -> bool:
        """Whether every condition holds, and so the flow is optimal."""
        return not self.faults and self.gap == 0

    def __str__(self) -> str:
        """Return the result as text for a message."""
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
    """Check that `flow` is feasible and that `potential` proves it optimal.

    All arrays are int64; `supply` and `potential` have shape `[vertices]`, the others `[arcs]`.
    With the reduced cost `cost + potential[head] - potential[tail]`, as of a `Solution`:

    * conservation: the flow out of a vertex minus the flow into it is its supply;
    * capacity: `0 <= flow <= capacity`;
    * price: the reduced cost is at least 0 on arcs with residual capacity, and at most 0 on arcs
      with flow.

    Proof: any feasible flow x costs `sum(supply * potential) + sum(reduced * x)`. The first sum is
    the same for all flows; each term of the second is, by the condition `price`, minimal at `flow`.
    The gap is the cost of `flow` minus that bound, with each term at its minimum between 0 and
    capacity.

    O(arcs). Raises BadNetwork for arrays of different lengths and vertices out of range.
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
    """Check an assignment of a laminar problem, and that `prices` prove it optimal.

    `parent, capacity, prices` have shape `[places]` (a place without children is a leaf, and only
    leaves have capacity); unit u has the options `place, cost[offsets[u] : offsets[u + 1]]`;
    `chosen_place, leaf` have shape `[units]`, -1 where a unit has no place. A unit pays the
    cheapest of its options at the place chosen.

    The network has the arcs unit -> place (capacity 1, the option's cost), parent -> child (no
    limit, cost 0) and leaf -> sink (its capacity, cost 0); the sink's price is 0. The conditions
    are

    * option: the place chosen is an option of its unit;
    * leaf: it has no children and is in the subtree of the place chosen; a unit has both or
    neither;
    * capacity: no leaf has more units than its capacity;
    * tree: no place has a higher price than its child, and an equal one where flow passes;
    * spare: no price is below 0, and a leaf with capacity left has price 0;
    * price: no option of a unit has less cost + price than the one chosen;
    * room: no augmenting path leads from a unit without a place to capacity left: the places of its
      options, and of the options of all units on leaves below them, and so on, are full;
    * waiting: options of a unit without a place cost + price at least as much as any chosen one.

    Proof: the first three make the assignment a feasible flow; with the next three every arc of the
    network satisfies the conditions of `verify`. Where units have no place, `room` proves that the
    number placed is maximal: the full leaves hold only units that can move nowhere else. `waiting`
    is `price` for one more option of each unit, no place, at the highest cost + price chosen; the
    number of units that take it is fixed, so its level changes no choice. The gap is the cost of
    the assignment minus the bound that the prices prove for as many units placed.

    O(options + places x depth) when every unit has a place; otherwise, in addition, O(places) per
    arc of the longest augmenting path searched. Raises BadNetwork for arrays that do not
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

        # Of each unit: cost + price of the option chosen, and of the best. A unit without a place
        # is compared at `level`.
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

        # At most all units pass through an arc of the tree.
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
        """Return which units are on one of the places."""
        return (self.leaf >= 0) & places[self.leaf]

    def _walk_up(self) -> tuple[Flags, Flags]:
        """Return which units are below their chosen place, and which places flow enters from above.

        A unit without a leaf counts as below its place.
        """
        inside, used = self.leaf < 0, np.zeros(len(self.parent), bool)
        unit = np.flatnonzero(~inside)
        place = self.leaf[unit]
        while len(unit):
            there = place == self.chosen_place[unit]
            inside[unit[there]] = True
            unit, place = unit[~there], place[~there]
            used[place] = True
            place = self.parent[place]
            unit, place = unit[place >= 0], place[place >= 0]
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
        """Return the places that some augmenting path from a waiting unit reaches."""
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
    """Return the dtype that holds values up to `bound`: Python's integers where int64 may not."""
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
    """Return a fault for each (kind, what, flags) with flags set."""
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
