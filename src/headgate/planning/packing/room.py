"""What nodes have free, and what one pod asks of them, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Ints

WHOLE = 1000
"""A whole GPU, in thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What one pod asks of one node: `gpus` different GPUs, `milli` thousandths of each.

    `models` are the numbers of the GPU models that it accepts, None for any.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    milli: int = 0
    models: frozenset[int] | None = None

    @property
    def gpu_milli(self) -> int:
        """All that it asks of GPUs, in thousandths of one."""
        return self.gpus * self.milli

    @property
    def shares(self) -> bool:
        """Whether it takes a part of one GPU."""
        return self.gpus == 1 and self.milli < WHOLE


@dataclass(frozen=True, slots=True, eq=False)
class FreeNodes:
    """What is free on each of some nodes.

    `gpu` has thousandths by node and GPU, 0 beyond the GPUs that a node has. `kinds` are bits:
    which kinds of demands hold GPUs of the node, see `kind_of`.
    """

    cpu_milli: Ints
    memory_bytes: Ints
    gpu: Ints
    gpus: Ints
    model: Ints
    kinds: Ints

    @classmethod
    def empty(
        cls,
        cpu_milli: Sequence[int] | Ints,
        memory_bytes: Sequence[int] | Ints,
        gpus: Sequence[int] | Ints,
        model: Sequence[int] | Ints,
    ) -> FreeNodes:
        """Return nodes on which nothing runs."""
        count = np.asarray(gpus, np.int64)
        has = np.arange(int(count.max(initial=0))) < count[:, None]
        return cls(
            np.array(cpu_milli, np.int64),
            np.array(memory_bytes, np.int64),
            np.where(has, WHOLE, 0).astype(np.int64),
            count,
            np.array(model, np.int64),
            np.zeros(len(count), np.int64),
        )

    def __len__(self) -> int:
        return len(self.gpus)

    def rows(self, rows: Ints) -> FreeNodes:
        """Return a copy of some nodes."""
        return FreeNodes(
            self.cpu_milli[rows],
            self.memory_bytes[rows],
            self.gpu[rows],
            self.gpus[rows],
            self.model[rows],
            self.kinds[rows],
        )

    def take(self, row: int, slots: Ints, demand: PodDemand) -> None:
        """Subtract a demand from a node, on these of its GPUs."""
        self.cpu_milli[row] -= demand.cpu_milli
        self.memory_bytes[row] -= demand.memory_bytes
        if len(slots):
            self.gpu[row, slots] -= demand.milli
            self.kinds[row] |= kind_of(demand)

    def free_milli(self) -> Ints:
        """Return what is free of the GPUs of each node, in thousandths of one."""
        found: Ints = self.gpu.sum(axis=1)
        return found


def kind_of(demand: PodDemand) -> int:
    """Return the kind of a demand as a bit: a part of a GPU, or a number of whole ones."""
    if demand.gpus == 0:
        return 0
    return 1 if demand.milli < WHOLE else 1 << min(demand.gpus, 62)


def fits(room: FreeNodes, demand: PodDemand) -> Bools:
    """Return which nodes have room for a demand."""
    found: Bools = (room.cpu_milli >= demand.cpu_milli) & (room.memory_bytes >= demand.memory_bytes)
    if demand.gpus:
        found &= (room.gpu >= demand.milli).sum(axis=1) >= demand.gpus
        if demand.models is not None:
            found &= np.isin(room.model, list(demand.models))
    return found


def tightest(room: FreeNodes, demand: PodDemand) -> Ints:
    """Return by node the GPU with the least free that has enough for a demand's share of one."""
    beyond = np.iinfo(np.int64).max
    found: Ints = np.where(room.gpu >= demand.milli, room.gpu, beyond).argmin(axis=1)
    return found


def slots_of(room: FreeNodes, row: int, demand: PodDemand, first: int) -> Ints:
    """Return the GPUs of a node that a demand takes: `first`, or those with the least free."""
    if demand.gpus == 0:
        return np.zeros(0, np.int64)
    if demand.gpus == 1:
        return np.array([first], np.int64)
    free = room.gpu[row]
    order = np.argsort(free, kind="stable")
    return np.sort(order[free[order] >= demand.milli][: demand.gpus])
