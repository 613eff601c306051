"""What a job takes when it is offered the free GPUs: its cheapest (task, GPU), by price of reading.

Tasks of a job that differ in nothing but age are of one *kind*. Of each kind the first task bids
for its cheapest free GPU; a job's bids lie in a heap. Free GPUs only shrink during a round, so a
bid only rises, and one whose place is gone is made anew when it comes up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headgate.model import Locality
from headgate.planning.costs import PRICE_LIMIT, prices_per_byte, shard_prices
from headgate.planning.shares import Ints
from headgate.planning.standing import Standing
from headgate.state import Snapshot
from headgate.state.tables import GPU_GONE

CHEAPEST, SECOND, ANY = range(3)
"""What a job is content with: a GPU at its task's least cost, at the second-best, any."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bid:
    """A task for a GPU of a class on a node; the least bid wins, fields compared in this order."""

    price: int  # microseconds of reading
    task: int  # row
    size: int  # class of the GPU
    node: int  # row


class Market:
    """Free GPUs by node and class, and the price of reading anything on any node."""

    def __init__(self, snapshot: Snapshot, now: Standing, *, alpha1: float, alpha2: float) -> None:
        self.free = now.free.copy()
        self._snapshot = snapshot
        self._rack = snapshot.nodes.rack.array()
        per_byte = prices_per_byte(snapshot.bandwidth, alpha1=alpha1, alpha2=alpha2)
        self._shard_price = shard_prices(snapshot.shards.size_bytes.array(), per_byte)
        there = np.flatnonzero(snapshot.gpus.task.array() != GPU_GONE)
        self._largest = np.full(len(self._rack), -1)  # class per node, free or not
        size = np.searchsorted(now.class_bytes, snapshot.gpus.memory_bytes.array()[there])
        np.maximum.at(self._largest, snapshot.gpus.node.array()[there], size)

    def prices(self, shards: Iterable[int]) -> Ints:
        """Return the price of reading these shards on each node."""
        total = np.zeros(len(self._rack), np.int64)
        for shard in shards:
            price = self._shard_price[shard]
            holders = np.array(self._snapshot.replicas(shard), np.int64)
            here = np.full(len(total), price[Locality.CLUSTER])
            here[np.isin(self._rack, self._rack[holders])] = price[Locality.RACK]
            here[holders] = price[Locality.NODE]
            total += here
        return np.minimum(total, PRICE_LIMIT)

    def limits(self, price: Ints, size: int) -> tuple[int, int]:
        """Return the least and the second of the distinct prices on GPUs that fit, free or not."""
        distinct = np.unique(price[self._largest >= size])
        return int(distinct[0]), int(distinct[:2][-1])

    def cheapest(self, task: int, price: Ints, size: int) -> Bid | None:
        """Return the least bid of a task of a class that pays `price` by node, if any GPU fits."""
        fits = self.free[:, size:] > 0
        nodes = np.flatnonzero(fits.any(axis=1))
        if not len(nodes):
            return None
        nodes = nodes[price[nodes] == price[nodes].min()]
        sizes = size + fits[nodes].argmax(axis=1)
        best = int(sizes.argmin())
        node = int(nodes[best])
        return Bid(price=int(price[node]), task=task, size=int(sizes[best]), node=node)


@dataclass(slots=True, kw_only=True)
class _Kind:
    size: int
    price: Ints  # by node
    limits: tuple[int, int]
    tasks: deque[int]


class Bids:
    """The bids of one job; O(kinds x nodes) to make, O(nodes) for a bid made anew."""

    def __init__(self, market: Market, kinds: dict[tuple[int, tuple[int, ...]], list[int]]) -> None:
        """Take the waiting tasks of each kind: class and shards read."""
        self._market = market
        self._kinds: list[_Kind] = []
        self._heap: list[tuple[Bid, int]] = []
        for number, ((size, shards), tasks) in enumerate(kinds.items()):
            price = market.prices(shards)
            limits = market.limits(price, size)
            self._kinds.append(_Kind(size=size, price=price, limits=limits, tasks=deque(tasks)))
            self._bid(number)

    def _bid(self, number: int) -> None:
        kind = self._kinds[number]
        if kind.tasks:
            bid = self._market.cheapest(kind.tasks[0], kind.price, kind.size)
            if bid is not None:
                heapq.heappush(self._heap, (bid, number))

    def best(self, content: int) -> Bid | None:
        """Return the least bid that satisfies a job content with so much, or None."""
        dear: list[tuple[Bid, int]] = []
        found = None
        while found is None and self._heap:
            bid, number = self._heap[0]
            if not self._market.free[bid.node, bid.size]:
                heapq.heappop(self._heap)
                self._bid(number)
            elif content != ANY and bid.price > self._kinds[number].limits[content]:
                dear.append(heapq.heappop(self._heap))
            else:
                found = bid
        for entry in dear:
            heapq.heappush(self._heap, entry)
        return found

    def least_price(self, bid: Bid) -> int:
        """Return what the task of a current bid would pay on the GPU that is best for it."""
        number = next(n for other, n in self._heap if other == bid)
        return self._kinds[number].limits[CHEAPEST]

    def take(self, bid: Bid) -> None:
        """Give a current bid its GPU; the next task of the kind bids."""
        index = next(i for i, (other, _) in enumerate(self._heap) if other == bid)
        _, number = self._heap[index]
        self._market.free[bid.node, bid.size] -= 1
        self._kinds[number].tasks.popleft()
        self._heap[index] = self._heap[-1]
        self._heap.pop()
        heapq.heapify(self._heap)
        self._bid(number)
