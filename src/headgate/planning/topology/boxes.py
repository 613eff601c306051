"""Sites in a mesh or torus: boxes of idle sites are found in one integer, a bit for each site."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Bools, Ints
from headgate.model.topology import Mesh, Tree
from headgate.planning.topology.layout import Layout, Request, filled
from headgate.planning.topology.subtrees import Subtrees

Sides = tuple[int, ...]
T = TypeVar("T", bound=np.generic)


class Boxes(Layout):
    """Sites at leaves of a mesh; some leaves may have none.

    To find the boxes of some sides of which all sites are idle, the integer of idle sites is
    shifted and intersected with itself, O(log side) times for each dimension: O(sites / 64) each.
    Between rows there is a bit that is never set; where a dimension wraps, it is repeated.
    """

    def __init__(self, mesh: Mesh, leaf: Ints | None = None) -> None:
        """`leaf` is that of each site, by default every leaf is a site."""
        self._mesh = mesh
        self._leaf = np.arange(mesh.leaves) if leaf is None else leaf
        self.sites = len(self._leaf)
        self.in_order = np.argsort(self._leaf, kind="stable")
        self._is_whole = leaf is None
        self._site = np.full(mesh.leaves, -1)
        self._site[self._leaf] = np.arange(self.sites)
        self.group = mesh.coordinates[0][self._leaf]
        spread = tuple(2 * n - 1 if w else n for n, w in zip(mesh.shape, mesh.wrap, strict=True))
        self._padded = (spread[0], *(n + 1 for n in spread[1:]))
        self._inner = tuple(slice(0, n) for n in spread)
        self._stride = [math.prod(self._padded[axis + 1 :]) for axis in range(len(spread))]
        self._sides_of: dict[int, list[tuple[int, Sides]]] = {}

    # --- queries -------------------------------------------------------------------------------

    def template(self, request: Request) -> Ints | None:
        """Return an idle box of the least diameter that any has which holds the tasks.

        Of boxes of that diameter the smallest. If sites differ, those with most room are tried
        first, so that the box has the fewest sites.
        """
        for room, count in _by_room(request.room * request.idle, request):
            sides = self._sides(count)
            least = self._least(request, room, sides)
            boxes = [box for diameter, box in sides if diameter == least]
            sites = self._first_box(request.idle & (request.room >= room), boxes)
            if sites is not None:
                return sites
        return None

    def may_be_closed(self, request: Request) -> bool:
        """Return whether a box of the idle mesh holds the tasks."""
        return any(
            self._least(request, room, self._sides(count)) >= 0
            for room, count in _by_room(request.capacity, request)
        )

    def smallest_closed(self, request: Request) -> Ints | None:
        """Return the idle box with the fewest sites that has room for the tasks."""
        for room, count in _by_room(request.room * request.idle, request):
            by_size = sorted(self._sides(count), key=lambda each: (math.prod(each[1]), each))
            idle = request.idle & (request.room >= room)
            sites = self._first_box(idle, [box for _, box in by_size])
            if sites is not None:
                return sites
        return None

    def compact(self, request: Request) -> Ints | None:
        """Return sites in a box of least diameter with enough room, those nearest its middle.

        O(diameter x sites x log) of the box.
        """
        grid = np.zeros(self._mesh.leaves, np.int64)
        grid[self._leaf] = request.room
        sums = self._repeated(grid)
        for axis in range(sums.ndim):
            zero = [(1, 0) if each == axis else (0, 0) for each in range(sums.ndim)]
            sums = np.pad(np.cumsum(sums, axis=axis), zero)
        low, high = -1, 1
        most = sum(self._reaches)
        if request.count > request.room.sum():
            return None
        while high < most and self._roomy(sums, high, request.count) is None:
            low, high = high, 2 * high
        high = min(high, most)
        while high - low > 1:
            middle = (low + high) // 2
            if self._roomy(sums, middle, request.count) is None:
                low = middle
            else:
                high = middle
        box = self._roomy(sums, high, request.count)
        return None if box is None else self._central(request, *box)

    def best_fit(self, request: Request) -> Ints | None:
        """Return sites in the half of a half ... of the mesh whose room is closest to the tasks."""
        return self._halves.best_fit(request)

    def sets(self, request: Request, most: int) -> list[Ints]:
        """Return an idle closed box, the best half, and a compact set, as far as there are any."""
        tries = (self.template, self.best_fit, self.compact)
        found = [np.unique(sites) for each in tries if (sites := each(request)) is not None]
        return found[:most]

    def closed_around(self, sites: Ints) -> Ints | None:
        """Return the smallest closed box with some sites, None if so many fit a lesser one."""
        lines = self._lines_around(sites)
        diameter = sum(map(self._reach, range(len(lines)), map(len, lines)))
        least = min(self._sides(len(sites)))[0]
        return self._sites_at(lines) if diameter <= least else None

    def hops(self, a: Ints, b: Ints) -> Ints:
        """Return the hops between sites."""
        return self._mesh.hops(self._leaf[a], self._leaf[b])

    def _lines_around(self, sites: Ints) -> list[Ints]:
        """Return the coordinates, by dimension, of the smallest closed box around some sites."""
        coordinates = self._mesh.coordinates[:, self._leaf[sites]]
        lines = []
        for axis, (size, wrap) in enumerate(zip(self._mesh.shape, self._mesh.wrap, strict=True)):
            used = np.unique(coordinates[axis])
            first, side = int(used[0]), int(used[-1] - used[0]) + 1
            if wrap:
                gaps = np.diff(np.append(used, used[0] + size))
                widest = int(gaps.argmax())
                first, side = int(used[(widest + 1) % len(used)]), size - int(gaps[widest]) + 1
            if not self._mesh.is_closed_side(axis, side):
                first, side = 0, size
            lines.append((first + np.arange(side)) % size)
        return lines

    # --- boxes ---------------------------------------------------------------------------------

    def _sides(self, count: int) -> list[tuple[int, Sides]]:
        """Return the sides of closed boxes of `count` sites or more, with their diameters.

        For all sides but the first, the least first one; by diameter, then size, then evenness.
        """
        if count not in self._sides_of:
            mesh, boxes = self._mesh, set[tuple[int, Sides]]()
            for others in itertools.product(*[range(1, n + 1) for n in mesh.shape[1:]]):
                first = -(-count // math.prod(others))
                while first < mesh.shape[0] and not mesh.is_closed_side(0, first):
                    first += 1
                sides = (first, *others)
                if first <= mesh.shape[0] and self._is_least(sides, count):
                    reach = map(self._reach, range(len(sides)), sides)
                    boxes.add((sum(reach), sides))
            key = lambda each: (each[0], math.prod(each[1]), max(each[1]), each[1])  # noqa: E731
            self._sides_of[count] = sorted(boxes, key=key)
        return self._sides_of[count]

    def _is_least(self, sides: Sides, count: int) -> bool:
        """Return whether boxes of these sides are closed, and none of a shorter side would do."""
        is_closed, size = self._mesh.is_closed_side, math.prod(sides)
        return all(
            is_closed(axis, side)
            and not (side > 1 and size // side * (side - 1) >= count and is_closed(axis, side - 1))
            for axis, side in enumerate(sides)
        )

    def _reach(self, axis: int, side: int) -> int:
        """Return the hops between the ends of a side, or half way around."""
        return min(side - 1, self._reaches[axis])

    @cached_property
    def _reaches(self) -> list[int]:
        """The most hops in each dimension."""
        mesh = self._mesh
        return [n // 2 if w else n - 1 for n, w in zip(mesh.shape, mesh.wrap, strict=True)]

    def _least(self, request: Request, room: int, sides: list[tuple[int, Sides]]) -> int:
        """Return the least diameter of a box that holds the tasks while nothing runs."""
        if self._is_whole and (request.one_each or bool((request.capacity >= room).all())):
            return sides[0][0] if sides else -1
        bits = self._bits(request.capacity >= room)
        return next((diameter for diameter, box in sides if self._found(bits, box)), -1)

    def _first_box(self, idle: Bools, boxes: list[Sides]) -> Ints | None:
        """Return the sites of the first box, in the order of sides, that is idle."""
        if not boxes or np.count_nonzero(idle) < min(map(math.prod, boxes)):
            return None
        bits = self._bits(idle)
        for sides in boxes:
            origins = self._found(bits, sides)
            if origins:
                origin = np.unravel_index((origins & -origins).bit_length() - 1, self._padded)
                return self._box(tuple(map(int, origin)), sides)
        return None

    def _found(self, bits: int, sides: Sides) -> int:
        """Return the bits of the origins of boxes of which all bits are set."""
        for side, stride in zip(sides[::-1], self._stride[::-1], strict=True):
            done = 1
            while done < side and bits:
                step = min(done, side - done)
                bits &= bits >> step * stride
                done += step
        return bits

    def _bits(self, idle: Bools) -> int:
        """Return the integer of some sites."""
        if not self._is_whole:
            grid = np.zeros(self._mesh.leaves, bool)
            grid[self._leaf] = idle
            idle = grid
        padded = np.zeros(self._padded, bool)
        padded[self._inner] = self._repeated(idle)
        return int.from_bytes(np.packbits(padded, bitorder="little").tobytes(), "little")

    def _repeated(self, values: NDArray[T]) -> NDArray[T]:
        """Return values by leaf as a grid, with dimensions that wrap repeated but for the last."""
        grid = values.reshape(self._mesh.shape)
        for axis, wrap in enumerate(self._mesh.wrap):
            if wrap:
                again = [slice(None)] * grid.ndim
                again[axis] = slice(0, -1)
                grid = np.concatenate([grid, grid[tuple(again)]], axis=axis)
        return grid

    def _box(self, origin: Sides, sides: Sides) -> Ints:
        shape = self._mesh.shape
        return self._sites_at(
            [(o + np.arange(n)) % m for o, n, m in zip(origin, sides, shape, strict=True)]
        )

    def _sites_at(self, lines: list[Ints]) -> Ints:
        """Return the sites at all combinations of coordinates, the first slowest."""
        leaves = np.ravel_multi_index(np.ix_(*lines), self._mesh.shape).ravel()
        sites = self._site[leaves]
        return sites if self._is_whole else sites[sites >= 0]

    # --- sets that are not closed --------------------------------------------------------------

    def _roomy(self, sums: Ints, diameter: int, count: int) -> tuple[Sides, Sides] | None:
        """Return the origin and sides of a box of at most a diameter with room for the tasks."""
        for sides in self._largest(diameter):
            room = sums
            for axis, side in enumerate(sides):
                after, before = [slice(None)] * room.ndim, [slice(None)] * room.ndim
                after[axis], before[axis] = slice(side, None), slice(0, -side)
                room = room[tuple(after)] - room[tuple(before)]
            best = int(room.argmax())
            if room.ravel()[best] >= count:
                return tuple(int(n) for n in np.unravel_index(best, room.shape)), sides
        return None

    def _largest(self, diameter: int) -> list[Sides]:
        """Return the sides of the largest boxes of at most a diameter, the most even first."""
        most, largest = self._reaches, set[Sides]()
        for others in itertools.product(*[range(min(n, diameter) + 1) for n in most[1:]]):
            left = diameter - sum(others)
            if left >= 0:
                reach = (min(left, most[0]), *others)
                wraps = zip(reach, most, self._mesh.shape, strict=True)
                largest.add(tuple(n if r == m else r + 1 for r, m, n in wraps))
        return sorted(largest, key=lambda sides: (-math.prod(sides), sides))

    def _central(self, request: Request, origin: Sides, sides: Sides) -> Ints | None:
        """Return sites for the tasks in a box, those nearest its middle, in order of leaves."""
        lines = np.indices(sides).reshape(len(sides), -1)
        shape = np.array(self._mesh.shape)[:, None]
        leaves = np.ravel_multi_index(
            tuple((lines + np.array(origin)[:, None]) % shape), self._mesh.shape
        )
        away = np.abs(2 * lines - np.array(sides)[:, None] + 1).sum(axis=0)
        sites = self._site[leaves]
        nearest = np.lexsort((leaves, away))
        nearest = sites[nearest][sites[nearest] >= 0]
        chosen = filled(nearest, request.room, request.count)
        return None if chosen is None else np.sort(chosen)

    @cached_property
    def _halves(self) -> Subtrees:
        """The tree of halves: each box split across its longest side (two-dimensional buddies)."""
        parents: list[int] = []
        vertex = np.zeros(self._mesh.leaves, np.int64)
        grid = np.arange(self._mesh.leaves).reshape(self._mesh.shape)
        rest: list[tuple[int, Ints]] = [(-1, grid)]
        while rest:
            parent, box = rest.pop()
            parents.append(parent)
            here = len(parents) - 1
            if box.size == 1:
                vertex[box.ravel()[0]] = here
                continue
            axis = int(np.argmax(box.shape))
            halves = np.array_split(box, [1 << (box.shape[axis] - 1).bit_length() - 1], axis)
            rest += [(here, half) for half in halves[::-1]]
        tree = Tree.from_parents(parents)
        position = np.empty(tree.vertices, np.int64)
        position[tree.given] = np.arange(tree.vertices)
        return Subtrees(tree, position[vertex[self._leaf]])


def _by_room(rooms: Ints, request: Request) -> list[tuple[int, int]]:
    """Return the room that sites may be required to have, most first, and how many are needed."""
    if request.one_each:
        return [(1, request.count)]
    return [(n, -(-request.count // n)) for n in np.unique(rooms)[::-1].tolist() if n > 0]
