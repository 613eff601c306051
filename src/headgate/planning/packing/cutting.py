"""What parts of a GPU are worth, if GPUs are cut into the shares that pods ask for.

The fewest GPUs for given numbers of shares are Gilmore and Gomory's cutting-stock problem
(Operations Research 9, 1961). Its dual prices are what each share is worth, in GPUs: 470 and 650
thousandths may be worth 1/2 and 2/3 of a GPU, and 810 a whole one, since what is left beside it is
of no use. A free part of a GPU is worth the best set of shares that fits into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.packing.room import WHOLE

_MOST_LEVELS = 100  # distinct shares; of more, the rarest are rounded up to the next kept one
_MOST_PIVOTS = 1000
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """In thousandths of a GPU: `of_share` by share, `of_free` by free part, both 0..WHOLE."""

    of_share: Floats
    of_free: Floats


def worth(counts: Mapping[int, float]) -> Worth:
    """Return what shares and free parts are worth for these numbers of shares, by thousandths.

    A whole GPU is worth WHOLE. The result is optimal, or after 1,000 pivots a lower bound of it: no
    set of shares that fits into a GPU is worth more than that.
    """
    levels, number = _kept({milli: n for milli, n in counts.items() if 0 < milli < WHOLE})
    of_share = np.zeros(WHOLE + 1)
    of_free = np.zeros(WHOLE + 1)
    if len(levels):
        step = int(np.gcd.reduce(np.append(levels, WHOLE)))
        price = _prices(levels // step, number / number.sum(), WHOLE // step)
        best, _ = _fill(price, levels // step, WHOLE // step)
        of_free = WHOLE * best[np.arange(WHOLE + 1) // step]
        up = np.searchsorted(levels, np.arange(WHOLE + 1))
        of_share = WHOLE * np.append(price, 1.0)[up]
        of_share[0] = 0.0
    of_share[WHOLE] = of_free[WHOLE] = WHOLE
    return Worth(of_share, of_free)


def _kept(counts: Mapping[int, float]) -> tuple[Ints, Floats]:
    """Return shares, ascending, and their numbers; at most `_MOST_LEVELS`."""
    largest = sorted(counts, key=lambda milli: -milli * counts[milli])[:_MOST_LEVELS]
    levels = np.array(sorted({*largest, *([max(counts)] if counts else [])}), np.int64)
    number = np.zeros(len(levels))
    for milli, count in counts.items():
        number[np.searchsorted(levels, milli)] += count
    return levels, number


def _prices(size: Ints, number: Floats, capacity: int) -> Floats:
    """Return the dual prices, by column generation: each pattern solves a knapsack problem."""
    basis = np.diag(
        (capacity // size).astype(float)
    )  # a column is how many shares a GPU is cut into
    ones = np.ones(len(size))
    price: Floats = ones
    best: Floats = np.zeros(capacity + 1)
    for _ in range(_MOST_PIVOTS):
        price = np.linalg.solve(basis.T, ones).astype(np.float64)
        best, last = _fill(price, size, capacity)
        if best[-1] <= 1 + _TOLERANCE:
            break
        pattern = _pattern(last, size, capacity)
        gpus, change = np.linalg.solve(basis, np.column_stack([number, pattern])).T
        grows = change > _TOLERANCE
        ratio = np.where(grows, gpus / np.where(grows, change, 1.0), np.inf)
        basis[:, int(ratio.argmin())] = pattern
    return np.maximum(price, 0.0) / max(1.0, float(best[-1]))


def _fill(price: Floats, size: Ints, capacity: int) -> tuple[Floats, Ints]:
    """Return by capacity the most valuable set that fits, and its last share, -1 for none."""
    best, last = np.zeros(capacity + 1), np.full(capacity + 1, -1, np.int64)
    for free in range(int(size[0]), capacity + 1):
        fitting = int(np.searchsorted(size, free, side="right"))
        values = best[free - size[:fitting]] + price[:fitting]
        share = int(values.argmax())
        best[free] = best[free - 1]
        if values[share] > best[free] + _TOLERANCE:
            best[free], last[free] = values[share], share
    return best, last


def _pattern(last: Ints, size: Ints, capacity: int) -> Floats:
    """Return how many of each share the most valuable set has."""
    counts, free = np.zeros(len(size)), capacity
    while free > 0:
        if last[free] < 0:
            free -= 1
        else:
            counts[last[free]] += 1
            free -= int(size[last[free]])
    return counts
