"""The network equivalent to a laminar forest, in the form that other solvers read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flow_bench.laminar import Forest, Options
from headgate.base.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arcs:
    """Units, then places, then the sink; arcs in the order of their tails.

    `tail, head` are int32, as OR-tools and LEMON want them; the rest is int64. A place with
    children is left with at most what its nodes hold together, so no capacity is larger than
    need be.
    """

    tail: NDArray[np.int32]
    head: NDArray[np.int32]
    capacity: Ints
    cost: Ints
    supply: Ints

    def write(self, path: Path) -> None:
        """Write vertices and arcs (two int64), then supply, tail, head, capacity, cost."""
        with path.open("wb") as file:
            np.array([len(self.supply), len(self.tail)], np.int64).tofile(file)
            for array in (self.supply, self.tail, self.head, self.capacity, self.cost):
                array.tofile(file)


def arcs(places: Forest, choice: Options) -> Arcs:
    """Return the network: unit -> place, parent -> child, place without children -> sink."""
    units, spots = len(choice.offsets) - 1, len(places.parent)
    sink = units + spots
    holds = _holds(places)
    child = np.flatnonzero((places.parent >= 0) & (holds > 0))
    child = child[np.argsort(places.parent[child], kind="stable")]
    leaf = np.flatnonzero(places.capacity)
    node, pool = leaf[leaf < places.racks], leaf[leaf >= places.pools]
    unit = np.repeat(np.arange(units, dtype=np.int32), np.diff(choice.offsets))
    tail = np.concatenate(
        [unit, units + node, units + places.parent[child], units + pool], dtype=np.int32
    )
    head = np.full(len(tail), sink, np.int32)
    head[: len(unit)] = units + choice.place
    inner = slice(len(unit) + len(node), len(tail) - len(pool))
    head[inner] = units + child
    capacity = np.ones(len(tail), np.int64)
    capacity[len(unit) :] = holds[np.concatenate([node, child, pool])]
    cost = np.zeros(len(tail), np.int64)
    cost[: len(unit)] = choice.cost
    supply = np.zeros(sink + 1, np.int64)
    supply[:units], supply[sink] = 1, -units
    return Arcs(tail=tail, head=head, capacity=capacity, cost=cost, supply=supply)


def _holds(places: Forest) -> Ints:
    """Return the number of units that each place can hold."""
    holds = places.capacity.copy()
    levels = [(0, places.racks), (places.racks, places.hubs), (places.hubs, places.root)]
    for first, end in levels:  # children before parents
        np.add.at(holds, places.parent[first:end], holds[first:end])
    return holds
