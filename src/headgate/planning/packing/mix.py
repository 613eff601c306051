"""A mix of demands: what pods ask for, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.packing.room import PodDemand

TYPICAL = 0.95
"""The share of pods that typical demands stand for, in the published runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Demands and their shares of all pods, which sum to 1; `level` numbers distinct `milli`."""

    demands: tuple[PodDemand, ...]
    share: Floats
    cpu_milli: Ints
    memory_bytes: Ints
    gpus: Ints
    level: Ints
    levels: Ints

    @classmethod
    def of(cls, counts: Mapping[PodDemand, float]) -> Mix:
        """Return the mix of these numbers of pods."""
        demands = tuple(counts)
        weight = np.array([counts[d] for d in demands], float)
        levels, level = np.unique([d.milli for d in demands], return_inverse=True)
        return cls(
            demands,
            weight / weight.sum(),
            np.array([d.cpu_milli for d in demands], np.int64),
            np.array([d.memory_bytes for d in demands], np.int64),
            np.array([d.gpus for d in demands], np.int64),
            np.asarray(level, np.int64),
            np.asarray(levels, np.int64),
        )

    def __len__(self) -> int:
        return len(self.demands)

    def accepted(self, model: Ints) -> Bools:
        """Return by node and demand whether it accepts the model of the node's GPUs."""
        found = np.ones((len(model), len(self)), bool)
        for number, demand in enumerate(self.demands):
            if demand.models is not None and demand.gpus:
                found[:, number] = np.isin(model, list(demand.models))
        return found


def typical(counts: Mapping[PodDemand, float], share: float = TYPICAL) -> dict[PodDemand, float]:
    """Return the most frequent demands that together are this share of all pods, or just above."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    upto = np.cumsum([count for _, count in ordered])
    kept = int(np.searchsorted(upto, share * upto[-1])) + 1 if ordered else 0
    return dict(ordered[:kept])
