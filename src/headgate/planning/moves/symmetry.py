"""Subtrees that look alike: a search needs to try one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property

from headgate.base.arrays import Bools, Ints
from headgate.planning.moves.ranked_tree import RankedTree


class Symmetry:
    """Finds vertices that exchanging subtrees of the same content maps to each other.

    The content of a subtree is its shape, its idle leaves, and the kinds of the units in it. A unit
    in several subtrees makes each unlike all others.
    """

    def __init__(self, tree: RankedTree, owner: Ints, kinds: Sequence[int], idle: Bools) -> None:
        """Take the unit of each leaf, -1 for none, and the kinds of units."""
        self._tree, self._owner, self._kinds, self._idle = tree, owner, kinds, idle

    def key(self, vertex: int, touched: Ints) -> Hashable:
        """Return what vertices that are alike share; one with a count in `touched` is unlike all.

        Alike are vertices of the same orbit below the same lowest vertex that is touched.
        """
        if touched[vertex]:
            return vertex
        top = vertex
        while top >= 0 and not touched[top]:
            top = int(self._tree.parent[top])
        return self._orbits[vertex], top

    @cached_property
    def _orbits(self) -> list[int]:
        """The orbit of each vertex when nothing is touched; O(leaves + vertices)."""
        content, names = self._contents(), dict[Hashable, int]()
        orbits = list[int]()
        for vertex, parent in enumerate(self._tree.parent.tolist()):
            above = orbits[parent] if parent >= 0 else -1
            orbits.append(names.setdefault((above, content[vertex]), len(names)))
        return orbits

    def _contents(self) -> list[int]:
        """Return a number for the content of each vertex."""
        tree, names = self._tree, dict[Hashable, int]()
        flat, content = tree.flat.tolist(), [0] * len(tree.parent)
        first, end = tree.first_leaf.tolist(), tree.end_leaf.tolist()
        owner, idle = self._owner.tolist(), self._idle.tolist()
        size = Counter(owner)
        for vertex in range(len(content) - 1, -1, -1):
            children = tree.children(vertex).tolist()
            if not children or flat[vertex]:
                span = range(first[vertex], end[vertex])
                units = Counter(owner[leaf] for leaf in span)
                held: Hashable = tuple(sorted(self._held(unit, units, size) for unit in units))
                free = sum(idle[leaf] for leaf in span)
                what: Hashable = (flat[vertex], len(span), free, held)
            else:
                what = tuple(sorted(content[child] for child in children))
            shape = bool(children), int(tree.rank[vertex])
            content[vertex] = names.setdefault((shape, what), len(names))
        return content

    def _held(self, unit: int, here: Counter[int], size: Counter[int]) -> tuple[int, int, int]:
        """Return a unit's kind and number (-1) if it is here whole, else itself."""
        if unit < 0:
            return -1, -1, 0
        if here[unit] == size[unit]:
            return self._kinds[unit], -1, 0
        return -1, unit, here[unit]
