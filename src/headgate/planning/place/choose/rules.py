"""The rules by which sites are chosen for the tasks of a job that start together.

`closed-minimum` is from Zhang and Lin, Multi-job assignment optimization approach based on closed
minimum graph-partitioning model, Computer Science (China), about 2014; `sequential`, `block`,
`cyclic` and `block-cyclic` are its baselines. `best-fit-subtree` is from Gu, Jin and Liu,
Cloud-edge coordinated scheduling method for deep learning jobs, Journal of Software 36(12), 2025.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.order import nth_of_equals
from headgate.planning.balancers import Balancer
from headgate.planning.topology.layout import Layout, Places, Request, filled


class Placer(ABC):
    """A rule that chooses a site for each task of a request, or none of them."""

    name: str
    keeps_closed = False
    """Whether the closed sets of running jobs are not idle, even where they use no GPU."""
    stays_on_node = False
    """Whether tasks that fit one node start on one, in a part of it."""
    may_wait = False
    """Whether tasks may wait though there is room for them."""
    places_parts = False
    """Whether it chooses for tasks on parts of GPUs, too."""
    weighs_links = False
    """Whether it weighs the links of a cluster, for jobs that communicate."""
    packs_tightly = False
    """Whether single tasks go where those to come miss least, of places that are equal."""
    rounds_up = False
    """Whether it looks for the next power of two of sites."""
    refuses_others = False
    """Whether jobs of other sizes are refused at submission, rather than rounded up."""
    balancer: Balancer | None = None
    """What picks the nodes of single tasks, too, with and without GPUs."""

    @abstractmethod
    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return the sites for the tasks; None if they are to wait, or there is no room."""

    def closed_set(self, layout: Layout, request: Request) -> Ints | None:
        """Return the idle closed set in which the tasks start, None if this needs none."""
        del layout, request
        return None


@dataclass(frozen=True, slots=True)
class ClosedMinimum(Placer):
    """A closed set of least diameter, so that jobs neither share routers nor spread.

    All sites of the set are taken (`reserve: whole`), or those that tasks use (`needed`). Where
    there is no such set, `otherwise` decides: `spread` over sites of least diameter that are not
    closed, `enlarge` to the closed set with the fewest sites, or `wait`. A job for which waiting
    would not help, since even the idle machine has no such set, is spread.
    """

    reserve: str = "whole"
    otherwise: str = "spread"
    name = "closed-minimum"
    stays_on_node = True

    @property
    def keeps_closed(self) -> bool:  # type: ignore[override]  # computed here
        """Whether the closed sets of running jobs are not idle."""
        return self.reserve == "whole"

    @property
    def may_wait(self) -> bool:  # type: ignore[override]  # computed here
        """Whether tasks may wait though there is room for them."""
        return self.otherwise != "spread"

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return sites in the template, or as `otherwise` says."""
        closed = self.closed_set(layout, request)
        if closed is not None:
            sites = filled(closed, request.room, request.count)
            assert sites is not None, "a closed set is chosen that has room"
            taken = closed if self.reserve == "whole" else np.unique(sites)
            return Places(sites=sites, taken=taken, is_closed=True)
        if self.may_wait and layout.may_be_closed(request):
            return None
        return spread(layout, request)

    def closed_set(self, layout: Layout, request: Request) -> Ints | None:
        """Return the template, or a larger closed set, if `otherwise` says so."""
        found = layout.template(request)
        if found is None and self.otherwise == "enlarge":
            found = layout.smallest_closed(request)
        return found


def spread(layout: Layout, request: Request) -> Places | None:
    """Return the sites of least diameter, or if some are in no subtree or box, the first ones."""
    sites = layout.compact(request)
    if sites is None:
        sites = filled(layout.in_order, request.room, request.count)
    return None if sites is None else Places(sites=sites, taken=np.unique(sites))


@dataclass(frozen=True, slots=True)
class BestFitSubtree(Placer):
    """The subtree whose number of idle sites is closest to what the tasks need.

    What is needed is rounded up to a power of two, if there is room for that, so that subtrees
    stay whole: the sites beyond the tasks are taken, too. A mesh is the tree of its halves.
    """

    refuses_others: bool = False
    name = "best-fit-subtree"
    stays_on_node = rounds_up = True

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return sites in the best subtree."""
        rounded = 1 << max(0, request.count - 1).bit_length()
        for count in dict.fromkeys((rounded, request.count)):
            sites = layout.best_fit(replace(request, count=count))
            if sites is not None:
                return Places(sites=sites[: request.count], taken=np.unique(sites))
        return spread(layout, request)


@dataclass(frozen=True, slots=True)
class ByLinks(Placer):
    """The set on which a job that communicates ends soonest; for others, the tightest one.

    On a cluster, times and neighbours are weighed by
    `headgate.planning.place.choose.links`; sites alone are chosen for the least
    diameter.
    """

    name = "links"
    stays_on_node = places_parts = weighs_links = packs_tightly = True

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return sites of least diameter."""
        return spread(layout, request)


@dataclass(frozen=True, slots=True)
class Sequential(Placer):
    """The first sites with room, in the order of leaves."""

    name = "sequential"

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return the first sites."""
        sites = filled(layout.in_order, request.room, request.count)
        return None if sites is None else Places(sites=sites, taken=np.unique(sites))


@dataclass(frozen=True, slots=True)
class Block(Placer):
    """The first block of consecutive sites that all have room; if there is none, the first sites.

    A block of consecutive leaves is a line of a mesh that may continue in the next row.
    """

    name = "block"

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return the first block."""
        room = request.room[layout.in_order]
        run = np.cumsum(room == 0)  # equal for the sites of a block
        some = np.flatnonzero(room)
        first = np.flatnonzero(np.diff(run[some], prepend=-1))
        if len(first):
            sums = np.add.reduceat(np.minimum(room[some], request.count), first)
            fits = np.flatnonzero(sums >= request.count)
            if len(fits):
                begin = some[first[fits[0]]]
                sites = filled(layout.in_order[begin:], request.room, request.count)
                return None if sites is None else Places(sites=sites, taken=np.unique(sites))
        return Sequential().choose(layout, request)


@dataclass(frozen=True, slots=True)
class Cyclic(Placer):
    """`block` tasks to each part of the machine in turn: subtree below the root, row of a mesh.

    In each part the first sites with room are filled one after the other.
    """

    block: int = 1
    name: str = "cyclic"

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return sites of all parts in turn."""
        most = np.minimum(request.room[layout.in_order], request.count)
        sites = np.repeat(layout.in_order, most)
        if len(sites) < request.count:
            return None
        group = layout.group[sites]
        turn = nth_of_equals(group) // self.block
        chosen = sites[np.lexsort((np.arange(len(sites)), group, turn))][: request.count]
        return Places(sites=chosen, taken=np.unique(chosen))


def nodes_needed(processes: int, cores: int) -> int:
    """Return how many nodes of so many cores the processes of a job need."""
    return -(-processes // cores)


def place_all(
    layout: Layout, counts: Sequence[int], placer: Placer, used: Bools | None = None
) -> list[Places | None]:
    """Place a whole set of jobs together, each on `count` whole sites; return the places of each.

    The largest first, those of equal size in their order: what the large ones leave suits small
    ones, not the other way round. None for jobs that do not fit beside the others.
    """
    taken = np.zeros(layout.sites, bool) if used is None else used.copy()
    placed: list[Places | None] = [None] * len(counts)
    for index in sorted(range(len(counts)), key=lambda n: -counts[n]):
        places = placer.choose(layout, Request.on(taken, counts[index]))
        if places is not None:
            taken[places.taken] = True
            placed[index] = places
    return placed
