"""Options of units in the form that `LaminarSolver` reads (CSR), joined unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Ints
from headgate.flow import _native
from headgate.flow.network import AnyInts

_WIDTHS = (np.dtype(np.int32), np.dtype(np.int64))


def options_of(offsets: AnyInts, units: Ints) -> tuple[Ints, Ints]:
    """Return the options of these units: offsets, `[units + 1]`, and the index of each option.

    Units may be in any order, and occur several times. O(options of these).
    """
    counts = np.diff(offsets)[units]
    chosen = np.zeros(len(units) + 1, np.int64)
    np.cumsum(counts, out=chosen[1:])
    return chosen, np.arange(chosen[-1]) + np.repeat(offsets[units] - chosen[:-1], counts)


@dataclass(frozen=True, slots=True, eq=False)
class OptionsPart:
    """Options in the order of their units: `counts` of each unit, one of each with None.

    All of them are at one place where `place` is an integer.
    """

    counts: AnyInts | None
    place: AnyInts | int
    cost: AnyInts


def joined_options(units: int, parts: Sequence[OptionsPart]) -> tuple[Ints, Ints, Ints]:
    """Return offsets, places and costs of all options, grouped by unit, part after part.

    `offsets` has shape `[units + 1]`. Raises BadNetwork where a part does not match `units`.
    O(options + units x parts).
    """
    columns = [
        (1 if part.counts is None else _read(part.counts), _read(part.place), _read(part.cost))
        for part in parts
    ]
    return _native.joined_options(units, columns)


def _read(values: AnyInts | int) -> AnyInts | int:
    """Return integers as native code reads them: of 32 or 64 bits, contiguous."""
    if isinstance(values, int):
        return values
    return np.ascontiguousarray(values, None if values.dtype in _WIDTHS else np.int64)
