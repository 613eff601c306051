"""What a ledger says of nodes, in plain numbers: the oracle of its tests."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from headgate.model import UNLIMITED, Demand, Node


@dataclass
class Device:
    """One GPU: who holds it whole, and the (thousandths, bytes) of those who hold parts.

    Processes of others use `outside` bytes of it.
    """

    size: int
    whole: int | None = None
    parts: tuple[tuple[int, int], ...] = ()
    outside: int = 0

    @property
    def idle(self) -> bool:
        return self.whole is None and not self.parts and not self.outside

    @property
    def left(self) -> tuple[int, int]:
        held = [sum(column) for column in zip(*self.parts, strict=True)] or [0, 0]
        outside = self.outside if self.whole is None else 0
        return 1000 - held[0], self.size - held[1] - outside


def part_of(demand: Demand, size: int) -> tuple[int, int]:
    return demand.gpu_milli, demand.gpu_memory_bytes or size * demand.gpu_milli // 1000


class Host:
    """One node, in plain numbers."""

    def __init__(self, node: Node) -> None:
        memory = UNLIMITED if node.memory_bytes is None else node.memory_bytes
        self.total = {"cpus": 1000 * node.cpus, "memory": memory, **dict(node.custom)}
        self.held: list[tuple[Demand, tuple[int, ...]]] = []
        self.outside = {"cpus": 0, "memory": 0}
        self.gpus = [Device(gpu.memory_bytes) for gpu in node.gpus]
        self.name = node.id

    def free(self, kind: str) -> int:
        free = self.total.get(kind, 0) - sum(needs(d).get(kind, 0) for d, _ in self.held)
        return free - self.outside.get(kind, 0)

    def lacking(self, demand: Demand) -> list[str]:
        return [kind for kind, amount in needs(demand).items() if self.free(kind) < amount]

    def complaints(self, demand: Demand, gpus: Sequence[int]) -> set[str]:
        """Return everything that is wrong with a demand on these GPUs."""
        found = {f"too little free {kind} on {self.name}" for kind in self.lacking(demand)}
        if len(gpus) != demand.gpus:
            found.add(f"needs {demand.gpus} GPUs, not {len(gpus)}")
        if len(set(gpus)) < len(gpus):
            found.add("a GPU is named twice")
        for index in gpus:
            gpu = self.gpus[index] if 0 <= index < len(self.gpus) else None
            if demand.gpu_milli < 1000:
                if gpu is None or not self.part_fits(demand, gpu):
                    found.add(f"GPU {index} of {self.name} has too little left")
            elif gpu is not None and gpu.outside:
                found.add(f"GPU {index} of {self.name} is in use outside Headgate")
            elif gpu is None or not gpu.idle:
                found.add(f"GPU {index} of {self.name} is not free")
            elif gpu.size < demand.gpu_memory_bytes:
                found.add(f"GPU {index} of {self.name} is too small")
        return found

    def part_fits(self, demand: Demand, gpu: Device) -> bool:
        milli, size = part_of(demand, gpu.size)
        return gpu.whole is None and gpu.left[0] >= milli and gpu.left[1] >= size

    def choices(self, demand: Demand) -> list[tuple[int, ...]]:
        """Return every set of GPUs that a demand can hold."""
        sets = combinations(range(len(self.gpus)), demand.gpus)
        return [gpus for gpus in sets if not self.complaints(demand, gpus)]

    def best(self, demand: Demand) -> tuple[int, ...]:
        """Return the GPUs that keep the largest whole ones free, where there is a choice."""
        fit = [i for i, gpu in enumerate(self.gpus) if self.suits(demand, gpu)]
        if demand.gpu_milli < 1000:
            fit.sort(key=lambda i: (self.gpus[i].idle, *self.gpus[i].left, i))
        else:
            fit.sort(key=lambda i: (self.gpus[i].size, i))
        return tuple(fit[: demand.gpus])

    def suits(self, demand: Demand, gpu: Device) -> bool:
        if demand.gpu_milli < 1000:
            return self.part_fits(demand, gpu)
        return gpu.idle and gpu.size >= demand.gpu_memory_bytes

    def room(self, demand: Demand) -> int:
        """Return how many runs of a demand fit beside each other, GPUs aside."""
        room = [max(self.free(kind), 0) // amount for kind, amount in needs(demand).items()]
        return min([UNLIMITED, *room])

    def gpu_room(self, demand: Demand) -> list[int]:
        """Return how many runs of a demand fit each GPU beside each other."""
        if demand.gpu_milli == 1000:
            return [int(self.suits(demand, gpu)) for gpu in self.gpus]
        found = []
        for gpu in copy.deepcopy(self.gpus):
            while self.suits(demand, gpu):
                gpu.parts += (part_of(demand, gpu.size),)
            held = self.gpus[len(found)].parts
            found.append(len(gpu.parts) - len(held))
        return found

    def take(self, task: int, demand: Demand, gpus: Sequence[int]) -> None:
        self.held.append((demand, tuple(gpus)))
        for gpu in (self.gpus[index] for index in gpus):
            if demand.gpu_milli < 1000:
                gpu.parts += (part_of(demand, gpu.size),)
            else:
                gpu.whole = task

    def release(self, demand: Demand, gpus: Sequence[int]) -> None:
        self.held.remove((demand, tuple(gpus)))
        for gpu in (self.gpus[index] for index in gpus):
            if demand.gpu_milli < 1000:
                parts = [*gpu.parts]
                parts.remove(part_of(demand, gpu.size))
                gpu.parts = tuple(parts)
            else:
                gpu.whole = None


def needs(demand: Demand) -> dict[str, int]:
    """Return what a demand takes of a node's amounts, by kind."""
    amounts = {"cpus": demand.cpus_milli, "memory": demand.memory_bytes, **dict(demand.custom)}
    return {kind: amount for kind, amount in amounts.items() if amount}
