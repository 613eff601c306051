"""Units on the timetable of a round: what starts now, and what is reserved, by a chooser.

A unit starts now, all its tasks as one group of steps, if it fits on GPUs that no reservation needs
while it runs; else the GPUs with which it starts earliest may be reserved. Which of the GPUs that
are free it gets is the chooser's decision (`planning.place.choose`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.choose.links import LinkWeigher
from headgate.planning.place.choose.whole_units import Chooser, WholeUnits
from headgate.planning.place.timetable import GpuCosts, Timetable
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import FirstFit, Unit


class Placing:
    """The units of one round; a start costs O(GPUs x log), or as the chooser says."""

    def __init__(self, table: Timetable, chooser: Chooser, *, weighs_links: bool = False) -> None:
        """Place by a chooser, and if so required, weigh links for units that communicate."""
        self.table, self._chooser = table, chooser
        self._units = WholeUnits(table, chooser)
        self._links = LinkWeigher(table, self._units) if weighs_links else None

    def start(self, unit: Unit, run_s: float, *, kept: bool = False) -> bool:
        """Place a unit now if it fits on GPUs that no reservation needs within `run_s` seconds.

        All its tasks, as one group of steps, or none; only on GPUs `kept` for reservations if so
        required. `run_s` is inf for a run of unknown length.
        """
        self.table.kept_only = kept
        if self._links is not None and not kept and self._links.matters(unit):
            return self._links.start(unit, run_s)
        return self._units.start(unit, run_s)

    def start_among(self, unit: Unit, nodes: Sequence[int] | None) -> bool:
        """Place a unit now if it fits on these nodes, on all by default."""
        if nodes is None:
            return self.start(unit, math.inf)
        among = np.zeros(len(self.table.scratch.snapshot.nodes.alive), bool)
        among[list(nodes)] = True
        with self.table.only(among):
            if self.start(unit, math.inf):
                return True
        several = len(set(unit.demands)) > 1  # the nodes are those that hold it by first fit
        return several and FirstFit(self.table.scratch).place(unit, nodes)

    def earliest(self, unit: Unit, run_s: float) -> Reservation | None:
        """Return the reservation of the GPUs with which a unit starts earliest, without making it.

        `run_s` is inf for a run of unknown length. None if, as far as is known, the unit never
        fits.
        """
        first = self._units.earliest(unit, run_s)
        if first is None or self._links is None or not self._links.matters(unit):
            return first
        return self._links.sooner(first, run_s)

    def weighs_links_of(self, unit: Unit) -> bool:
        """Return whether a unit runs longer on slower links, and that decides where it starts."""
        return self._links is not None and self._links.matters(unit)

    def better(self, unit: Unit, run_s: float, expected_s: float) -> Reservation | None:
        """Return the later set that a unit waits for though it fits now, if there is one.

        `run_s` bounds its run time; none if the `expected_s` are unknown.
        """
        return None if self._links is None else self._links.better(unit, run_s, expected_s)

    def run_s_on(self, reservation: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds takes as reserved."""
        return run_s if self._links is None else self._links.run_s_on(reservation, run_s)

    def claim(self, demand: int, run_s: Floats, sought: Ints | None = None) -> None:
        """Count GPUs as used, in the order of the chooser; see `Timetable.claim`."""
        self.table.claim(demand, run_s, self._chooser.claim_order, sought)

    def cheapest(self, unit: Unit, costs: GpuCosts) -> Ints | None:
        """Return the GPUs (rows) with which the dearest one of a unit costs least, or None."""
        demands = unit.by_demand(self.table.scratch.snapshot)
        rows, dearest = self._chooser.gpus_at(
            demands, 0.0, 0.0, distinct=unit.distinct_nodes, costs=costs
        )
        return None if math.isinf(dearest) else rows
