"""A min-cost flow network as arrays, what solving it means, and what a solver promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import InvariantBroken

Ints = NDArray[np.int64]

COST_LIMIT = 1 << 61
"""Costs of arcs times vertices must stay below this: scaling solvers work with such products."""


class BadNetwork(InvariantBroken):
    """Arrays that are not a network; whoever built them is wrong."""

    code = "bad_network"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A directed network of `vertices` vertices and `arcs` arcs; all arrays are int64.

    `tail, head, capacity, cost` have shape `[arcs]`; `supply` has shape `[vertices]` and is
    positive where flow enters, negative where it leaves. Parallel arcs are allowed. Raises
    BadNetwork for arrays of different lengths, vertices that are not there, negative capacities
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
        ends = np.concatenate([self.tail, self.head])
        if ends.min() < 0 or ends.max() >= self.vertices:
            raise BadNetwork(
                f"arcs join vertices {ends.min()} to {ends.max()}, but there are {self.vertices}"
            )
        if self.capacity.min() < 0:
            arc = int(self.capacity.argmin())
            raise BadNetwork(f"arc {arc} has the negative capacity {self.capacity[arc]}")
        # Python's integers cannot overflow, and abs() of the smallest int64 would.
        largest = max(int(self.cost.max()), -int(self.cost.min()))
        if largest * (self.vertices + 1) >= COST_LIMIT:
            arc = int(np.abs(self.cost.astype(np.float64)).argmax())
            raise BadNetwork(
                f"arc {arc} costs {self.cost[arc]}: too large to solve exactly with "
                f"{self.vertices} vertices (at most {COST_LIMIT // (self.vertices + 1)})"
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
    """A flow per arc (int64 `[arcs]`), what it costs, and how many units it sends."""

    flow: Ints
    cost: int
    sent: int


class Solver(Protocol):
    """Finds a flow of most units sent and, among those, of least cost.

    The same network gives the same flow in any process.
    """

    def solve(self, network: Network) -> Solution:
        """Return the flow; supplies that cannot all be sent are no error."""
        ...
