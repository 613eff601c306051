"""Units on the timetable of a round: what starts now, and what is reserved, by a chooser.

A unit starts now, all its tasks as one group of steps, if it fits on GPUs that no reservation needs
while it runs; else the GPUs with which it starts earliest may be reserved. Which of the GPUs that
are free it gets is the chooser's decision (`planning.place.choose`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.choose.compact import Demands
from headgate.planning.place.choose.links import LinkWeigher
from headgate.planning.place.timetable import Timetable
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import FirstFit, Unit


class Chooser(Protocol):
    """Chooses nodes and GPUs for the tasks of a unit, of those that a timetable lets it use."""

    @property
    def takes_first_fit(self) -> bool:
        """Whether a unit of several demands that does not fit as chosen may start by first fit."""
        ...

    def place(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand, none on nodes `used`; return whether all are placed."""
        ...

    def gpus_at(
        self,
        demands: Demands,
        at: float,
        run_s: float,
        *,
        distinct: bool,
        price: Floats | None = None,
    ) -> tuple[Ints, float]:
        """Return GPUs (rows) for tasks by demand, and when they are free; see `Compact`."""
        ...

    def claim_order(self, rows: Ints, at: Floats, /) -> Ints:
        """Return the order (indices) in which GPUs, available at some times, are claimed."""
        ...


class _ByChooser:
    """Whole units by a chooser alone."""

    def __init__(self, table: Timetable, chooser: Chooser) -> None:
        self._table, self._chooser = table, chooser

    def start(self, unit: Unit, run_s: float) -> bool:
        """Place a unit now, if it fits."""
        table = self._table
        for place in (self.place, self._place_by_first_fit):
            with table.scratch.trial() as trial:
                rows = place(unit, run_s)
                if rows is not None:
                    trial.keep()
                    table.use(rows, table.now + run_s)
                    return True
            if len(set(unit.demands)) == 1:
                break
        return False

    def place(self, unit: Unit, run_s: float) -> list[int] | None:
        """Place the tasks of a unit; return the rows of their GPUs, or None if one does not fit."""
        rows, used, scratch = list[int](), set[int](), self._table.scratch
        first = scratch.snapshot.nodes.first_gpu
        for demand, tasks in unit.by_demand(scratch.snapshot):
            before = len(scratch.starts)
            if not self._chooser.place(demand, tasks, run_s, used, distinct=unit.distinct_nodes):
                return None
            for _, node, gpus in scratch.starts[before:]:
                rows += [first[node] + gpu for gpu in gpus]
                if unit.distinct_nodes:
                    used.add(node)
        return rows

    def _place_by_first_fit(self, unit: Unit, run_s: float) -> list[int] | None:
        """Place a unit of several demands by first fit, if that is on usable GPUs.

        So one that fits the idle cluster, as the submission check tests, starts there.
        """
        table, scratch = self._table, self._table.scratch
        if table.among is not None or not self._chooser.takes_first_fit:
            return None
        before = len(scratch.starts)
        if not FirstFit(scratch).place(unit):
            return None
        first, rows = scratch.snapshot.nodes.first_gpu, list[int]()
        for start in scratch.starts[before:]:
            rows += [first[start.node] + gpu for gpu in start.gpus]
        holder = scratch.snapshot.gpus.task.array()  # before they were placed
        usable = table.are_usable(np.array(rows, np.int64), holder, run_s)
        return rows if usable and not table.kept_only else None

    def earliest(self, unit: Unit, run_s: float) -> Reservation | None:
        """Return the reservation with which a unit starts earliest, None if it never fits."""
        at, demands = self._table.now, unit.by_demand(self._table.scratch.snapshot)
        while True:
            rows, soonest = self._chooser.gpus_at(demands, at, run_s, distinct=unit.distinct_nodes)
            if math.isinf(soonest):
                return None
            if soonest <= at or not self._table.has_reservations:
                return Reservation(unit=unit, at=max(at, soonest), gpus=rows)
            at = soonest


class Placing:
    """The units of one round; a start costs O(GPUs x log), or as the chooser says."""

    def __init__(self, table: Timetable, chooser: Chooser, *, weighs_links: bool = False) -> None:
        """Place by a chooser, and if so required, weigh links for units that communicate."""
        self.table, self._chooser = table, chooser
        self._units = _ByChooser(table, chooser)
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
        """Return the reservation that `reserve` would make, without making it."""
        first = self._units.earliest(unit, run_s)
        if first is None or self._links is None or not self._links.matters(unit):
            return first
        return self._links.sooner(first, run_s)

    def reserve(self, unit: Unit, run_s: float) -> Reservation | None:
        """Keep the GPUs with which a unit starts earliest free for it, and return them.

        `run_s` is inf for a run of unknown length. None if, as far as is known, the unit never
        fits.
        """
        found = self.earliest(unit, run_s)
        if found is not None:
            self.table.keep(found, run_s)
        return found

    def better(self, unit: Unit, run_s: float, expected_s: float) -> Reservation | None:
        """Return the later set that a unit waits for though it fits now, if there is one.

        `run_s` bounds its run time; none if the `expected_s` are unknown.
        """
        return None if self._links is None else self._links.better(unit, run_s, expected_s)

    def run_s_on(self, found: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds takes as reserved."""
        return run_s if self._links is None else self._links.run_s_on(found, run_s)

    def claim(self, memory_bytes: int, run_s: Floats, sought: Ints | None = None) -> None:
        """Count GPUs as used, in the order of the chooser; see `Timetable.claim`."""
        self.table.claim(memory_bytes, run_s, self._chooser.claim_order, sought)

    def cheapest(self, unit: Unit, price: Floats) -> Ints | None:
        """Return the GPUs (rows) with which the dearest one of a unit costs least, or None.

        `price`, `[GPU rows]`, is at least 0, and inf for GPUs that it may not have.
        """
        table = self.table
        rows, dearest = self._chooser.gpus_at(
            unit.by_demand(table.scratch.snapshot),
            0.0,
            0.0,
            distinct=unit.distinct_nodes,
            price=price[table.row],
        )
        return None if math.isinf(dearest) else rows
