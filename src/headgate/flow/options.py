"""What units may take, as `LaminarSolver` wants it: lists of options put together unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.flow.network import AnyInts, Ints


def options_of(offsets: AnyInts, units: Ints) -> tuple[Ints, Ints]:
    """Return the options of some units: offsets, `[units + 1]`, and where each option stands now.

    Units may be in any order, and named several times. O(options of these).
    """
    counts = np.diff(offsets)[units]
    chosen = np.zeros(len(units) + 1, np.int64)
    np.cumsum(counts, out=chosen[1:])
    return chosen, np.arange(chosen[-1]) + np.repeat(offsets[units] - chosen[:-1], counts)


@dataclass(frozen=True, slots=True, eq=False)
class OptionsPart:
    """Options in the order of their units: so many of each unit; one of each with None."""

    counts: AnyInts | None
    place: AnyInts | int
    cost: AnyInts


def joined_options(units: int, parts: Sequence[OptionsPart]) -> tuple[Ints, Ints, Ints]:
    """Return offsets, places and costs: those of a unit beside each other, part after part.

    `offsets` has shape `[units + 1]`. O(options + units x parts).
    """
    single = sum(part.counts is None for part in parts)
    offsets = np.zeros(units + 1, np.int64)
    np.cumsum(sum((p.counts for p in parts if p.counts is not None), single), out=offsets[1:])
    place, cost = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    at = offsets[:-1].copy()
    for part in parts:
        if part.counts is None:
            to = at
            at = at + 1
        else:
            # The k-th option of a unit goes k places after its first.
            ahead = np.cumsum(part.counts) - part.counts
            to = np.repeat(at - ahead, part.counts)
            to += np.arange(len(to))
            at = at + part.counts
        place[to], cost[to] = part.place, part.cost
    return offsets, place, cost
