"""The subtrees of a tree of leaves as arrays: which of them can hold how many leaves, and where.

The *rank* of a vertex says how near to each other the leaves below it are: smaller is nearer, and
every vertex ranks above its children. The *best rank* of a number of leaves is the least rank of a
subtree that has so many: leaves in a subtree of that rank communicate at their best bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model.topology.tree import Tree

_HALVES = 64  # ranks for the halves of a vertex: more than a number of children has bits


@dataclass(frozen=True, eq=False)
class RankedTree:
    """The subtrees of a tree, by their top vertices, with a rank of each."""

    parent: Ints
    first_leaf: Ints
    end_leaf: Ints
    rank: Ints

    @staticmethod
    def of(tree: Tree) -> RankedTree:
        """Return the subtrees of a tree, ranked by level from below; leaves have rank 0."""
        rank = int(tree.level.max()) - tree.level
        rank[tree.leaf_vertex] = 0
        return RankedTree(tree.parent, tree.first_leaf, tree.end_leaf, rank)

    def halved(self) -> RankedTree:
        """Return the tree with a vertex for every half, quarter, ... of the children of a vertex.

        Only of a power of two of children of equal capacity. If all are, a unit whose size is a
        power of two fills a subtree at its best rank, and so leaves no gaps in it. O(vertices).
        """
        rows = list[tuple[int, int, int, int]]()  # parent, first leaf, end, rank

        def put(above: int, run: Ints) -> None:
            row, below = len(rows), run
            if len(run) == 1:
                rank, below = int(self.rank[run[0]]) * _HALVES, self.children(int(run[0]))
            else:
                over = int(self.rank[self.parent[run[0]]])
                rank = (over - 1) * _HALVES + len(run).bit_length() - 1
            rows.append((above, int(self.first_leaf[run[0]]), int(self.end_leaf[run[-1]]), rank))
            for part in self._halves(below):
                put(row, part)

        put(-1, np.zeros(1, np.int64))
        return RankedTree(*np.array(rows, np.int64).T.copy())

    def _halves(self, run: Ints) -> list[Ints]:
        """Return the halves of a power of two of vertices of equal capacity, else each alone."""
        same = len(set(self.capacity[run].tolist())) == 1
        if len(run) > 1 and len(run).bit_count() == 1 and same:
            return [run[: len(run) // 2], run[len(run) // 2 :]]
        return [run[index : index + 1] for index in range(len(run))]

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
        """The vertex of each leaf: one that is no parent."""
        alone = np.ones(len(self.parent), bool)
        alone[self.parent[1:]] = False
        return np.flatnonzero(alone)

    def chain(self, vertex: int) -> Ints:
        """Return a vertex and those above it, the root last."""
        path = self._chains.get(vertex)
        if path is None:
            up = [vertex]
            while (above := int(self.parent[up[-1]])) >= 0:
                up.append(above)
            path = self._chains[vertex] = np.array(up, np.int64)
        return path

    @cached_property
    def _chains(self) -> dict[int, Ints]:
        return {}

    def counts(self, marked: Bools) -> Ints:
        """Return how many leaves of `marked [leaves]` are below each vertex."""
        before = np.zeros(len(marked) + 1, np.int64)
        np.cumsum(marked, out=before[1:])
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

    def around(self, first: Ints, last: Ints) -> Ints:
        """Return the lowest vertices above leaves, given the first and last ones of each set."""
        vertex = self.leaf_vertex[first]
        while (short := self.end_leaf[vertex] <= last).any():
            vertex[short] = self.parent[vertex[short]]
        return vertex

    def rank_of(self, leaves: Ints) -> int:
        """Return the rank of the lowest vertex above some leaves."""
        return int(self.rank[self.around(leaves.min(keepdims=True), leaves.max(keepdims=True))[0]])

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
