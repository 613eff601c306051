"""Ceilings: what a queue, or a user there, may still get, less what is booked for units."""

from __future__ import annotations

from headgate.planning.units.unit import Unit
from headgate.state import Scratch
from headgate.state.quotas import AtLimit, Quotas


class Ceilings:
    """The ceilings of one round; the starts on its scratch count, and what is booked."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._booked: Quotas = scratch.quotas.without_use()

    def at_limit(self, unit: Unit) -> AtLimit | None:
        """Return which limit leaves no room for a unit, None if there is room."""
        row = self._booked.row_of(unit.job)
        return self._scratch.quotas.at_limit(row, unit.amounts(self._snapshot), self._booked)

    def has_room(self, unit: Unit) -> bool:
        """Return whether the limits of a unit's queue, and of its user there, have room for it."""
        return self.at_limit(unit) is None

    def book(self, unit: Unit) -> None:
        """Count a unit that starts later: GPUs are reserved or being freed for it."""
        self._booked.add(self._booked.row_of(unit.job), unit.amounts(self._snapshot))

    def unbook(self, unit: Unit) -> None:
        """Count a unit no longer that was booked."""
        self._booked.add(self._booked.row_of(unit.job), unit.amounts(self._snapshot), -1)

    def line_of(self, unit: Unit) -> int:
        """Return the row in whose line a unit waits that has no room: of its user, or its queue."""
        found, rows = self.at_limit(unit), self._booked.rows
        of_user = found is not None and found.row in rows.lines_of(unit.job)
        return found.row if found is not None and of_user else rows.lines_of(unit.job)[0]

    def quotas(self) -> Quotas:
        """Return a copy of what queues hold, starts and what is booked included."""
        both = self._scratch.quotas.copy()
        both.merge(self._booked)
        return both
