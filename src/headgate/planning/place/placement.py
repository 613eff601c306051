"""What places units for a placer: the timetable of a round, or a fit without times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.balancing import ByBalancer
from headgate.planning.place.choose.compact import Compact
from headgate.planning.place.choose.links import tight_sets
from headgate.planning.place.choose.on_cluster import ClusterPlacer
from headgate.planning.place.choose.sets import Sets
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import EndAt, Timetable
from headgate.planning.units.unit import FirstFit, Unit
from headgate.state import Scratch


def placing(scratch: Scratch, end_at: EndAt, placer: Placer | None) -> Placing:
    """Return what places units on a timetable: by a placer, or on the roomiest nodes."""
    table = Timetable(scratch, end_at)
    if placer is None:
        return Placing(table, Compact(table))
    if placer.weighs_links:
        return Placing(table, tight_sets(table, placer), weighs_links=True)
    if placer.balancer is not None:
        return Placing(table, ByBalancer(table, placer.balancer))
    return Placing(table, Sets(table, placer))


class PlacedFit:
    """Places units now by a placer, where others are placed by `FirstFit`."""

    def __init__(self, scratch: Scratch, placer: Placer) -> None:
        """Place on a scratch."""
        self._scratch, self._placer = scratch, placer
        self._placing: Placing | None = None
        self._first_fit = FirstFit(scratch)

    def place(self, unit: Unit, among: Sequence[int] | None = None) -> bool:
        """Place all tasks of a unit, as one group of steps, or none; with `among` on these nodes.

        O(GPUs x log) and that of a search.
        """
        alone = len(unit.tasks) == 1 and not unit.on_gpus(self._scratch.snapshot)
        in_part = _is_in_part(self._scratch, unit) and not self._placer.places_parts
        if in_part or (alone and self._placer.balancer is None):
            return self._first_fit.place(unit, among)
        if self._placing is None:
            self._placing = placing(self._scratch, never, self._placer)
        return self._placing.start_among(unit, among)

    def most(self, unit: Unit) -> int:
        """Return how many tasks of a unit fit together; nothing is placed."""
        return self._first_fit.most(unit)

    def nodes_for(self, unit: Unit, nodes: Sequence[int]) -> list[int]:
        """Return the first of these nodes on which a unit starts once they are idle, or none."""
        equal = len(set(unit.demands)) == 1 and not _is_in_part(self._scratch, unit)
        if equal and self._placer.may_wait:
            placer, count = ClusterPlacer(self._scratch.snapshot, self._placer), len(unit.tasks)
            chosen = placer.nodes_for(unit.demands[0], count, nodes, distinct=unit.distinct_nodes)
            if chosen is not None:
                return chosen
        return self._first_fit.nodes_for(unit, nodes)


class Fit(Protocol):
    """What places units now."""

    def place(self, unit: Unit, among: Sequence[int] | None = None) -> bool:
        """Place all tasks of a unit, as one group of steps, or none."""
        ...

    def most(self, unit: Unit) -> int:
        """Return how many tasks of a unit fit together; nothing is placed."""
        ...

    def nodes_for(self, unit: Unit, nodes: Sequence[int]) -> list[int]:
        """Return the first of these nodes on which a unit starts once they are idle, or none."""
        ...


def fit(scratch: Scratch, placer: Placer | None) -> Fit:
    """Return what places units now: a placer, or first fit."""
    return FirstFit(scratch) if placer is None else PlacedFit(scratch, placer)


def _is_in_part(scratch: Scratch, unit: Unit) -> bool:
    """Return whether all tasks of a unit are on parts of GPUs, which most placers do not place."""
    return all(scratch.snapshot.names.demands[demand].in_part for demand in set(unit.demands))


def never(tasks: Ints) -> Floats:
    """Return that no run of these tasks (rows) is known to end."""
    return np.full(len(tasks), math.inf)
