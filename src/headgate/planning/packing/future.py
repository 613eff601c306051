"""What a node is worth for the pods to come, and the policy that loses least of it.

The free parts of a node's GPUs are worth the shares that fit into them (see `cutting`), as far as
CPUs and memory of the node suffice for what usually fills them. What pods without GPUs need is
added to that in proportion: they take CPUs from the same nodes. What pods of a demand are worth
together is spread over what they can use: the scarcer that is, the more is lost with it. All of it
is learnt from pods that have arrived.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.packing.cutting import worth
from headgate.planning.packing.filling import Filling, ratios
from headgate.planning.packing.fragments import first_least, placed
from headgate.planning.packing.room import WHOLE, FreeNodes, PodDemand, fits
from headgate.planning.packing.scorers import Options, Scorer
from headgate.state.ledger import runs_in

_DIGITS = 3  # of a thousandth of a GPU: costs that differ by less are equal
_TIE = 1e-7  # per thousandth that the GPU has free: of equal costs the least; below the last digit

_Counts = Mapping[PodDemand, float]


@dataclass(frozen=True, slots=True, eq=False)
class Future(Scorer):
    """The node and GPU whose loss of worth is least; of equal ones the GPU with the least free.

    `of_gpu` is the worth of free parts of GPUs, by model and thousandths, the last row for models
    that no node has; `filling` is what fills them. `several` are the demands for more than one GPU,
    with their value relative to what they can use, and `extra` is what all pods need relative to
    those with GPUs.
    """

    of_gpu: Floats
    filling: Filling
    several: tuple[tuple[float, PodDemand], ...]
    extra: Floats

    @classmethod
    def of(cls, counts: _Counts, room: FreeNodes, *, leave: bool = False) -> Future:
        """Return the policy for this mix of pods, which can use what is free in a room.

        Where pods stay, the parts that others leave of a GPU are filled in the end, and all that is
        free is worth the same for one GPU and for shares. Where they `leave`, a whole GPU is lost
        for demands for one as soon as a share takes of it: their value is in whole GPUs alone.
        """
        single = {d: n for d, n in counts.items() if d.gpus == 1}
        shares: Counter[int] = Counter()
        for demand, count in single.items():
            shares[demand.milli] += int(count)
        prices, extra = worth(shares), _extra(counts)
        values = {d: n * float(prices.of_share[d.milli]) for d, n in single.items()}
        several = {d: n * float(d.gpu_milli) for d, n in counts.items() if d.gpus > 1}
        total = sum(values.values()) + sum(several.values())
        rate = float(room.free_milli().sum()) / total if total else 0.0
        free, usable = _free(room.cpu_milli, room.memory_bytes), dict[PodDemand, float]()
        whole = {d: values.pop(d) for d in single if leave and d.milli == WHOLE}
        of_gpu = _by_model(values, room)[:, None] * prices.of_free
        of_gpu[:, WHOLE] += _by_model(whole, room) * WHOLE
        for demand in several:
            sets = _sets(demand, free, room.gpu, room.model, extra)
            usable[demand] = demand.gpu_milli * float(sets.sum())
        return cls(
            rate * of_gpu,
            Filling.of(single, prices),
            tuple((rate * n / usable[d], d) for d, n in several.items() if usable[d]),
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
        known = np.minimum(model, len(self.of_gpu) - 1)
        part = self.filling.part(free, gpu, self.extra)
        found: Floats = (self.of_gpu[known[:, None], gpu] * part).sum(axis=1)
        for value, demand in self.several:
            sets = _sets(demand, free, gpu, model, self.extra)
            found += value * demand.gpu_milli * sets
        return found


def _sets(demand: PodDemand, free: Floats, gpu: Ints, model: Ints, extra: Floats) -> Floats:
    """Return by node for how many pods that need several GPUs it has room, 0 or at least one."""
    sets = runs_in((gpu >= demand.milli).sum(axis=1), demand.gpus).astype(float)
    asked = np.array([demand.cpu_milli, demand.memory_bytes])
    found: Floats = np.minimum(sets, ratios(free, asked * extra).min(axis=1))
    return np.where(_accepts(demand, model) & (free >= asked).all(axis=1), found, 0.0)


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


def _by_model(values: _Counts, room: FreeNodes) -> Floats:
    """Return by model the value of the demands that accept it, relative to what they can use.

    They can use the free parts of GPUs that are large enough. The last one is for other models.
    """
    free = np.zeros((int(room.model.max(initial=-1)) + 2, WHOLE + 1), np.int64)
    np.add.at(free, (room.model[:, None], room.gpu), room.gpu)
    usable = free[:, ::-1].cumsum(axis=1)[:, ::-1]  # by model and least free part
    found = np.zeros(len(free))
    asked = defaultdict[tuple[frozenset[int] | None, int], float](float)
    for demand, value in values.items():
        asked[demand.models, demand.milli] += value
    for (models, milli), value in asked.items():
        rows = [n for n in range(len(free)) if models is None or n in models]
        can_use = int(usable[rows, milli].sum())
        found[rows] += value / can_use if can_use else 0.0
    return found


class Learnt:
    """The policy for the pods that have arrived so far, and for what is free.

    It is learnt again each time the pods have doubled, and each time free GPUs have become fewer by
    a quarter.
    """

    def __init__(self, room: FreeNodes, growth: float = 2.0, less: float = 0.75) -> None:
        """`room` is read whenever the policy is learnt."""
        self._room, self._growth, self._less = room, growth, less
        self._counts: Counter[PodDemand] = Counter()
        self._arrived, self._free = 0, int(room.gpu.sum())
        self._next = 1.0

    def arrived(self, demand: PodDemand) -> Scorer | None:
        """Count a pod that arrives; return the policy from now on if it changes, else None."""
        self._counts[demand] += 1
        self._arrived += 1
        free = int(self._room.gpu.sum())
        if self._arrived < self._next and free >= self._free * self._less:
            return None
        self._next, self._free = max(self._next, self._arrived * self._growth), free
        return Future.of(self._counts, self._room)
