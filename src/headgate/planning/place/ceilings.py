"""Ceilings of queues: what a queue may still get, less what is booked for its units."""

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
        queue = self._snapshot.jobs.queue[unit.job]
        return self._scratch.quotas.at_limit(queue, unit.amounts(self._snapshot), self._booked)

    def has_room(self, unit: Unit) -> bool:
        """Return whether the limits of a unit's queue have room for it."""
        return self.at_limit(unit) is None

    def book(self, unit: Unit) -> None:
        """Count a unit that starts later: GPUs are reserved or being freed for it."""
        self._booked.add(self._snapshot.jobs.queue[unit.job], unit.amounts(self._snapshot))

    def unbook(self, unit: Unit) -> None:
        """Count a unit no longer that was booked."""
        self._booked.add(self._snapshot.jobs.queue[unit.job], unit.amounts(self._snapshot), -1)

    def quotas(self) -> Quotas:
        """Return a copy of what queues hold, starts and what is booked included."""
        both = self._scratch.quotas.copy()
        both.merge(self._booked)
        return both
