"""The placement that a job prefers among the free GPUs: the cheapest (task, GPU) to read on.

The tasks of a task group differ in age alone. The candidate of a group is its first task on the
cheapest free GPU for it; a job's candidates are in a heap. Free GPUs are only taken during a round,
so prices only rise, and a candidate whose GPU is taken is recomputed at the top of the heap.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import Locality
from headgate.planning.shares.standing import Standing
from headgate.planning.units.costs import PRICE_LIMIT, prices_per_byte, shard_prices
from headgate.state import Snapshot
from headgate.state.ledger import Ledger

CHEAPEST, SECOND, ANY = range(3)
"""What a job accepts: only a GPU at its task's least price, also the second-best price, any."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """A task and a GPU of a node that it may take; ordered by these fields, the least first."""

    price: int  # microseconds of reading
    task: int  # row
    gpu_class: int  # of the GPU
    node: int  # row


class FreeGpus:
    """Free GPUs by node and class, and the price of reading shards on each node."""

    def __init__(
        self, snapshot: Snapshot, standing: Standing, *, alpha1: float, alpha2: float
    ) -> None:
        self.count = standing.free.copy()  # [nodes, classes]
        self._snapshot = snapshot
        self._rack = snapshot.nodes.rack.array()
        per_byte = prices_per_byte(snapshot.bandwidth, alpha1=alpha1, alpha2=alpha2)
        self._shard_price = shard_prices(snapshot.shards.size_bytes.array(), per_byte)
        self._gpu_class, self.accepts = standing.hardware.gpu_class, standing.accepts
        self._has = np.zeros(self.count.shape, bool)  # [nodes, classes] whether any, free or not
        self._has.flat[standing.hardware.cell] = True

    def limit_to(self, ledger: Ledger, node: int) -> None:
        """Count no more GPUs of a node as free than in a ledger."""
        gpus = ledger.nodes.first_gpu[node] + ledger.free_gpus(node)
        classes = self.count.shape[1]
        free = np.bincount(self._gpu_class[gpus], minlength=classes)
        self.count[node] = np.minimum(self.count[node], free)

    def prices(self, shards: Iterable[int]) -> Ints:
        """Return the price of reading these shards, [nodes] in microseconds; O(nodes x shards)."""
        total = np.zeros(len(self._rack), np.int64)
        for shard in shards:
            price = self._shard_price[shard]
            holders = np.array(self._snapshot.replicas(shard), np.int64)
            here = np.full(len(total), price[Locality.CLUSTER])
            here[np.isin(self._rack, self._rack[holders])] = price[Locality.RACK]
            here[holders] = price[Locality.NODE]
            total += here
        return np.minimum(total, PRICE_LIMIT)

    def limits(self, price: Ints, task_type: int) -> tuple[int, int]:
        """Return the two least distinct prices on GPUs that fit, free or not; equal if only one."""
        distinct = np.unique(price[self._has[:, self.accepts[task_type]].any(axis=1)])
        return int(distinct[0]), int(distinct[:2][-1])

    def cheapest(self, task: int, price: Ints, task_type: int) -> Candidate | None:
        """Return the least candidate of a task at `price` [nodes], None if no free GPU fits."""
        fits = (self.count > 0) & self.accepts[task_type]
        nodes = np.flatnonzero(fits.any(axis=1))
        if not len(nodes):
            return None
        nodes = nodes[price[nodes] == price[nodes].min()]
        classes = fits[nodes].argmax(axis=1)
        best = int(classes.argmin())
        node = int(nodes[best])
        return Candidate(price=int(price[node]), task=task, gpu_class=int(classes[best]), node=node)


@dataclass(slots=True, kw_only=True)
class _TaskGroup:
    type: int
    price: Ints  # [nodes], microseconds
    limits: tuple[int, int]
    tasks: deque[int]


class Candidates:
    """The candidates of one job; O(groups x nodes) to build, O(nodes) for each recomputed one."""

    def __init__(
        self, free_gpus: FreeGpus, groups: dict[tuple[int, tuple[int, ...]], list[int]]
    ) -> None:
        """Build from the waiting tasks (rows) of each group, by (type, shards read)."""
        self._free_gpus = free_gpus
        self._groups: list[_TaskGroup] = []
        self._heap: list[tuple[Candidate, int]] = []
        for number, ((task_type, shards), tasks) in enumerate(groups.items()):
            price = free_gpus.prices(shards)
            limits = free_gpus.limits(price, task_type)
            self._groups.append(
                _TaskGroup(type=task_type, price=price, limits=limits, tasks=deque(tasks))
            )
            self._push_best(number)

    def _push_best(self, number: int) -> None:
        group = self._groups[number]
        if group.tasks:
            candidate = self._free_gpus.cheapest(group.tasks[0], group.price, group.type)
            if candidate is not None:
                heapq.heappush(self._heap, (candidate, number))

    def best(self, accepted: int) -> Candidate | None:
        """Return the least candidate that a job accepts (CHEAPEST, SECOND, ANY), or None."""
        declined: list[tuple[Candidate, int]] = []
        chosen = None
        while chosen is None and self._heap:
            candidate, number = self._heap[0]
            if not self._free_gpus.count[candidate.node, candidate.gpu_class]:
                heapq.heappop(self._heap)
                self._push_best(number)
            elif accepted != ANY and candidate.price > self._groups[number].limits[accepted]:
                declined.append(heapq.heappop(self._heap))
            else:
                chosen = candidate
        for entry in declined:
            heapq.heappush(self._heap, entry)
        return chosen

    def least_price(self, candidate: Candidate) -> int:
        """Return the task's least price on any GPU, free or held, of a current candidate."""
        number = next(n for other, n in self._heap if other == candidate)
        return self._groups[number].limits[CHEAPEST]

    def take(self, candidate: Candidate) -> None:
        """Remove a current candidate with its GPU; the next task of its group follows."""
        index = next(i for i, (other, _) in enumerate(self._heap) if other == candidate)
        _, number = self._heap[index]
        self._free_gpus.count[candidate.node, candidate.gpu_class] -= 1
        self._groups[number].tasks.popleft()
        self._heap[index] = self._heap[-1]
        self._heap.pop()
        heapq.heapify(self._heap)
        self._push_best(number)
