"""Units on the roomiest nodes of a timetable."""

from __future__ import annotations

from headgate.planning.place.choose.compact import Compact
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import Timetable


def on_roomiest(table: Timetable) -> Placing:
    """Return what places units on a timetable, on the roomiest nodes."""
    return Placing(table, Compact(table))
