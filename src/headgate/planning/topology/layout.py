"""What placers ask of a topology: which sets of sites are closed, compact, or near each other.

A site is where tasks run: a leaf of the topology, or a node of a cluster. A set is *closed* if the
messages within it cross no router outside the smallest subtree or box that contains it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np

from headgate.base.arrays import Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Tasks of one demand that start together.

    By site: `room` is how many of them may start there, `idle` whether nothing else uses it, nor
    the closed set of which it is part, `capacity` how many fit while nothing runs; `one_each` if
    that is one everywhere.
    """

    count: int
    room: Ints
    idle: Bools
    capacity: Ints
    one_each: bool = False

    @classmethod
    def on(cls, used: Bools, count: int) -> Self:
        """Return the request for `count` whole sites of those that are not used."""
        idle = ~used
        ones = np.ones(len(used), np.int64)
        return cls(count=count, room=idle.astype(np.int64), idle=idle, capacity=ones, one_each=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """A site for each task, and all sites that no other job may use; whether these are closed."""

    sites: Ints
    taken: Ints
    is_closed: bool = False


class Layout(ABC):
    """Sites in a topology. Sets of sites are arrays of their numbers.

    `in_order` are the sites in the order of their leaves; `group`, by site, is the part of the
    machine that it is in: a subtree below the root, a row of a mesh. In a layout that `is_flat`,
    all sites are equally far from each other.
    """

    sites: int
    is_flat = False
    in_order: Ints
    group: Ints

    @abstractmethod
    def template(self, request: Request) -> Ints | None:
        """Return an idle closed set of the least diameter that any has which holds the tasks."""

    @abstractmethod
    def may_be_closed(self, request: Request) -> bool:
        """Return whether the idle machine has a closed set that holds the tasks."""

    @abstractmethod
    def smallest_closed(self, request: Request) -> Ints | None:
        """Return the idle closed set with the fewest sites that has room for the tasks."""

    @abstractmethod
    def compact(self, request: Request) -> Ints | None:
        """Return the sites for the tasks, one each, in a subtree or box of least diameter."""

    @abstractmethod
    def best_fit(self, request: Request) -> Ints | None:
        """Return sites for the tasks, one each, in the subtree whose room is closest to them."""

    @abstractmethod
    def sets(self, request: Request, most: int) -> list[Ints]:
        """Return sets of sites that hold the tasks and have no part that does, `most` at most.

        Those of less diameter first, then those with fewer sites that are not idle, then with less
        room.
        """

    @abstractmethod
    def closed_around(self, sites: Ints) -> Ints | None:
        """Return the smallest closed set that contains some sites, at least one.

        None if so many sites fit a closed set of lesser diameter.
        """

    @abstractmethod
    def hops(self, a: Ints, b: Ints) -> Ints:
        """Return the hops between sites, element by element; arrays broadcast."""


def filled(order: Ints, room: Ints, count: int) -> Ints | None:
    """Return a site for each task, filling the sites in an order; None without enough room."""
    most = np.minimum(room[order], count)
    end = np.cumsum(most)
    if not len(end) or end[-1] < count:
        return None
    last = int(np.searchsorted(end, count))
    sites: Ints = np.repeat(order[: last + 1], most[: last + 1])[:count]
    return sites


def before(counts: Ints | Bools) -> Ints:
    """Return the sums of all values before each index, and of all."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
