"""The k-ary fat tree of switches with k ports: full bandwidth between any two halves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Floats, Ints
from headgate.model.topology.base import (
    BadTopology,
    Topology,
    checked_bandwidths,
    checked_names,
    frozen,
    integers,
    offsets_of,
)
from headgate.model.topology.tree import Tree


class FatTree(Topology):
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, k^3/4 leaves.

    A message goes up through the aggregation switch and the core switch that its destination
    selects, by the remainders of the destination's number by k/2, and down the only path: so all
    messages to one leaf meet, and those to different leaves of an edge switch take different
    switches. Vertices: leaves, then edge, aggregation and core switches. `tree` is the tree of
    pods, edge switches and leaves: the closed sets, with the bandwidth of all links of a level
    together.
    """

    def __init__(
        self,
        k: int,
        bandwidth: float | Sequence[float] = 1.0,
        *,
        names: Sequence[str] = (),
    ) -> None:
        """`bandwidth`: of each link core-aggregation, aggregation-edge, edge-leaf, in bytes/s."""
        if k < 2 or k % 2:
            raise BadTopology(f"the switches of a fat tree have an even number of ports, not {k}")
        self.k = k
        self.half = half = k // 2
        self.bandwidth: Floats = frozen(checked_bandwidths(bandwidth, 3, "levels of links"))
        self.leaves = k * half * half
        self.names = checked_names(names, self.leaves)
        switches = k * half  # of edge, as many of aggregation
        self._edge, self._aggregation = self.leaves, self.leaves + switches
        self._core = self._aggregation + switches
        self.vertices = self._core + half * half
        self.links = 6 * self.leaves
        core, aggregation, edge = (float(each) for each in self.bandwidth)
        self.tree = Tree.uniform(
            [k, half, half],
            [core * half * half, aggregation * half, edge],
            level_names=["core", "pod", "edge", "leaf"],
            names=names,
        )
        # three families of `leaves` full-duplex links: leaf - edge, edge - aggregation,
        # aggregation - core; link 2 i leads up, 2 i + 1 down
        number = np.arange(self.leaves)
        switch, pod = number // half, number // (half * half)
        low = np.concatenate([number, self._edge + switch, self._aggregation + switch])
        high = np.concatenate(
            [
                self._edge + switch,
                self._aggregation + pod * half + number % half,
                self._core + switch % half * half + number % half,
            ]
        )
        self.tail: Ints = frozen(np.stack([low, high], axis=1).ravel())
        self.head: Ints = frozen(np.stack([high, low], axis=1).ravel())
        self.capacity: Floats = frozen(np.repeat(self.bandwidth[::-1], 2 * self.leaves))

    def hops(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the links between leaves: 0, 2, 4 or 6."""
        return self.tree.hops(a, b)

    def routes(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        """Return the routes of pairs; see `Topology`."""
        a, b = np.broadcast_arrays(np.atleast_1d(integers(a)), integers(b))
        half, leaves = self.half, self.leaves
        lane, core = b % half, b // half % half  # aggregation switch in a pod, its core link

        def via(end: Ints) -> tuple[Ints, Ints, Ints]:
            switch = end // (half * half) * half + lane
            return end, leaves + end // half * half + lane, 2 * leaves + switch * half + core

        up, down = via(a), via(b)
        links = np.stack(
            [*[2 * link for link in up], *[2 * link + 1 for link in down[::-1]]], axis=1
        )
        needed = self.tree.hops(a, b)[:, None]
        used = needed > np.array([0, 2, 4, 4, 2, 0])
        return offsets_of(used.sum(axis=1)), links[used]

    def routers_of(self, leaves: ArrayLike) -> Ints:
        """Return the switches that messages among the leaves cross, ascending."""
        chosen, half = np.unique(integers(leaves)), self.half
        if len(chosen) < 2:
            return np.zeros(0, np.int64)
        edges, pods = np.unique(chosen // half), np.unique(chosen // (half * half))
        if len(edges) == 1:
            return self._edge + edges
        lanes = np.unique(chosen % half)
        found = [self._edge + edges, self._aggregation + (pods[:, None] * half + lanes).ravel()]
        if len(pods) > 1:
            found.append(self._core + np.unique(chosen % half * half + chosen // half % half))
        return np.concatenate(found)

    def diameter(self, leaves: ArrayLike) -> int:
        """Return the most hops between two of the leaves."""
        return self.tree.diameter(leaves)

    def narrowest(self, leaves: ArrayLike) -> float:
        """Return the least bandwidth of a link that messages among the leaves cross."""
        crossed = self.diameter(leaves) // 2
        return float(self.bandwidth[3 - crossed :].min(initial=np.inf))

    def least_diameter(self, count: int) -> int:
        """Return the least diameter of a subtree of `tree` with at least `count` leaves."""
        return self.tree.least_diameter(count)

    def label(self, vertex: int) -> str:
        """Return the name of a leaf, or a switch's kind and number."""
        if vertex < self.leaves:
            return self.names[vertex] if self.names else f"leaf {vertex}"
        for first, kind in (
            (self._core, "core"), (self._aggregation, "aggregation"), (self._edge, "edge"),
        ):  # fmt: skip
            if vertex >= first:
                return f"{kind} {vertex - first}"
        raise AssertionError("unreachable: the first switches are edge switches")
