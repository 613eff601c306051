"""What a node is worth for the pods to come, and the policy that loses least of it.

The free parts of a node's GPUs are worth the shares that fit into them (see `cutting`), as far as
CPUs and memory of the node suffice for what usually fills them. What pods without GPUs need is
added to that in proportion: they take CPUs from the same nodes. All of it is learnt from pods that
have arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.packing.cutting import Worth, worth
from headgate.planning.packing.filling import Filling, ratios
from headgate.planning.packing.fragments import first_least, placed
from headgate.planning.packing.room import FreeNodes, PodDemand, fits
from headgate.planning.packing.scorers import Options, Scorer
from headgate.state.ledger import runs_in

_DIGITS = 3  # of a thousandth of a GPU: costs that differ by less are equal
_TIE = 1e-7  # per thousandth that the GPU has free: of equal costs the least; below the last digit

_Counts = Mapping[PodDemand, float]


@dataclass(frozen=True, slots=True, eq=False)
class Future(Scorer):
    """The node and GPU whose loss of worth is least; of equal ones the GPU with the least free.

    `of_free` is the worth of free parts of GPUs, `filling` what fills them. `single` is the share
    of demands for one GPU in the value of all, `accepted` the part of them that accepts a model, by
    its number, the last one for models that no demand names; `several` are the other demands, with
    their shares, and `extra` is what all pods need relative to those with GPUs.
    """

    of_free: Floats
    filling: Filling
    single: float
    accepted: Floats
    several: tuple[tuple[float, PodDemand], ...]
    extra: Floats

    @classmethod
    def of(cls, counts: _Counts) -> Future:
        """Return the policy for this mix of pods."""
        single = {d: n for d, n in counts.items() if d.gpus == 1}
        shares: Counter[int] = Counter()
        for demand, count in single.items():
            shares[demand.milli] += int(count)
        prices = worth(shares)
        several = {d: n * d.gpu_milli for d, n in counts.items() if d.gpus > 1}
        value = sum(n * prices.of_share[d.milli] for d, n in single.items())
        total = value + sum(several.values())
        extra = _extra(counts)
        return cls(
            prices.of_free,
            Filling.of(single, prices),
            value / total if total else 0.0,
            _accepted(single, prices),
            tuple((n / total, d) for d, n in several.items()),
            extra,
        )

    def worth(self, room: FreeNodes) -> Floats:
        """Return by node what it is worth, in thousandths of a GPU."""
        return self.worth_of(_free(room.cpu_milli, room.memory_bytes), room.gpu, room.model)

    def options(self, room: FreeNodes, demand: PodDemand) -> Options:
        nodes = len(room)
        cost, slot = np.full(nodes, np.inf), np.zeros(nodes, np.int64)
        rows = np.flatnonzero(fits(room, demand))
        if not len(rows):
            return Options(cost, slot)
        some = room.rows(rows)
        node, slots, cpu_milli, gpu = placed(some, demand)
        memory_bytes = some.memory_bytes[node] - demand.memory_bytes
        after = self.worth_of(_free(cpu_milli, memory_bytes), gpu, some.model[node])
        loss = np.round(self.worth(some)[node] - after, _DIGITS)
        if demand.gpus == 1:
            loss += _TIE * some.gpu[node, slots]
        best, chosen = first_least(node, loss, len(rows))
        cost[rows], slot[rows] = best, slots[chosen]
        return Options(cost, slot)

    def worth_of(self, free: Floats, gpu: Ints, model: Ints) -> Floats:
        """Return the same of CPUs and bytes `[n, 2]`, free parts of GPUs `[n, g]` and models."""
        accepted = self.accepted[np.minimum(model, len(self.accepted) - 1)]
        part = self.filling.part(free, gpu, self.extra)
        found: Floats = self.single * accepted * (self.of_free[gpu] * part).sum(axis=1)
        for share, demand in self.several:
            found += share * demand.gpu_milli * self._sets(demand, free, gpu, model)
        return found

    def _sets(self, demand: PodDemand, free: Floats, gpu: Ints, model: Ints) -> Floats:
        """Return by node for how many pods that need several GPUs it has room."""
        sets = runs_in((gpu >= demand.milli).sum(axis=1), demand.gpus).astype(float)
        needs = np.array([demand.cpu_milli, demand.memory_bytes]) * self.extra
        found: Floats = np.minimum(sets, ratios(free, needs).min(axis=1))
        return np.where(_accepts(demand, model), found, 0.0)


def _free(cpu_milli: Ints, memory_bytes: Ints) -> Floats:
    return np.stack([cpu_milli, memory_bytes], axis=1).astype(float)


def _accepts(demand: PodDemand, model: Ints) -> Bools:
    if demand.models is None:
        return np.ones(len(model), bool)
    return np.isin(model, list(demand.models))


def _extra(counts: _Counts) -> Floats:
    """Return what all pods need relative to those with GPUs: of CPUs, and of memory."""
    asked = np.zeros((2, 2))
    for demand, count in counts.items():
        needs = count * np.array([demand.cpu_milli, demand.memory_bytes], float)
        asked[0] += needs
        asked[1] += needs if demand.gpus else 0.0
    ratio: Floats = asked[0] / np.where(asked[1] > 0, asked[1], np.maximum(asked[0], 1.0))
    return ratio


def _accepted(single: _Counts, prices: Worth) -> Floats:
    """Return by model the part of the pods' value that accepts it; the last is for all others."""
    named = [model for d in single for model in d.models or ()]
    accepted = np.zeros(max(named, default=-1) + 2)
    for demand, count in single.items():
        value = count * prices.of_share[demand.milli]
        if demand.models is None:
            accepted += value
        else:
            accepted[list(demand.models)] += value
    total = sum(n * prices.of_share[d.milli] for d, n in single.items())
    return accepted / total if total else np.ones_like(accepted)


class Learnt:
    """The policy for the pods that have arrived so far, learnt again each time they double."""

    def __init__(self, growth: float = 2.0) -> None:
        self._counts: Counter[PodDemand] = Counter()
        self._arrived = 0
        self._next = 1.0
        self._growth = growth

    def arrived(self, demand: PodDemand) -> Scorer | None:
        """Count a pod that arrives; return the policy from now on if it changes, else None."""
        self._counts[demand] += 1
        self._arrived += 1
        if self._arrived < self._next:
            return None
        self._next = self._arrived * self._growth
        return Future.of(self._counts)
