"""The subtrees of a tree of leaves as arrays: which of them can hold how many leaves, and where.

The *rank* of a vertex says how near to each other the leaves below it are: smaller is nearer, and
every vertex ranks above its children. The *best rank* of a number of leaves is the least rank of a
subtree that has so many: leaves in a subtree of that rank communicate at their best bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.base.lists import Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Subtrees:
    """A tree: its vertices in preorder, the root first; each spans an interval of leaves.

    `parent` of the root is -1. `first_leaf` and `end_leaf` bound the leaves below a vertex. A leaf
    is the last of the vertices that span it alone.
    """

    parent: Ints
    first_leaf: Ints
    end_leaf: Ints
    rank: Ints

    @staticmethod
    def of(parent: Ints, first_leaf: Ints, end_leaf: Ints) -> Subtrees:
        """Return a tree in which a vertex ranks by its height above the farthest leaf below it."""
        rank = [0] * len(parent)
        above = parent.tolist()
        for vertex in range(len(above) - 1, 0, -1):
            rank[above[vertex]] = max(rank[above[vertex]], rank[vertex] + 1)
        return Subtrees(parent, first_leaf, end_leaf, np.array(rank, np.int64))

    @staticmethod
    def regular(*fan_out: int) -> Subtrees:
        """Return the tree whose vertices have `fan_out[depth]` children each."""
        below = [1]
        for count in reversed(fan_out):
            below.append(below[-1] * count)
        below.reverse()
        parent, first = [-1], [0]

        def grow(vertex: int, depth: int) -> None:
            for child in range(fan_out[depth] if depth < len(fan_out) else 0):
                parent.append(vertex)
                first.append(first[vertex] + child * below[depth + 1])
                size.append(below[depth + 1])
                grow(len(parent) - 1, depth + 1)

        size = [below[0]]
        grow(0, 0)
        begin = np.array(first, np.int64)
        return Subtrees.of(np.array(parent, np.int64), begin, begin + np.array(size, np.int64))

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return int(self.end_leaf[0])

    @cached_property
    def capacity(self) -> Ints:
        """The number of leaves below each vertex."""
        return self.end_leaf - self.first_leaf

    @cached_property
    def leaf_vertex(self) -> Ints:
        """The vertex of each leaf."""
        alone = np.flatnonzero(self.capacity == 1)
        found = np.zeros(self.leaves, np.int64)
        found[self.first_leaf[alone]] = alone  # of several, the last one is assigned last
        return found

    @cached_property
    def _chains(self) -> list[Ints]:
        above, chains = self.parent.tolist(), list[Ints]()
        for vertex, parent in enumerate(above):
            up = chains[parent] if parent >= 0 else np.zeros(0, np.int64)
            chains.append(np.concatenate((np.array([vertex], np.int64), up)))
        return chains

    def chain(self, vertex: int) -> Ints:
        """Return a vertex and those above it, the root last."""
        return self._chains[vertex]

    def counts(self, marked: Bools) -> Ints:
        """Return how many leaves of `marked [leaves]` are below each vertex."""
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(marked)))
        found: Ints = before[self.end_leaf] - before[self.first_leaf]
        return found

    def held_by(self, leaves: Ints) -> tuple[Ints, Ints]:
        """Return the vertices above some leaves, and how many of the leaves are below each."""
        above = [self.chain(vertex) for vertex in self.leaf_vertex[leaves].tolist()]
        if not above:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        vertices, count = np.unique(np.concatenate(above), return_counts=True)
        return vertices, count

    def children(self, vertex: int) -> Ints:
        """Return the vertices directly below one, in order."""
        order, begin = self._by_parent
        return order[begin[vertex] : begin[vertex + 1]]

    @cached_property
    def _by_parent(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.parent[1:], kind="stable") + 1
        begin = np.searchsorted(self.parent[order], np.arange(len(self.parent) + 1))
        return order, begin

    def around(self, leaves: Ints) -> int:
        """Return the lowest vertex above all of some leaves."""
        first, end = int(leaves.min()), int(leaves.max()) + 1
        vertex = int(self.leaf_vertex[first])
        while self.end_leaf[vertex] < end:
            vertex = int(self.parent[vertex])
        return vertex

    def best_rank(self, count: int) -> int | None:
        """Return the least rank of a subtree that has `count` leaves; None if none has."""
        fits = self.capacity >= count
        return int(self.rank[fits].min()) if fits.any() else None

    @cached_property
    def _containers(self) -> dict[int, Ints]:
        return {}

    def containers(self, rank: int) -> Ints:
        """Return the highest vertices of at most a rank: disjoint, and they span all leaves."""
        if rank not in self._containers:
            above = np.where(self.parent < 0, np.iinfo(np.int64).max, self.rank[self.parent])
            self._containers[rank] = np.flatnonzero((self.rank <= rank) & (above > rank))
        return self._containers[rank]

    @cached_property
    def flat(self) -> Bools:
        """Whether the children of a vertex are all leaves, so that those are interchangeable."""
        inner = np.ones(len(self.parent), bool)
        inner[self.leaf_vertex] = False
        flat = inner.copy()
        flat[self.parent[1:][inner[1:]]] = False
        return flat
