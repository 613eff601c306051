"""What fills free parts of GPUs, and whether a node has the CPUs and the memory for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.packing.cutting import Worth
from headgate.planning.packing.room import WHOLE, PodDemand

_LEAST = 1e-3  # thousandths of a GPU: worths that differ by less are equal


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """The pods that fill each free part best, in proportion to their numbers.

    `needs` are CPUs and bytes by free part, for all pods that fill it together, in the mean.
    `first` has the shares of pods [kind of free part, pod] that are placed first, whose CPUs and
    bytes are `asks`; `kind` numbers the free parts for which they are equal.
    """

    needs: Floats
    asks: Floats
    first: Floats
    kind: Ints

    @classmethod
    def of(cls, single: Mapping[PodDemand, float], prices: Worth) -> Filling:
        """Return what fills free parts, from demands for one GPU and what they are worth."""
        useful = [d for d in single if prices.of_share[d.milli] > 0]
        asks = np.array([[d.cpu_milli, d.memory_bytes] for d in useful], float).reshape(-1, 2)
        milli = np.array([d.milli for d in useful], np.int64)
        value = prices.of_share[milli]
        count = np.array([single[d] for d in useful], float)
        step = int(np.gcd.reduce(np.append(milli, WHOLE)))  # between them, no more pods fit
        levels, size = WHOLE // step + 1, milli // step
        worth = prices.of_free[::step]
        needs, first = np.zeros((levels, 2)), np.zeros((levels, len(useful)))
        for free in range(int(size.min(initial=levels)), levels):
            rest = free - size
            best = (rest >= 0) & (value + worth[rest] >= worth[free] - _LEAST)
            if best.any():
                first[free, best] = count[best] / count[best].sum()
                needs[free] = first[free, best] @ (asks[best] + needs[rest[best]])
            else:  # it is worth no more than a smaller one
                needs[free], first[free] = needs[free - 1], first[free - 1]
        kinds, kind = np.unique(first, axis=0, return_inverse=True)
        level = np.arange(WHOLE + 1) // step
        return cls(needs[level], asks, kinds, np.asarray(kind, np.int64).ravel()[level])

    def part(self, free: Floats, gpu: Ints, extra: Floats) -> Floats:
        """Return by node and GPU which part of what fills it the node has room for.

        `free` are CPUs and bytes [n, 2], `gpu` free parts [n, g]; `extra` is what is needed beyond
        the pods on the GPUs, relative to it. Two limits hold: for all GPUs of the node together,
        and for each the share of pods that fit there by themselves.
        """
        needs = self.needs[gpu].sum(axis=1) * extra
        together = np.minimum(ratios(free, needs), 1.0).min(axis=1)
        fit = (free[:, :1] >= self.asks[:, 0]) & (free[:, 1:] >= self.asks[:, 1])
        alone = np.take_along_axis(fit.astype(float) @ self.first.T, self.kind[gpu], axis=1)
        least: Floats = np.minimum(together[:, None], alone)
        return least


def ratios(free: Floats, needs: Floats) -> Floats:
    """Return free / needs, inf where nothing is needed."""
    infinite = np.full(np.broadcast_shapes(free.shape, needs.shape), np.inf)
    found: Floats = np.divide(free, needs, out=infinite, where=needs > 0)
    return found
