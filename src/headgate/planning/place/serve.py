"""How a round serves units of work: the one loop over turns, and all that it decides for each.

A policy decides whose turn it is, and hears what became of it before it names the next: its turns
are a generator. For each turn the loop decides, in this order:

1. No unit exceeds the ceiling of its queue (`ceilings`).
2. A unit that communicates may wait for GPUs with faster links, which are reserved for it.
3. A unit starts where it fits now, on GPUs that no reservation needs while it runs: by a chooser
   on the timetable (`placing`), or without regard to times (`placement.Fit`).
4. Runs that must give way are stopped for it (`Victims`).
5. The GPUs with which it starts earliest are reserved for it.

`why` explains from the same books why the others wait.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.model import WHOLE
from headgate.planning.moves.migration import Migration, defragment
from headgate.planning.place.ceilings import Ceilings
from headgate.planning.place.choose import Placer
from headgate.planning.place.free_gpus import parts_milli
from headgate.planning.place.placement import Fit, never, placing
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import EndAt
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit
from headgate.state import Scratch


class Answer(Enum):
    """What became of a turn."""

    STARTED = auto()
    RESERVED = auto()  # GPUs are kept free for the unit from a time on
    FREED = auto()  # runs are stopped for it; it starts in a later round
    FULL = auto()  # its queue is at its ceiling
    WAITS = auto()


@dataclass(frozen=True, slots=True)
class Turn:
    """A unit whose turn it is, and what it may get."""

    unit: Unit
    within_s: float = math.inf
    """It starts on GPUs that are free for so long: a bound of its run time, inf if unknown."""
    run_s: float = math.inf
    """How long it is expected to run, which a reservation keeps GPUs free for; inf if unknown."""
    starts: bool = True
    """Whether it may start now."""
    reserves: bool = False
    """Whether it may get a reservation if it does not start."""
    waits_for_links: bool = False
    """Whether it may wait, with a reservation, for faster links than those it could use now."""
    on_kept: bool = False
    """Whether it starts only on GPUs that reservations keep free, until these begin."""
    among: Sequence[int] | None = None
    """The only nodes to try with a `Fit`, in order; all if None."""


Turns = Generator[Turn, Answer, None]
"""The turns of a round, in a policy's order; what became of one is sent before the next."""


class Victims(Protocol):
    """What stops runs for units that do not start."""

    def free(self, turn: Turn, /) -> bool:
        """Stop the runs that give way to a unit; return whether it will start in their place."""
        ...


class Serving:
    """What one round has started and reserved so far, and its books."""

    def __init__(
        self,
        scratch: Scratch,
        end_at: EndAt = never,
        placer: Placer | None = None,
        *,
        keeps_free: bool = False,
    ) -> None:
        """Start from what is on the scratch; runs are expected to end as `end_at` says.

        If a unit does not start though the timetable would let it, as a chooser may find no places
        for tasks of several demands together, then GPUs are kept for it only if it `keeps_free`
        ones.
        """
        self.scratch, self.ceilings = scratch, Ceilings(scratch)
        self._end_at, self._placer, self._keeps_free = end_at, placer, keeps_free
        self.reservations: list[Reservation] = []
        self.started: set[int] = set()
        self.reserved: dict[int, float] = {}
        """The first tasks of units that started, and of those with reservations: their run time."""
        self.too_long: dict[object, float] = {}
        """By shape of a unit: runs that are longer than this do not fit now."""
        self._seen = -1, -1  # starts and reservations, when the windows were read

    @cached_property
    def placing(self) -> Placing:
        """What places units on the timetable of the round; both are made when first asked."""
        return placing(self.scratch, self._end_at, self._placer)

    def serve(
        self,
        turns: Generator[Turn, Answer, Any],
        *,
        fit: Fit | None = None,
        victims: Victims | None = None,
    ) -> None:
        """Serve all turns; with a `fit`, units start by it, without regard to times."""
        with suppress(StopIteration):
            turn = next(turns)
            while True:
                turn = turns.send(self.answer(turn, fit=fit, victims=victims))

    def answer(
        self, turn: Turn, *, fit: Fit | None = None, victims: Victims | None = None
    ) -> Answer:
        """Serve one turn."""
        if not self.ceilings.has_room(turn.unit):
            return Answer.FULL
        if turn.waits_for_links and self._waits_for_links(turn):
            return Answer.RESERVED
        if turn.starts and self._starts(turn, fit):
            self.started.add(turn.unit.tasks[0])
            return Answer.STARTED
        if victims is not None and not victims.free(turn):
            return Answer.WAITS
        if turn.reserves:
            return Answer.RESERVED if self._reserves(turn) else Answer.WAITS
        if victims is None:
            return Answer.WAITS
        self.ceilings.book(turn.unit)
        return Answer.FREED

    # --- starts --------------------------------------------------------------------------------

    def _starts(self, turn: Turn, fit: Fit | None) -> bool:
        """Start a unit if it fits now and is in the way of no reservation."""
        unit, within_s = turn.unit, turn.within_s
        if fit is not None:
            return fit.place(unit, turn.among)
        if turn.on_kept:
            return self.placing.start(unit, within_s, kept=True)
        if self.is_too_long(unit.shape, within_s):
            return False
        beyond = unit.gpus_milli(self.scratch.snapshot) > self.open_milli(within_s)
        if not beyond and self.placing.start(unit, within_s):
            return True
        if beyond or not self.placing.weighs_links_of(unit):  # else its run may take longer
            self.too_long[unit.shape] = self._next_shorter(within_s)
        return False

    def is_too_long(self, shape: object, run_s: float) -> bool:
        """Return whether a unit of this shape is known not to fit now for so long."""
        return run_s > self.too_long.get(shape, math.inf)

    def _next_shorter(self, run_s: float) -> float:
        """Return the longest time of which a run may use more GPUs than one of `run_s`, or -inf."""
        self._windows()
        shorter = self._all_s.searchsorted(run_s)
        return float(self._all_s[shorter - 1]) if shorter else -math.inf

    def open_milli(self, run_s: float | Floats) -> Ints:
        """Return a bound of the thousandths of GPUs that runs of `run_s` seconds may use now."""
        windows = self._windows()
        return WHOLE * (len(windows) - windows.searchsorted(run_s)) + self._parts_milli

    def _windows(self) -> Floats:
        """Return the longest runs that each of the free GPUs may be used for, ascending.

        Claims made since the last start or reservation may be missing; they only close windows.
        """
        if self._seen != self._state():
            self._seen = self._state()
            table = self.placing.table
            self._longest_s = self._all_s = table.windows_now() + SAME_INSTANT_S
            self._parts_milli = parts_milli(self.scratch)
            if table.parts.matters:
                begin_s = table.parts.begins() - table.now + SAME_INSTANT_S
                self._all_s = np.sort(np.append(self._longest_s, begin_s))
                self._parts_milli += table.beside_parts_milli()
        return self._longest_s

    def _state(self) -> tuple[int, int]:
        return len(self.scratch.starts), len(self.reservations)

    def open_again(self) -> None:
        """Forget what did not fit: GPUs may be open again."""
        self.too_long.clear()
        self._seen = -1, -1

    # --- reservations --------------------------------------------------------------------------

    def _reserves(self, turn: Turn) -> bool:
        """Reserve the GPUs with which a unit starts earliest, if it ever does."""
        reservation = self.placing.earliest(turn.unit, turn.run_s)
        if reservation is None or not (
            self._keeps_free or reservation.at > self.scratch.snapshot.now
        ):
            return False
        self.keep(reservation, turn.run_s)
        return True

    def _waits_for_links(self, turn: Turn) -> bool:
        """Reserve better GPUs for a unit that fits now, if it ends sooner there."""
        better = self._better(turn)
        if better is None:
            return False
        self.keep(better, turn.run_s)
        return True

    def _better(self, turn: Turn) -> Reservation | None:
        return self.placing.better(turn.unit, turn.within_s, turn.run_s)

    def keep(self, reservation: Reservation, run_s: float) -> None:
        """Keep the GPUs of a reservation free for a run of `run_s` seconds.

        It takes the place of an earlier one for the same unit: GPUs that are freed for it may be
        others.
        """
        unit = reservation.unit
        if unit.tasks[0] in self.reserved:
            firsts = [each.unit.tasks[0] for each in self.reservations]
            self.reservations[firsts.index(unit.tasks[0])] = reservation
            self._keep_only(self.reservations)
            return
        self.placing.table.keep(reservation, self.run_s_on(reservation, run_s))
        self.reservations.append(reservation)
        self.reserved[unit.tasks[0]] = run_s
        self.ceilings.book(unit)

    def run_s_on(self, reservation: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds takes on the GPUs of a reservation."""
        return self.placing.run_s_on(reservation, run_s)

    def start_reserved(self, reservation: Reservation, turn: Turn) -> bool:
        """Start a unit now that has a reservation, if it fits beside the others."""
        others = [other for other in self.reservations if other is not reservation]
        self._keep_only(others)
        self.ceilings.unbook(turn.unit)
        waits = turn.waits_for_links and self._better(turn) is not None
        if not waits and self.ceilings.has_room(turn.unit) and self._starts(turn, None):
            self.started.add(turn.unit.tasks[0])
            del self.reserved[turn.unit.tasks[0]]
            self.reservations[:] = others
            return True
        self.ceilings.book(turn.unit)
        self._keep_only(self.reservations)
        return False

    def _keep_only(self, reservations: Sequence[Reservation]) -> None:
        """Keep the GPUs of these reservations free, and no others."""
        self.placing.table.release()
        for each in reservations:
            run_s = self.run_s_on(each, self.reserved[each.unit.tasks[0]])
            self.placing.table.keep(each, run_s)
        self.open_again()

    # --- moves ---------------------------------------------------------------------------------

    def moves_for(self, first: Reservation | None) -> Migration:
        """Return the moves that make room for a unit sooner than its GPUs are free, if they pay."""
        if first is None:
            return Migration()
        return defragment(self.scratch, first.unit, wait_s=first.at - self.scratch.snapshot.now)
