"""Ceilings of queues: what a queue may still get, less what is booked for its units."""

from __future__ import annotations

from headgate.base.arrays import Ints
from headgate.model import WHOLE
from headgate.planning.shares.queue_tree import ceilings
from headgate.planning.units.unit import Unit
from headgate.state import Scratch, Snapshot


def limits_milli(snapshot: Snapshot) -> Ints:
    """Return how many thousandths of GPUs each queue may hold, `[queues]`."""
    return WHOLE * ceilings(snapshot)


class Ceilings:
    """The ceilings of one round; the starts on its scratch count, and what is booked."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._booked_milli: dict[int, int] = {}  # thousandths of GPUs, by queue

    def has_room(self, unit: Unit) -> bool:
        """Return whether the ceiling of a unit's queue has room for it."""
        queue = self._snapshot.jobs.queue[unit.job]
        milli = unit.gpus_milli(self._snapshot) + self._booked_milli.get(queue, 0)
        return self._scratch.has_room(queue, milli)

    def book(self, unit: Unit) -> None:
        """Count a unit that starts later: GPUs are reserved or being freed for it."""
        queue = self._snapshot.jobs.queue[unit.job]
        milli = self._booked_milli.get(queue, 0) + unit.gpus_milli(self._snapshot)
        self._booked_milli[queue] = milli

    def unbook(self, unit: Unit) -> None:
        """Count a unit no longer that was booked."""
        queue = self._snapshot.jobs.queue[unit.job]
        self._booked_milli[queue] -= unit.gpus_milli(self._snapshot)

    def room_milli(self) -> Ints:
        """Return how many thousandths of GPUs each queue may still get, `[queues]`."""
        room = limits_milli(self._snapshot)
        for queue in range(len(room)):
            room[queue] -= self._scratch.used_milli(queue) + self._booked_milli.get(queue, 0)
        return room
