"""Packs a stream of pods: every pod is placed on arrival where its policy's cost is least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.planning.packing.room import FreeNodes, PodDemand, slots_of
from headgate.planning.packing.scorers import Scorer


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A node, and its GPUs that a pod takes, ascending."""

    node: int
    slots: Ints


def choose(scorer: Scorer, room: FreeNodes, demand: PodDemand) -> Place | None:
    """Return where a demand is placed, None where no node has room; equal costs: the first node."""
    found = scorer.options(room, demand)
    if not len(found.cost) or not np.isfinite(found.cost.min()):
        return None
    node = int(found.cost.argmin())
    return Place(node, slots_of(room, node, demand, int(found.slot[node])))


class Packer:
    """Nodes that fill up with pods of a known set of demands.

    Costs are kept by demand and node. Before a demand is placed, only those nodes are ranked again
    that have changed since it was placed last.
    """

    def __init__(
        self,
        room: FreeNodes,
        demands: Sequence[PodDemand],
        scorer: Scorer,
        *,
        ties: Random | None = None,
    ) -> None:
        """`room` is changed by `place`; demands are named by their number from then on.

        Of nodes with equal costs the first is taken; with `ties`, one of them is drawn, and one of
        its GPUs with room.
        """
        self.room = room
        self._ties = ties
        self._demands = demands
        self._scorer = scorer
        self._cost: Floats = np.full((len(demands), len(room)), np.inf)
        self._slot: Ints = np.zeros((len(demands), len(room)), np.int64)
        self._changed: list[int] = []  # nodes, in the order of pods
        self._seen = [-1] * len(demands)  # how many of them the costs of a demand know, -1: none

    def use(self, scorer: Scorer) -> None:
        """Rank by another scorer from now on."""
        self._scorer = scorer
        self._seen = [-1] * len(self._demands)

    def place(self, number: int) -> Place | None:
        """Place a pod with this demand and return where; None if no node has room for it."""
        demand = self._demands[number]
        self._rank(number)
        node = int(self._cost[number].argmin())
        if self._cost[number, node] == np.inf:
            return None
        slot = int(self._slot[number, node])
        if self._ties is not None:
            node = self._draw(np.flatnonzero(self._cost[number] == self._cost[number, node]))
            slot = self._draw(np.flatnonzero(self.room.gpu[node] >= demand.milli))
        place = Place(node, slots_of(self.room, node, demand, slot))
        self.room.take(node, place.slots, demand)
        self._changed.append(node)
        return place

    def _draw(self, rows: NDArray[np.intp]) -> int:
        """Return one of these rows, 0 if there are none."""
        assert self._ties is not None, "only drawn from where ties are"
        return int(rows[self._ties.randrange(len(rows))]) if len(rows) else 0

    def _rank(self, number: int) -> None:
        """Bring the costs of a demand up to date."""
        seen = self._seen[number]
        if seen == len(self._changed):
            return
        rows = np.arange(len(self.room)) if seen < 0 else np.unique(np.array(self._changed[seen:]))
        options = self._scorer.options(self.room.rows(rows), self._demands[number])
        self._cost[number, rows], self._slot[number, rows] = options.cost, options.slot
        self._seen[number] = len(self._changed)
