"""Sites in a tree: subtrees are intervals of sites, so counts are differences of sums."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model.topology import Tree
from headgate.planning.topology.layout import Layout, Request, before, filled


class Subtrees(Layout):
    """Sites at vertices of a tree, none below another one; subtrees without sites are left out.

    Subtrees are in the order of their diameters, then sites, then from left to right, so that the
    first one that suffices is the best. Every search costs O(sites + subtrees).
    """

    def __init__(self, tree: Tree, vertex: Ints | None = None) -> None:
        """`vertex` is that of each site, by default the leaves are the sites."""
        vertex = tree.leaf_vertex if vertex is None else vertex
        self._tree, self._vertex = tree, vertex
        self.sites = len(vertex)
        self.in_order = np.argsort(vertex, kind="stable")
        self._is_sorted = bool((np.diff(self.in_order) > 0).all())
        self._place = np.empty_like(self.in_order)
        self._place[self.in_order] = np.arange(self.sites)
        in_order = vertex[self.in_order]
        first, end = (
            np.searchsorted(in_order, np.arange(tree.vertices)),
            np.searchsorted(in_order, tree.end),
        )
        size = end - first
        span = tree.subtree_diameters()
        order = np.lexsort((first, size, span))
        self._kept: Ints = order[size[order] > 0]
        self._first, self._end = first[self._kept], end[self._kept]
        self._size, self._span = size[self._kept], span[self._kept]
        self.is_flat = not ((self._size > 1) & (self._size < self.sites)).any()
        self._spans, starts = np.unique(self._span, return_index=True)
        self._levels = [slice(a, b) for a, b in np.stack([starts, [*starts[1:], len(order)]]).T]
        most = [int(self._size[level].max()) for level in self._levels]
        self._most = np.maximum.accumulate(np.array(most, np.int64)) if most else self._size

    # --- queries -------------------------------------------------------------------------------

    def template(self, request: Request) -> Ints | None:
        """Return an idle subtree of the least diameter of any that holds the tasks."""
        level = self._least(request)
        if level is None:
            return None
        room = self._sums(request.room, level)
        fits = room >= request.count
        if request.one_each:
            fits &= room == self._size[level]
        elif fits.any():
            fits &= self._sums(~request.idle, level) == 0
        index = int(fits.argmax()) if len(fits) else 0
        return self._sites_of(level.start + index) if fits[index] else None

    def may_be_closed(self, request: Request) -> bool:
        """Return whether a subtree of the idle tree holds the tasks."""
        return self._least(request) is not None

    def smallest_closed(self, request: Request) -> Ints | None:
        """Return the idle subtree with the fewest sites that has room for the tasks."""
        every = slice(0, len(self._kept))
        fits = self._sums(request.room, every) >= request.count
        fits &= self._sums(~request.idle, every) == 0
        some = np.flatnonzero(fits)
        return self._sites_of(int(some[self._size[some].argmin()])) if len(some) else None

    def compact(self, request: Request) -> Ints | None:
        """Return sites in a subtree of least diameter with enough room, that with least room."""
        for level in self._levels:
            room = self._sums(request.room, level)
            fits = np.flatnonzero(room >= request.count)
            if len(fits):
                best = level.start + int(fits[room[fits].argmin()])
                return self._within(best, request.room, request.count)
        return None

    def best_fit(self, request: Request) -> Ints | None:
        """Return sites in the subtree whose room is closest to the tasks, the lowest such one.

        Where sites hold several tasks, of the subtrees that hold them on the fewest sites. O(kinds
        of room x (sites + subtrees)).
        """
        every = slice(0, len(self._kept))
        room = self._sums(request.room, every)
        fits = np.flatnonzero(room >= request.count)
        if not len(fits):
            return None
        usable = np.minimum(request.room, request.count)
        best = int(
            fits[np.lexsort((room[fits], self._sites_needed(usable, request.count, fits)))[0]]
        )
        roomiest = np.sort(usable[self._sites_of(best)])[::-1]
        least = roomiest[np.searchsorted(np.cumsum(roomiest), request.count)]
        return self._within(best, np.where(usable >= least, request.room, 0), request.count)

    def sets(self, request: Request, most: int) -> list[Ints]:
        """Return subtrees that hold the tasks and have no part that does; see `Layout.sets`."""
        every = slice(0, len(self._kept))
        room = self._sums(request.room, every)
        fits = np.flatnonzero(room >= request.count)
        part_fits = np.zeros(len(room) + 1, bool)
        part_fits[self._above[fits]] = True
        fits = fits[~part_fits[fits]]
        if len(fits) > 1:
            busy = self._sums(~request.idle, every)[fits]
            fits = fits[np.lexsort((room[fits], busy, self._span[fits]))]
        return [self._sites_of(subtree) for subtree in fits[:most].tolist()]

    def closed_around(self, sites: Ints) -> Ints | None:
        """Return the smallest subtree with some sites, None if so many fit a lesser one."""
        subtree = self._around(sites)
        least = self._spans[np.searchsorted(self._most, len(sites))]
        return self._sites_of(subtree) if self._span[subtree] <= least else None

    def hops(self, a: Ints, b: Ints) -> Ints:
        """Return the hops between sites; of sites above leaves, those of their first leaves."""
        leaf = self._tree.first_leaf[self._vertex]
        return self._tree.hops(leaf[a], leaf[b])

    @cached_property
    def group(self) -> Ints:  # type: ignore[override]  # computed here
        """The subtree of each site below the lowest vertex that is above all sites."""
        tree = self._tree
        root = self._kept[np.flatnonzero(self._size == self.sites)[0]] if self.sites else 0
        below = np.full(tree.vertices, -1)
        for number, child in enumerate(tree.children(int(root)).tolist()):
            below[child : tree.end[child]] = number
        group: Ints = np.maximum(below[self._vertex], 0)
        return group

    # --- parts ---------------------------------------------------------------------------------

    def _least(self, request: Request) -> slice | None:
        """Return the subtrees of the least diameter at which one holds the tasks while idle."""
        if request.one_each:
            index = int(np.searchsorted(self._most, request.count))
            return self._levels[index] if index < len(self._levels) else None
        sums = self._before(request.capacity)
        for level in self._levels:
            room = sums[self._end[level]] - sums[self._first[level]]
            if room.max(initial=0) >= request.count:
                return level
        return None

    def _before(self, counts: Ints | Bools) -> Ints:
        return before(counts if self._is_sorted else counts[self.in_order])

    def _sums(self, counts: Ints | Bools, level: slice) -> Ints:
        """Return the sum of counts, by site, in each subtree."""
        sums = self._before(counts)
        result: Ints = sums[self._end[level]] - sums[self._first[level]]
        return result

    def _sites_needed(self, room: Ints, count: int, subtrees: Ints) -> Ints:
        """Return the least number of sites that hold the tasks in each of some subtrees."""
        needed = np.zeros(len(subtrees), np.int64)
        capacities = np.unique(room)[::-1]
        if capacities[0] <= 1:
            return needed + count
        left = np.full(len(subtrees), count)
        for capacity in capacities[capacities > 0].tolist():
            sums = self._before(room == capacity)
            there = sums[self._end[subtrees]] - sums[self._first[subtrees]]
            used = np.minimum(there, -(-left // capacity))
            needed += used
            left = np.maximum(left - used * capacity, 0)
        return needed

    def _around(self, sites: Ints) -> int:
        """Return the smallest subtree that contains some sites, at least one."""
        place, tree = self._place[sites], self._tree
        last = int(self._vertex[self.in_order[place.max()]])
        vertex = int(self._vertex[self.in_order[place.min()]])
        while tree.end[vertex] <= last:
            vertex = int(tree.parent[vertex])
        return int(self._number[vertex])

    def _sites_of(self, subtree: int) -> Ints:
        return self.in_order[self._first[subtree] : self._end[subtree]]

    @cached_property
    def _above(self) -> Ints:
        """The subtree that each one is a part of, -1 for the whole tree."""
        above = self._number[np.maximum(self._tree.parent[self._kept], 0)]
        above[self._kept == 0] = -1
        return above

    @cached_property
    def _number(self) -> Ints:
        """The subtree at each vertex of the tree, -1 without sites."""
        number = np.full(self._tree.vertices, -1)
        number[self._kept] = np.arange(len(self._kept))
        return number

    def _within(self, subtree: int, room: Ints, count: int) -> Ints:
        """Return sites for tasks in a subtree with enough room, in as few of its parts as possible.

        The roomiest parts whole; of the last one, again so, where the least room is left over.
        """
        sums, chosen = self._before(room), list[Ints]()
        while True:
            here = int(sums[self._end[subtree]] - sums[self._first[subtree]])
            parts = self._number[self._tree.children(int(self._kept[subtree]))]
            parts = parts[parts >= 0]
            if here == count or not len(parts):
                chosen.append(self._some_of(subtree, room, count))
                break
            rooms = sums[self._end[parts]] - sums[self._first[parts]]
            for part in np.argsort(-rooms, kind="stable").tolist():
                if (rooms[rooms > 0] >= count).any() or rooms[part] > count:
                    break
                chosen.append(self._some_of(int(parts[part]), room, int(rooms[part])))
                count -= int(rooms[part])
                rooms[part] = 0
            if not count:
                break
            fits = np.flatnonzero(rooms >= count)
            subtree = int(parts[fits[rooms[fits].argmin()]])
        sites = np.concatenate(chosen)
        return sites[np.argsort(self._place[sites], kind="stable")]

    def _some_of(self, subtree: int, room: Ints, count: int) -> Ints:
        sites = filled(self._sites_of(subtree), room, count) if count else self.in_order[:0]
        assert sites is not None, "a subtree is chosen that has room"
        return sites
