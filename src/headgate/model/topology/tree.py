"""Trees of any depth and uneven fan-out, with a bandwidth on the link above every vertex."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model.topology.base import (
    BadTopology,
    Topology,
    check_positive,
    checked_bandwidths,
    checked_names,
    frozen,
    integers,
    offsets_of,
)


class Tree(Topology):
    """A tree whose leaves compute; the vertices are in preorder, so that 0 is the root.

    The leaves below a vertex are `first_leaf[v]` to `end_leaf[v]` (exclusive), the vertices of its
    subtree `v` to `end[v]`. `uplink[v]` is the bandwidth, in bytes per second and direction, of the
    link to its parent, infinite for the root. `level[v]` is an index of `level_names`, from the
    top. `given[v]` is the vertex's number in what the tree was built from. The links of vertex v
    are `2 * (v - 1)` up and `2 * (v - 1) + 1` down.
    """

    def __init__(
        self,
        parent: Ints,
        uplink: Floats,
        level: Ints,
        *,
        level_names: Sequence[str] = (),
        names: Sequence[str] = (),
        labels: Sequence[str] = (),
        given: Ints | None = None,
    ) -> None:
        """Take vertices in preorder; `from_parents` takes them in any order, and checks them."""
        self.vertices = len(parent)
        self.parent: Ints = frozen(parent)
        self.level: Ints = frozen(level)
        levels = int(level.max()) + 1
        self.level_names = tuple(level_names) or tuple(f"level {i}" for i in range(levels))
        uplink[0] = np.inf
        self.uplink: Floats = frozen(uplink)
        check_positive(uplink)
        self.given: Ints = frozen(np.arange(self.vertices) if given is None else given)
        self._labels = tuple(labels)
        self._number(names)
        self.links = 2 * (self.vertices - 1)
        self.capacity: Floats = frozen(np.repeat(uplink[1:], 2))
        ends = np.stack([np.arange(1, self.vertices), parent[1:]])
        self.tail: Ints = frozen(ends.T.ravel())
        self.head: Ints = frozen(ends[::-1].T.ravel())
        self._by_diameter: tuple[Ints, Ints] | None = None

    def _number(self, names: Sequence[str]) -> None:
        """Compute depths, sizes, the leaves, and the ancestors of every leaf by depth."""
        parent, count = self.parent, self.vertices
        depth = np.zeros(count, np.int64)
        size = np.ones(count, np.int64)
        above = parent.copy()
        while (inside := above >= 0).any():
            depth += inside
            above[inside] = parent[above[inside]]
        for level in range(int(depth.max()), 0, -1):
            rows = np.flatnonzero(depth == level)
            np.add.at(size, parent[rows], size[rows])
        self.depth: Ints = frozen(depth)
        self.end: Ints = frozen(np.arange(count) + size)
        is_leaf = size == 1
        before = offsets_of(is_leaf)
        self.first_leaf: Ints = frozen(before[:-1].copy())
        self.end_leaf: Ints = frozen(before[self.end])
        self.leaf_vertex: Ints = frozen(np.flatnonzero(is_leaf))
        self.leaves = len(self.leaf_vertex)
        self.names = checked_names(names, self.leaves)
        path = np.full((int(depth.max()) + 1, self.leaves), -1, np.int32)
        path[depth[self.leaf_vertex], np.arange(self.leaves)] = self.leaf_vertex
        for level in range(len(path) - 1, 0, -1):
            below = np.flatnonzero(path[level] >= 0)
            path[level - 1, below] = parent[path[level, below]]
        self._path = frozen(path)
        self.is_even = len(np.unique(depth[self.leaf_vertex])) == 1

    # --- constructors -------------------------------------------------------------------------

    @classmethod
    def k_ary(
        cls,
        k: int,
        levels: int,
        bandwidth: float | Sequence[float] = 1.0,
        *,
        level_names: Sequence[str] = (),
    ) -> Tree:
        """Return the complete tree of `levels` levels below the root: k ** levels leaves.

        `bandwidth` is that of each level's links to the level above, from the top.
        """
        if k < 1 or levels < 0:
            raise BadTopology(f"no tree has {k} children per vertex and {levels} levels")
        return cls.uniform([k] * levels, bandwidth, level_names=level_names)

    @classmethod
    def uniform(
        cls,
        fan_out: Sequence[int],
        bandwidth: float | Sequence[float] = 1.0,
        *,
        level_names: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> Tree:
        """Return the tree in which all vertices of a level have as many children, from the top."""
        if any(count < 1 for count in fan_out):
            raise BadTopology(f"every vertex above the leaves needs a child: {list(fan_out)}")
        widths = checked_bandwidths(bandwidth, len(fan_out), "levels")
        parents, level, first, count = [np.array([-1])], [np.zeros(1, np.int64)], 0, 1
        for depth, children in enumerate(fan_out, start=1):
            parents.append(np.repeat(np.arange(first, first + count), children))
            first, count = first + count, count * children
            level.append(np.full(count, depth))
        levels = np.concatenate(level)
        uplink = np.concatenate([[np.inf], widths])[levels]
        return cls.from_parents(
            np.concatenate(parents), uplink, levels, level_names=level_names, names=names
        )

    @classmethod
    def from_parents(
        cls,
        parents: ArrayLike,
        uplink: float | ArrayLike = 1.0,
        levels: ArrayLike | None = None,
        *,
        level_names: Sequence[str] = (),
        labels: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> Tree:
        """Return the tree of vertices in any order: the parent of each, -1 for the root.

        `levels` are indexes of `level_names`, by default the depths. `labels` name the vertices
        given, `names` the leaves in preorder; children keep their order. Raises BadTopology for no
        root or several, unknown parents, cycles, levels that do not descend, bandwidths of 0.
        """
        parent = integers(parents)
        order, depth = _preorder(parent)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        level = depth if levels is None else integers(levels)
        widths = np.broadcast_to(np.asarray(uplink, np.float64), len(parent)).copy()
        widths[parent < 0] = np.inf
        check_positive(widths)
        below = parent >= 0
        if (level[below] <= level[parent[below]]).any():
            raise BadTopology("a vertex must be of a lower level than its parent")
        if level_names and level.max() >= len(level_names):
            raise BadTopology(f"{int(level.max()) + 1} levels, but {len(level_names)} level names")
        above = parent[order]
        return cls(
            np.where(above >= 0, position[above], -1),
            widths[order],
            level[order].copy(),
            level_names=level_names,
            names=names,
            labels=[labels[v] for v in order.tolist()] if labels else (),
            given=order,
        )

    # --- queries ------------------------------------------------------------------------------

    def hops(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the links between leaves, those to the leaves included. O(pairs x depth)."""
        a, b = np.broadcast_arrays(integers(a), integers(b))
        depth = self.depth[self.leaf_vertex]
        result: Ints = depth[a] + depth[b] - 2 * self._common_depth(a, b)
        return result

    def _common_depth(self, a: Ints, b: Ints) -> Ints:
        """Return the depth of the lowest common ancestor of leaves, element by element."""
        common = np.full(a.shape, -1)
        for ancestor in self._path:
            common += (ancestor[a] == ancestor[b]) & (ancestor[a] >= 0)
        return common

    def routes(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        """Return the routes of pairs; see `Topology`."""
        a, b = np.broadcast_arrays(np.atleast_1d(integers(a)), integers(b))
        common = self._common_depth(a, b)[:, None]
        depths = np.arange(len(self._path))
        up, down = self._path[::-1, a].T, self._path[:, b].T
        links = np.concatenate([2 * (up - 1), 2 * (down - 1) + 1], axis=1)
        used = np.concatenate(
            [(up >= 0) & (depths[::-1] > common), (down >= 0) & (depths > common)], axis=1
        )
        return offsets_of(used.sum(axis=1)), links[used].astype(np.int64)

    def lowest_common(self, leaves: ArrayLike) -> int:
        """Return the root of the smallest subtree that contains the leaves, at least one."""
        chosen = integers(leaves)
        first, last = self._path[:, chosen.min()], self._path[:, chosen.max()]
        return int(first[np.flatnonzero((first == last) & (first >= 0))[-1]])

    def _crossed(self, leaves: Ints) -> Ints:
        """Return the vertices below the lowest common ancestor on paths to the leaves."""
        depth = int(self.depth[self.lowest_common(leaves)])
        found = np.unique(self._path[depth + 1 :, leaves])
        return found[found >= 0].astype(np.int64)

    def routers_of(self, leaves: ArrayLike) -> Ints:
        """Return the inner vertices that messages among the leaves cross, ascending."""
        chosen = np.unique(integers(leaves))
        if len(chosen) < 2:
            return np.zeros(0, np.int64)
        crossed = self._crossed(chosen)
        inner = crossed[self.end[crossed] > crossed + 1]
        return np.concatenate([[self.lowest_common(chosen)], inner])

    def diameter(self, leaves: ArrayLike) -> int:
        """Return the most hops between two of the leaves. O(leaves x depth)."""
        chosen = integers(leaves)
        if chosen.size < 2:
            return 0
        if self.is_even:
            below = self.depth[self.leaf_vertex[0]] - self.depth[self.lowest_common(chosen)]
            return 2 * int(below)
        # in a tree, a leaf farthest from any leaf is an end of a longest path
        farthest = chosen[self.hops(chosen[0], chosen).argmax()]
        return int(self.hops(farthest, chosen).max())

    def narrowest(self, leaves: ArrayLike) -> float:
        """Return the least bandwidth of a link that messages among the leaves cross."""
        chosen = np.unique(integers(leaves))
        if len(chosen) < 2:
            return np.inf
        return float(self.uplink[self._crossed(chosen)].min())

    def least_diameter(self, count: int) -> int:
        """Return the least diameter of a subtree with at least `count` leaves."""
        self.check_count(count)
        if count == 1:
            return 0
        if self._by_diameter is None:
            diameters = self.subtree_diameters()
            order = np.argsort(diameters, kind="stable")
            sizes = np.maximum.accumulate((self.end_leaf - self.first_leaf)[order])
            self._by_diameter = diameters[order], sizes
        diameters, sizes = self._by_diameter
        return int(diameters[np.searchsorted(sizes, count)])

    def subtree_diameters(self) -> Ints:
        """Return the diameter of every subtree, by its root. O(vertices x depth)."""
        height = np.zeros(self.vertices, np.int64)
        result = np.zeros(self.vertices, np.int64)
        for depth in range(int(self.depth.max()), 0, -1):
            rows = np.flatnonzero(self.depth == depth)
            above, reach = self.parent[rows], height[rows] + 1
            np.maximum.at(result, above, result[rows])
            order = np.lexsort((-reach, above))  # siblings together, the highest first
            above, reach = above[order], reach[order]
            first = np.flatnonzero(np.diff(above, prepend=-1))
            second = first[np.diff(first, append=len(above)) > 1] + 1
            np.maximum.at(result, above[second], reach[second - 1] + reach[second])
            height[above[first]] = reach[first]
        return result

    def counts(self, chosen: Bools) -> Ints:
        """Return how many of the chosen leaves (one flag each) every subtree has. O(vertices)."""
        before = offsets_of(chosen)
        result: Ints = before[self.end_leaf] - before[self.first_leaf]
        return result

    def children(self, vertex: int) -> Ints:
        """Return the children of a vertex in order."""
        inside = np.arange(vertex + 1, int(self.end[vertex]))
        result: Ints = inside[self.parent[inside] == vertex]
        return result

    def label(self, vertex: int) -> str:
        """Return the name of a vertex for people."""
        if self._labels:
            return self._labels[vertex]
        if self.names and self.end[vertex] == vertex + 1:
            return self.names[int(self.first_leaf[vertex])]
        name = self.level_names[int(self.level[vertex])]
        return f"{name} {int((self.level[:vertex] == self.level[vertex]).sum())}"


def _preorder(parent: Ints) -> tuple[Ints, Ints]:
    """Return the vertices in preorder, and the depth of each."""
    count = len(parent)
    roots = np.flatnonzero(parent < 0)
    if len(roots) != 1:
        raise BadTopology(f"a tree has one root, not {len(roots)}" if count else "no vertices")
    if (parent >= count).any():
        raise BadTopology(f"vertex {parent.max()} is the parent of a vertex, but there is none")
    by_parent = np.argsort(parent, kind="stable")
    starts = np.searchsorted(parent[by_parent], np.arange(count + 1))
    depth = np.full(count, -1)
    depth[roots] = 0
    generations = [roots]
    while len(vertices := generations[-1]):
        fans = starts[vertices + 1] - starts[vertices]
        inside = np.arange(fans.sum()) - np.repeat(offsets_of(fans)[:-1], fans)
        below = by_parent[np.repeat(starts[vertices], fans) + inside]
        depth[below] = len(generations)
        generations.append(below)
    if (depth < 0).any():
        raise BadTopology(f"vertex {np.flatnonzero(depth < 0)[0]} is part of or below a cycle")
    size = np.ones(count, np.int64)
    for vertices in generations[:0:-1]:
        np.add.at(size, parent[vertices], size[vertices])
    position = np.zeros(count, np.int64)
    for vertices in generations[1:]:
        if not len(vertices):
            break
        through = np.cumsum(size[vertices]) - size[vertices]  # of all before it in its generation
        first = np.flatnonzero(np.diff(parent[vertices], prepend=-1))  # siblings are consecutive
        since = np.repeat(through[first], np.diff(first, append=len(vertices)))
        position[vertices] = position[parent[vertices]] + 1 + through - since
    order = np.empty(count, np.int64)
    order[position] = np.arange(count)
    return order, depth
