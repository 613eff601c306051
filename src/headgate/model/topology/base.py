"""What all topologies can be asked; every query works on arrays, without a loop over leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headgate.base.arrays import Floats, Ints
from headgate.base.errors import SpecError


class BadTopology(SpecError):
    """Values that describe no topology: a cycle, a bandwidth of 0, a shape that does not match."""

    code = "bad_topology"


class Topology(ABC):
    """Leaves that compute, routers, and directed links; immutable.

    Vertices are numbered: the leaves and routers of a mesh share their numbers, those of other
    shapes differ. A full-duplex link is two directed links. `capacity` is the bandwidth of each
    link in bytes per second, `tail` and `head` are the vertices that it leads from and to. `names`
    are the names of the leaves, empty if they have none.
    """

    leaves: int
    links: int
    vertices: int
    capacity: Floats
    tail: Ints
    head: Ints
    names: tuple[str, ...]

    @abstractmethod
    def hops(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Return the links on the route between leaves, element by element; arrays broadcast."""

    @abstractmethod
    def routes(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        """Return the routes from each leaf of `a` to that of `b`, as offsets and links.

        Route i is `links[offset[i]:offset[i + 1]]`, in order; arrays of one dimension broadcast.
        O(pairs x longest route).
        """

    @abstractmethod
    def routers_of(self, leaves: ArrayLike) -> Ints:
        """Return the routers that messages among the leaves cross, as vertices, ascending."""

    @abstractmethod
    def diameter(self, leaves: ArrayLike) -> int:
        """Return the most hops between two of the leaves; 0 for fewer than two leaves."""

    @abstractmethod
    def narrowest(self, leaves: ArrayLike) -> float:
        """Return the least bandwidth of a link that messages among the leaves cross.

        In bytes per second; infinite if they cross none.
        """

    @abstractmethod
    def least_diameter(self, count: int) -> int:
        """Return the least diameter of a closed set of its shape with at least `count` leaves.

        Among subtrees of a tree, boxes of a mesh. Raises BadTopology for more leaves than it has.
        """

    @abstractmethod
    def label(self, vertex: int) -> str:
        """Return the name of a vertex for people."""

    def route(self, a: int, b: int) -> Ints:
        """Return the links from one leaf to another, in order."""
        return self.routes([a], [b])[1]

    def is_closed(self, leaves: ArrayLike, routers: ArrayLike) -> bool:
        """Return whether messages among the leaves cross no routers but these."""
        return bool(np.isin(self.routers_of(leaves), np.asarray(routers)).all())

    def link_label(self, link: int) -> str:
        """Return the name of a link for people: `rack1 -> rack1/n3`."""
        return f"{self.label(int(self.tail[link]))} -> {self.label(int(self.head[link]))}"

    def check_count(self, count: int) -> None:
        """Raise BadTopology unless 1 <= `count` <= leaves."""
        if not 1 <= count <= self.leaves:
            raise BadTopology(f"{count} leaves of a topology that has {self.leaves}")


def integers(values: ArrayLike) -> Ints:
    """Return values as an array of integers, without copying one that is."""
    return np.asarray(values, np.int64)


def frozen(values: Any) -> Any:
    """Return the array, made read-only."""
    values.setflags(write=False)
    return values


def checked_bandwidths(bandwidths: float | Sequence[float], count: int, what: str) -> Floats:
    """Return `count` bandwidths in bytes per second; one value stands for all."""
    values = np.asarray(bandwidths, np.float64)
    if values.ndim == 0:
        values = np.full(count, float(values))
    if values.shape != (count,):
        raise BadTopology(f"{values.size} bandwidths for {count} {what}")
    check_positive(values)
    return values


def check_positive(bandwidths: Floats) -> None:
    """Raise BadTopology unless all bandwidths are positive; infinite ones are."""
    bad = ~(bandwidths > 0)
    if bad.any():
        raise BadTopology(f"a bandwidth must be more than 0, not {bandwidths[bad][0]:g}")


def checked_names(names: Sequence[str], leaves: int) -> tuple[str, ...]:
    """Return the names of all leaves, or none."""
    if names and len(names) != leaves:
        raise BadTopology(f"{len(names)} names for {leaves} leaves")
    return tuple(names)


def offsets_of(counts: Any) -> Ints:
    """Return where each of consecutive lists begins, and the end of the last, from their counts."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
