"""Reservations of single units, for tests."""

from __future__ import annotations

from headgate.planning.place.placing import Placing
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit


def reserve(units: Placing, unit: Unit, run_s: float) -> Reservation | None:
    """Keep the GPUs with which a unit starts earliest free for it, and return them."""
    found = units.earliest(unit, run_s)
    if found is not None:
        units.table.keep(found, run_s)
    return found
