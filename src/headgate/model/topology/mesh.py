"""Linear arrays, meshes and tori of up to three dimensions, with dimension-order routing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model.topology.base import (
    BadTopology,
    Topology,
    checked_bandwidths,
    checked_names,
    frozen,
    integers,
    offsets_of,
)

MOST_DIMENSIONS = 3


class Mesh(Topology):
    """A mesh, torus (`wrap` in every dimension) or mixture: each leaf has a router of its number.

    Leaves are numbered in row-major order. A message travels along the first dimension, then the
    second, then the third; where a dimension wraps, the shorter way around, upwards if both are
    equal. Wrapping adds nothing to a dimension of two, and `wrap` is False there. `bandwidth` is
    that of the links of each dimension, in bytes per second and direction. Hops count from router
    to router.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        wrap: bool | Sequence[bool] = False,
        bandwidth: float | Sequence[float] = 1.0,
        names: Sequence[str] = (),
    ) -> None:
        """Raise BadTopology for other than 1 to 3 dimensions, and for values that do not match."""
        self.shape = tuple(int(size) for size in shape)
        dimensions = len(self.shape)
        if not 1 <= dimensions <= MOST_DIMENSIONS or min(self.shape) < 1:
            raise BadTopology(f"a mesh has 1 to 3 dimensions of at least 1, not {list(shape)}")
        wraps = [wrap] * dimensions if isinstance(wrap, bool) else list(wrap)
        if len(wraps) != dimensions:
            raise BadTopology(f"{len(wraps)} values of wrap for {dimensions} dimensions")
        self.wrap = tuple(bool(w) and size > 2 for w, size in zip(wraps, self.shape, strict=True))
        self.bandwidth: Floats = frozen(checked_bandwidths(bandwidth, dimensions, "dimensions"))
        self.leaves = self.vertices = math.prod(self.shape)
        self.names = checked_names(names, self.leaves)
        self.coordinates: Ints = frozen(
            np.stack(np.unravel_index(np.arange(self.leaves), self.shape))
        )
        self._sizes = np.array(self.shape)[:, None]
        self._number_links()

    @classmethod
    def array(
        cls, count: int, bandwidth: float = 1.0, *, wrap: bool = False, names: Sequence[str] = ()
    ) -> Mesh:
        """Return a linear array of `count` leaves, or, with `wrap`, a ring."""
        return cls([count], wrap=wrap, bandwidth=bandwidth, names=names)

    def _number_links(self) -> None:
        """Number the links by dimension, direction (up, then down), and leaf that they lead from.

        `_link[dimension, direction, leaf]` is -1 where a mesh ends.
        """
        self._link = np.full((len(self.shape), 2, self.leaves), -1)
        numbers = np.arange(self.leaves).reshape(self.shape)
        tails, heads, dimensions = [], [], []
        links = 0
        for axis, (size, wrap) in enumerate(zip(self.shape, self.wrap, strict=True)):
            for direction, step in enumerate((1, -1)):
                neighbour = self.coordinates[axis] + step
                tail = np.flatnonzero((neighbour >= 0) & (neighbour < size) | wrap)
                self._link[axis, direction, tail] = np.arange(links, links + len(tail))
                links += len(tail)
                tails.append(tail)
                heads.append(np.roll(numbers, -step, axis).ravel()[tail])
                dimensions.append(np.full(len(tail), axis))
        self.links = links
        self.tail: Ints = frozen(np.concatenate(tails))
        self.head: Ints = frozen(np.concatenate(heads))
        self.capacity: Floats = frozen(self.bandwidth[np.concatenate(dimensions)])

    # --- queries ------------------------------------------------------------------------------

    def _steps(self, a: Ints, b: Ints) -> Ints:
        """Return the signed hops in each dimension from leaves to leaves, as routed."""
        ahead: Ints = self.coordinates[:, b] - self.coordinates[:, a]
        for axis, (size, wrap) in enumerate(zip(self.shape, self.wrap, strict=True)):
            if wrap:
                back = (size - 1) // 2
                ahead[axis] = (ahead[axis] + back) % size - back
        return ahead

    def hops(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the hops from router to router."""
        result: Ints = np.abs(self._steps(integers(a), integers(b))).sum(axis=0)
        return result

    def routes(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        """Return the routes of pairs; see `Topology`."""
        a, b = np.broadcast_arrays(np.atleast_1d(integers(a)), integers(b))
        steps = self._steps(a, b)
        counts = np.abs(steps)
        offset = offsets_of(counts.sum(axis=0))
        links = np.empty(offset[-1], np.int64)
        position, begin = self.coordinates[:, a].copy(), offset[:-1].copy()
        for axis, size in enumerate(self.shape):
            pair = np.repeat(np.arange(len(a)), counts[axis])
            step = np.arange(len(pair)) - np.repeat(offsets_of(counts[axis])[:-1], counts[axis])
            sign = np.sign(steps[axis])
            place = position[:, pair]
            place[axis] = (place[axis] + sign[pair] * step) % size
            tail = np.ravel_multi_index(tuple(place), self.shape)
            links[begin[pair] + step] = self._link[axis, (sign[pair] < 0).astype(np.int64), tail]
            begin += counts[axis]
            position[axis] = self.coordinates[axis, b]
        return offset, links

    def routers_of(self, leaves: ArrayLike) -> Ints:
        """Return the routers that messages among the leaves cross, ascending.

        O(leaves of the box around them), in dimensions that wrap O(size).
        """
        chosen = np.unique(integers(leaves))
        if len(chosen) < 2:
            return np.zeros(0, np.int64)
        coordinates = self.coordinates[:, chosen]
        low = np.where(self.wrap, 0, coordinates.min(axis=1))[:, None]
        sides = np.where(self.wrap, self.shape, np.ptp(coordinates, axis=1) + 1).tolist()
        occupied = np.zeros(sides, bool)
        occupied[tuple(coordinates - low)] = True
        crossed = np.zeros(sides, bool)
        for axis, size in enumerate(sides):
            # on the way along this dimension a message has the reader's coordinates before it,
            # the sender's after it
            split = occupied.reshape(math.prod(sides[:axis]), size, -1)
            readers, senders = _any(split, axis=2), _any(split, axis=0)
            covered = _covered(readers, senders, wrap=self.wrap[axis])
            crossed |= covered.reshape(sides)
        inside = np.stack(np.nonzero(crossed)) + low
        return integers(np.ravel_multi_index(tuple(inside), self.shape))

    def diameter(self, leaves: ArrayLike) -> int:
        """Return the most hops between two leaves. O(leaves); O(all leaves) around a torus."""
        chosen = integers(leaves)
        if chosen.size < 2:
            return 0
        coordinates = self.coordinates[:, chosen.ravel()]
        spread = np.ptp(coordinates, axis=1)
        sizes = self._sizes[:, 0]
        if (np.array(self.wrap) & (2 * spread >= sizes)).any():
            return self._diameter_around(chosen)
        # the largest L1 distance is the widest spread of a signed sum of coordinates
        signs = np.array(list(itertools.product(*[[1, -1]] * (len(self.shape) - 1))))
        sums = coordinates[0] + signs @ coordinates[1:]
        return int(np.ptp(sums, axis=1).max())

    def _diameter_around(self, chosen: Ints) -> int:
        """Return the diameter from the differences of all pairs, by autocorrelation."""
        occupied = np.zeros(self.shape)
        occupied.ravel()[chosen] = 1.0
        padded = [n if w else 2 * n for n, w in zip(self.shape, self.wrap, strict=True)]
        axes = tuple(range(len(self.shape)))
        spectrum = np.fft.rfftn(occupied, padded, axes)
        pairs = np.fft.irfftn(spectrum * spectrum.conj(), padded, axes)
        apart = np.stack(np.nonzero(pairs > 0.5))
        return int(np.minimum(apart, np.array(padded)[:, None] - apart).sum(axis=0).max())

    def narrowest(self, leaves: ArrayLike) -> float:
        """Return the least bandwidth of a link that messages among the leaves cross."""
        chosen = integers(leaves)
        if chosen.size == 0:
            return np.inf
        crossed = np.ptp(self.coordinates[:, chosen.ravel()], axis=1) > 0
        return float(self.bandwidth[crossed].min(initial=np.inf))

    def least_diameter(self, count: int) -> int:
        """Return the least diameter of a box with at least `count` leaves that fits."""
        self.check_count(count)
        others = self.shape[1:]
        sides = np.indices(others).reshape(len(others), math.prod(others)) + 1
        first = -(-count // sides.prod(axis=0))
        boxes = np.concatenate([first[None], sides])[:, first <= self.shape[0]]
        reach = boxes - 1
        for axis, (size, wrap) in enumerate(zip(self.shape, self.wrap, strict=True)):
            if wrap:
                reach[axis] = np.minimum(reach[axis], size // 2)
        return int(reach.sum(axis=0).min())

    def is_closed_side(self, axis: int, side: int) -> bool:
        """Return whether boxes with this side are closed along a dimension.

        Where it wraps, messages between the ends of a side of more than half take the other way.
        """
        size = self.shape[axis]
        return side == size or not self.wrap[axis] or 2 * (side - 1) < size

    def label(self, vertex: int) -> str:
        """Return the name of a leaf, or its coordinates: `(3, 0)`."""
        if self.names:
            return self.names[vertex]
        return f"({', '.join(str(int(coordinate)) for coordinate in self.coordinates[:, vertex])})"


def _covered(readers: Bools, senders: Bools, *, wrap: bool) -> Bools:
    """Return which routers messages cross along one dimension of `size` coordinates.

    `readers[before, c]` flags a reader with coordinate c, `senders[c, after]` a sender, where
    `before` and `after` are the coordinates in earlier and later dimensions. From each sender,
    messages cover the coordinates up to the farthest reader in each direction.
    """
    size = len(senders)
    low, high = ((size - 1) // 2, size // 2) if wrap else (size - 1, size - 1)
    line = np.arange(3 * size)
    place = np.tile(readers, 3) if wrap else np.pad(readers, ((0, 0), (size, size)))
    last = np.maximum.accumulate(np.where(place, line, -1), axis=1)
    first = np.minimum.accumulate(np.where(place, line, 3 * size)[:, ::-1], axis=1)[:, ::-1]
    middle = line[size : 2 * size]
    up, down = (
        np.maximum(last[:, middle + high], middle),
        np.minimum(first[:, middle - low], middle),
    )
    sender, after = np.nonzero(senders)
    before = np.flatnonzero(readers.any(axis=1))
    edges = np.zeros((len(readers), 3 * size + 1, senders.shape[1]), np.int32)
    rows = before[:, None]
    np.add.at(edges, (rows, down[rows, sender], after), 1)
    np.add.at(edges, (rows, up[rows, sender] + 1, after), -1)
    inside = np.cumsum(edges[:, :-1], axis=1) > 0
    return _any(inside.reshape(len(readers), 3, size, senders.shape[1]), axis=1)


def _any(flags: Bools, axis: int) -> Bools:
    result: Bools = np.logical_or.reduce(flags, axis=axis)
    return result
