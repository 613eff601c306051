"""Whole units by a chooser: all tasks of a unit start together, or none does."""

from __future__ import annotations

import math
from typing import Protocol

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.choose.compact import Chosen, Demands
from headgate.planning.place.timetable import GpuCosts, Timetable
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
        costs: GpuCosts | None = None,
    ) -> tuple[Chosen, float]:
        """Return places for tasks by demand, and when they are free; see `Compact`."""
        ...

    def claim_order(self, rows: Ints, at: Floats, /) -> Ints:
        """Return the order (indices) in which GPUs, available at some times, are claimed."""
        ...


class WholeUnits:
    """Starts and reserves whole units by a chooser alone."""

    def __init__(self, table: Timetable, chooser: Chooser) -> None:
        self._table, self._chooser = table, chooser

    def start(self, unit: Unit, run_s: float) -> bool:
        """Place a unit now, if it fits."""
        table = self._table
        for place in (self.place, self._place_by_first_fit):
            with table.scratch.trial() as trial:
                before = len(table.scratch.starts)
                if place(unit, run_s) is not None:
                    trial.keep()
                    table.use(table.scratch.starts[before:], table.now + run_s)
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
        before, holder = len(scratch.starts), scratch.ledger.gpus.task.array().copy()
        if table.kept_only or not FirstFit(scratch).place(unit):
            return None
        starts, first = scratch.starts[before:], scratch.snapshot.nodes.first_gpu
        if not table.are_usable(starts, holder, run_s):
            return None
        return [first[start.node] + gpu for start in starts for gpu in start.gpus]

    def earliest(self, unit: Unit, run_s: float) -> Reservation | None:
        """Return the reservation with which a unit starts earliest, None if it never fits."""
        at, demands = self._table.now, unit.by_demand(self._table.scratch.snapshot)
        while True:
            chosen, soonest = self._chooser.gpus_at(
                demands, at, run_s, distinct=unit.distinct_nodes
            )
            if math.isinf(soonest):
                return None
            if soonest <= at or not self._table.has_reservations:
                at = max(at, soonest)
                return Reservation(unit=unit, at=at, gpus=chosen.gpus, tasks=chosen.tasks)
            at = soonest
