"""Pods and nodes as recorded, and the order in which pods arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from headgate.base.rng import stream
from headgate.planning.packing import WHOLE, FreeNodes, PodDemand

ARRIVED = 1.30
"""The GPU demand of all pods that arrive, relative to the GPUs of all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """Nodes with GPUs; models are numbered as in `models`."""

    cpu_milli: Sequence[int]
    memory_bytes: Sequence[int]
    gpus: Sequence[int]
    model: Sequence[int]
    models: Sequence[str]

    def room(self, order: Sequence[int]) -> FreeNodes:
        """Return the nodes in this order, nothing runs on them."""
        return FreeNodes.empty(
            [self.cpu_milli[n] for n in order],
            [self.memory_bytes[n] for n in order],
            [self.gpus[n] for n in order],
            [self.model[n] for n in order],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Recorded pods, by the number of their demand, and the nodes that they run on."""

    demands: Sequence[PodDemand]
    pods: Sequence[int]
    nodes: Nodes

    @property
    def gpu_milli(self) -> int:
        """The thousandths of all GPUs."""
        return WHOLE * sum(self.nodes.gpus)

    def counts(self) -> Mapping[PodDemand, int]:
        """Return how many of the pods have each demand."""
        return {self.demands[n]: count for n, count in Counter(self.pods).items()}

    @property
    def digest(self) -> str:
        """The pods and nodes as a hash; the order of rows makes no difference."""
        models = self.nodes.models
        asked = sorted(
            (d.cpu_milli, d.memory_bytes, d.gpus, d.milli, count,
             "any" if d.models is None else "|".join(sorted(models[m] for m in d.models)))
            for d, count in self.counts().items()
        )  # fmt: skip
        nodes = self.nodes
        columns = (nodes.cpu_milli, nodes.memory_bytes, nodes.gpus, nodes.model)
        given = sorted(
            (cpu, memory, gpus, models[model])
            for cpu, memory, gpus, model in zip(*columns, strict=True)
        )
        return sha256(repr((asked, given)).encode()).hexdigest()

    def arrivals(self, seed: int) -> list[int]:
        """Return the demands of pods in order of arrival.

        Those recorded come first, shuffled; then some of them, drawn with replacement, until one
        more would exceed ARRIVED.
        """
        found = list(self.pods)
        stream(seed, "packing", "order").shuffle(found)
        draws = stream(seed, "packing", "draws")
        arrived = sum(self.demands[n].gpu_milli for n in found)
        while True:
            number = self.pods[draws.randrange(len(self.pods))]
            arrived += self.demands[number].gpu_milli
            if arrived > ARRIVED * self.gpu_milli:
                return found
            found.append(number)

    def room(self, seed: int) -> FreeNodes:
        """Return the nodes in random order: of nodes with equal costs, policies take the first."""
        order = list(range(len(self.nodes.gpus)))
        stream(seed, "packing", "nodes").shuffle(order)
        return self.nodes.room(order)
