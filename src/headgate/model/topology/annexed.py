"""A topology with more leaves than its shape has: nodes that joined a mesh or fat tree later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Ints
from headgate.model.topology.base import Topology, frozen, integers, offsets_of


class Annexed(Topology):
    """A topology, and leaves of which it does not say where they are: far from all others.

    Each is on one link of its own, which all its messages cross and no others do. Its leaves, links
    and vertices follow those of `inside`; the last vertex, `elsewhere`, is the router that these
    links lead to. It is one hop farther from every leaf than the farthest leaves inside are from
    each other.
    """

    def __init__(self, inside: Topology, names: Sequence[str], bytes_per_s: float) -> None:
        """Add a leaf for each name, on links of this bandwidth in each direction."""
        count = len(names)
        self.inside = inside
        self.leaves, self.links = inside.leaves + count, inside.links + 2 * count
        self._elsewhere = inside.vertices + count
        self.vertices = self._elsewhere + 1
        self.names = (*inside.names, *names)
        self._annexed, self._bytes_per_s = tuple(names), bytes_per_s
        self._far = 1 + inside.diameter(np.arange(inside.leaves))
        own = inside.vertices + np.arange(count)
        ends = np.stack([own, np.full(count, self._elsewhere)], axis=1)
        self.tail: Ints = frozen(np.concatenate([inside.tail, ends.ravel()]))
        self.head: Ints = frozen(np.concatenate([inside.head, ends[:, ::-1].ravel()]))
        self.capacity = frozen(np.append(inside.capacity, np.full(2 * count, bytes_per_s)))

    def _within(self, leaves: ArrayLike) -> Ints:
        """Return those of the leaves that are inside."""
        chosen = integers(leaves)
        return chosen[chosen < self.inside.leaves]

    def _leads_out(self, leaves: ArrayLike) -> bool:
        """Return whether messages among the leaves cross links of annexed ones."""
        chosen = np.unique(integers(leaves))
        return len(chosen) > 1 and bool(chosen[-1] >= self.inside.leaves)

    def hops(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the links between leaves, or `far` where one is annexed."""
        a, b = np.broadcast_arrays(integers(a), integers(b))
        inside = np.maximum(a, b) < self.inside.leaves
        result: Ints = np.where(a == b, 0, self._far)
        result[inside] = self.inside.hops(a[inside], b[inside])
        return result

    def routes(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        """Return the routes of pairs; see `Topology`."""
        a, b = np.broadcast_arrays(np.atleast_1d(integers(a)), integers(b))
        first = self.inside.leaves
        inside = np.flatnonzero(np.maximum(a, b) < first)
        inner, crossed = self.inside.routes(a[inside], b[inside])
        ends = np.stack([a, b], axis=1)
        own = self.inside.links + 2 * (ends - first) + np.array([0, 1])  # up, then down
        used = (ends >= first) & (a != b)[:, None]
        pair = np.append(np.repeat(inside, np.diff(inner)), np.nonzero(used)[0])
        order = np.argsort(pair, kind="stable")
        counts = np.bincount(pair, minlength=len(a))
        return offsets_of(counts), np.append(crossed, own[used])[order]

    def routers_of(self, leaves: ArrayLike) -> Ints:
        """Return the routers that messages among the leaves cross, as vertices, ascending."""
        crossed = self.inside.routers_of(self._within(leaves))
        return np.append(crossed, self._elsewhere) if self._leads_out(leaves) else crossed

    def diameter(self, leaves: ArrayLike) -> int:
        """Return the most hops between two of the leaves."""
        within = self.inside.diameter(self._within(leaves))
        return self._far if self._leads_out(leaves) else within

    def narrowest(self, leaves: ArrayLike) -> float:
        """Return the least bandwidth of a link that messages among the leaves cross."""
        within = self.inside.narrowest(self._within(leaves))
        return min(within, self._bytes_per_s) if self._leads_out(leaves) else within

    def least_diameter(self, count: int) -> int:
        """Return that of the inside, or `far` for more leaves than it has."""
        self.check_count(count)
        return self._far if count > self.inside.leaves else self.inside.least_diameter(count)

    def label(self, vertex: int) -> str:
        """Return the name of a vertex for people."""
        if vertex < self.inside.vertices:
            return self.inside.label(vertex)
        return (
            "elsewhere"
            if vertex == self._elsewhere
            else self._annexed[vertex - self.inside.vertices]
        )
