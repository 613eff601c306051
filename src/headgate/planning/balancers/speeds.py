"""How fast nodes run tasks of each kind, learnt from the runs that ended there.

A sample is the logarithm of a run's computing time. Nodes of like hardware are of one class. The
mean of a node begins at that of its class, that of a class at that of the kind, each counting as
`PRIOR` samples: a single slow run moves a node by a fraction. Later samples weigh more; what is
known of a node fades while other nodes run tasks of the kind, so that a node which was slow gets
tasks again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from headgate.base.arrays import Floats

PRIOR = 3.0
"""The weight, in samples, of the mean of the wider group."""

MOST_SAMPLES = 60.0
"""The weight of all samples of a group, at most, that of the last one being 1."""

_SHORTEST_S = 1e-6


class _Mean:
    """A mean of samples of which later ones weigh more."""

    __slots__ = ("counted", "fading", "mean", "weight")

    def __init__(self, fading: float) -> None:
        self.fading, self.weight, self.mean, self.counted = fading, 0.0, 0.0, 0.0

    def add(self, sample: float, count: int, now: float) -> None:
        """Add `count` equal samples, when the clock of the group is `now`."""
        kept = self.weight_at(now) * self.fading**count
        added = (1 - self.fading**count) / (1 - self.fading) if self.fading < 1 else count
        self.mean = (kept * self.mean + added * sample) / (kept + added)
        self.weight, self.counted = kept + added, now

    def weight_at(self, now: float) -> float:
        """Return the weight of the samples, which fades as the clock advances."""
        return float(self.weight * self.fading ** max(0.0, now - self.counted))

    def from_prior(self, prior: float, now: float) -> float:
        """Return the mean of the samples and of a prior one."""
        weight = self.weight_at(now)
        return (weight * self.mean + PRIOR * prior) / (weight + PRIOR)


class _Kind:
    """What is known of one kind of task."""

    __slots__ = ("by_class", "by_node", "every", "samples")

    def __init__(self, fading: float) -> None:
        self.samples = 0
        self.every = _Mean(fading)
        self.by_class: dict[Hashable, _Mean] = {}
        self.by_node: dict[Hashable, _Mean] = {}

    def rounds(self) -> float:
        """Return the clock by which samples of nodes fade: samples by the number of nodes."""
        return self.samples / max(1, len(self.by_node))


class Speeds:
    """Computing times by kind and node. Kinds, nodes and classes are any names."""

    def __init__(self, *, fading: float = 1 - 1 / MOST_SAMPLES) -> None:
        """Start without samples. Each one multiplies the weight of those before it by `fading`."""
        self._fading = fading
        self._kinds: dict[Hashable, _Kind] = {}

    def record(
        self, kind: Hashable, node: Hashable, node_class: Hashable, seconds: float, count: int = 1
    ) -> None:
        """Count `count` runs of a kind on a node, of so many seconds each. O(1)."""
        known = self._kinds.setdefault(kind, _Kind(self._fading))
        sample = math.log(max(seconds, _SHORTEST_S))
        by_class = known.by_class.setdefault(node_class, _Mean(self._fading))
        by_node = known.by_node.setdefault(node, _Mean(self._fading))
        known.samples += count
        known.every.add(sample, count, 0.0)
        by_class.add(sample, count, 0.0)
        by_node.add(sample, count, known.rounds())

    def forget(self, node: Hashable) -> None:
        """Drop what is known of a node, as of one that is lost or has other hardware now."""
        for known in self._kinds.values():
            known.by_node.pop(node, None)

    def seconds(
        self, kind: Hashable, nodes: Sequence[Hashable], classes: Sequence[Hashable]
    ) -> Floats:
        """Return how long a task of a kind computes on each of some nodes; NaN if unknown.

        A node without samples has the mean of its class, or of the kind.
        """
        known = self._kinds.get(kind)
        if known is None:
            return np.full(len(nodes), math.nan)
        now, none = known.rounds(), _Mean(self._fading)
        means = [
            known.by_node.get(node, none).from_prior(
                known.by_class.get(node_class, none).from_prior(known.every.mean, 0.0), now
            )
            for node, node_class in zip(nodes, classes, strict=True)
        ]
        return np.exp(np.array(means, np.float64))

    def speeds(
        self, kind: Hashable, nodes: Sequence[Hashable], classes: Sequence[Hashable]
    ) -> Floats:
        """Return the speed of each node for a kind: 1 is that of its mean run, or unknown."""
        known = self._kinds.get(kind)
        if known is None:
            return np.ones(len(nodes))
        speed: Floats = math.exp(known.every.mean) / self.seconds(kind, nodes, classes)
        return speed
