"""A min-cost flow network as arrays, and its solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Ints
from headgate.base.errors import InvariantBroken

AnyInts = NDArray[np.integer[Any]]

COST_LIMIT = 1 << 61
"""Costs of arcs times (vertices + 3) must stay below this: scaling works with such products."""


class BadNetwork(InvariantBroken):
    """Arrays that are not a valid network: an error of the calling code."""

    code = "bad_network"


class InfeasibleFlow(BadNetwork):
    """Supplies that the arcs cannot carry; at least `unsent` units cannot be sent."""

    code = "infeasible"

    def __init__(self, unsent: int, of: int) -> None:
        """Take the number of units that cannot be sent, of all that enter."""
        super().__init__(
            f"{unsent} of {of} units cannot be sent: the arcs do not carry them to where they leave"
        )
        self.unsent = unsent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A directed network of `vertices` vertices and `arcs` arcs; all arrays are int64.

    `tail, head, capacity, cost` have shape `[arcs]`; `supply` has shape `[vertices]` and is
    positive where flow enters, negative where it leaves. Parallel arcs are allowed. Raises
    BadNetwork for arrays of different lengths, vertices out of range, negative capacities
    and costs too large to solve exactly.
    """

    tail: Ints
    head: Ints
    capacity: Ints
    cost: Ints
    supply: Ints

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("tail", "head", "capacity", "cost")}
        if len(set(lengths.values())) > 1:
            raise BadNetwork(f"arrays of arcs have different lengths: {lengths}")
        if self.arcs == 0:
            return
        self._check_ends("tail", self.tail)
        self._check_ends("head", self.head)
        if self.capacity.min() < 0:
            arc = int(self.capacity.argmin())
            raise BadNetwork(f"arc {arc} has the negative capacity {self.capacity[arc]}")
        # Python's integers cannot overflow, and abs() of the smallest int64 would.
        low, high = int(self.cost.min()), int(self.cost.max())
        most = (COST_LIMIT - 1) // (self.vertices + 3)
        if max(high, -low) > most:
            arc = int(self.cost.argmax() if high >= -low else self.cost.argmin())
            raise BadNetwork(
                f"arc {arc} costs {self.cost[arc]}: too large to solve exactly with "
                f"{self.vertices} vertices (at most {most})"
            )

    def _check_ends(self, name: str, vertex: Ints) -> None:
        arc = int(vertex.argmin())
        if vertex[arc] >= 0:
            arc = int(vertex.argmax())
        if not 0 <= vertex[arc] < self.vertices:
            raise BadNetwork(
                f"arc {arc} has the {name} {vertex[arc]}, but there are {self.vertices} vertices"
            )

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return len(self.tail)

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.supply)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """A flow per arc (int64 `[arcs]`), what it costs, and how many units it sends.

    The `potential` (int64 `[vertices]`) proves that no flow that sends as many units costs less:
    the reduced cost `cost + potential[head] - potential[tail]` of an arc is at least 0 where it has
    residual capacity, and at most 0 where it has flow. A potential is the dual price of the vertex,
    the cost of one more unit from it, up to a constant common to all vertices; where the dual
    optimum is not unique, it is any.
    """

    flow: Ints
    potential: Ints
    cost: int
    sent: int
