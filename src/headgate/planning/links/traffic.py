"""What one step of a job sends over the links of a topology, and its best possible set of leaves.

The ranks of a job are its processes in the order of the leaves that they run on. In a step, all
messages of its pattern are sent at the same time; they are *flows* of equal size:

    all-reduce-ring     rank i to rank i + 1, the last to the first: 2 (p - 1) / p of the bytes each
    all-reduce-tree     rank i to rank (i - 1) // 2 and back: the bytes each
    all-to-all          every rank to every other one: 1 / p of the bytes each
    nearest-neighbour   to the ranks above, below, left and right in the squarest grid of all ranks,
                        which are in it row by row: the bytes each

Ranks of one leaf need no link to each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Communication, Pattern
from headgate.model.topology import Annexed, FatTree, Mesh, Topology, Tree

_PAIRS_TOGETHER = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What a job sends in one step: the links crossed, ascending, and how many flows cross each.

    All flows have `flow_bytes`; before them it computes for `step_s`. Without links it sends
    nothing that could meet other jobs.
    """

    links: Ints
    flows: Floats
    flow_bytes: float
    step_s: float

    def alone_rate(self, capacity: Floats) -> float:
        """Return the bytes per second of each of its flows where no other job sends."""
        if not len(self.links):
            return math.inf
        return float((capacity[self.links] / self.flows).min())

    def step_alone_s(self, capacity: Floats) -> float:
        """Return the seconds of a step where no other job sends."""
        return self.step_s + self.flow_bytes / self.alone_rate(capacity)


def traffic_of(topology: Topology, leaves: Ints, communication: Communication) -> Traffic:
    """Return what a step of a job sends whose GPUs (or tasks) are on these leaves.

    A leaf counts once for each of its ranks; their order does not matter. O(flows x longest route).
    """
    ranks = np.sort(np.asarray(leaves, np.int64))
    if communication.processes:
        ranks = ranks[np.arange(communication.processes) * len(ranks) // communication.processes]
    count = len(ranks)
    crossed = np.zeros(topology.links)
    if count > 1 and communication.bytes_per_step:
        for source, target, times in _flows(ranks, communication.pattern):
            offset, links = topology.routes(source, target)
            crossed += np.bincount(links, np.repeat(times, np.diff(offset)), topology.links)
    links = np.flatnonzero(crossed)
    size = communication.bytes_per_step * _share(communication.pattern, count)
    return Traffic(links, crossed[links], size, communication.step_s)


def _share(pattern: Pattern, count: int) -> float:
    """Return the size of a flow as a part of the bytes of a step."""
    if pattern is Pattern.RING:
        return 2 * (count - 1) / count
    return 1 / count if pattern is Pattern.ALL_TO_ALL else 1.0


def _flows(ranks: Ints, pattern: Pattern) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the flows between different leaves: from, to, and how many there are of each."""
    count = len(ranks)
    number = np.arange(count)
    match pattern:
        case Pattern.RING:
            pairs = [(number, np.roll(number, -1))]
        case Pattern.TREE:
            pairs = [(number[1:], (number[1:] - 1) // 2), ((number[1:] - 1) // 2, number[1:])]
        case Pattern.NEIGHBOURS:
            pairs = list(_grid(count))
        case Pattern.ALL_TO_ALL:
            yield from _every_pair(*np.unique(ranks, return_counts=True))
            return
        case _:
            return
    source = ranks[np.concatenate([a for a, _ in pairs])]
    target = ranks[np.concatenate([b for _, b in pairs])]
    apart = source != target
    if apart.any():
        yield source[apart], target[apart], np.ones(apart.sum(), np.int64)


def _grid(count: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the neighbours in the squarest grid of as many ranks, in both directions."""
    rows = next(r for r in range(math.isqrt(count), 0, -1) if count % r == 0)
    grid = np.arange(count).reshape(rows, count // rows)
    for near, far in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])):
        yield near.ravel(), far.ravel()
        yield far.ravel(), near.ravel()


def _every_pair(leaves: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield all pairs of different leaves, some sources at a time."""
    step = max(1, _PAIRS_TOGETHER // len(leaves))
    for first in range(0, len(leaves), step):
        sources = np.arange(first, min(first + step, len(leaves)))
        a, b = (each.ravel() for each in np.meshgrid(sources, np.arange(len(leaves))))
        apart = a != b
        a, b = a[apart], b[apart]
        if len(a):
            yield leaves[a], leaves[b], counts[a] * counts[b]


class BestSets:
    """The best possible sets of leaves of an empty topology, by number of ranks.

    Of a tree (also that of a fat tree), the first leaves of a smallest subtree that holds the
    ranks: for each level that has such subtrees, one whose narrowest link is widest. Of a mesh or a
    torus, the boxes of least diameter that hold them, in every orientation. With annexed leaves if
    all others do not suffice. The best of these is the one in which a step alone takes least time.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._fastest: dict[tuple[Pattern, int, int, int], float] = {}

    def step_s(self, communication: Communication, ranks: int, per_leaf: int = 1) -> float:
        """Return the least seconds of a step of so many ranks, at most `per_leaf` on a leaf.

        Infinite where the topology is too small.
        """
        pattern, processes = communication.pattern, communication.processes
        if not communication.bytes_per_step:
            return (
                communication.step_s if -(-ranks // per_leaf) <= self._topology.leaves else math.inf
            )
        key = (pattern, processes, ranks, per_leaf)
        if key not in self._fastest:
            self._fastest[key] = self._fastest_rate(communication, ranks, per_leaf)
        rate = self._fastest[key]
        size = communication.bytes_per_step * _share(pattern, processes or ranks)
        return communication.step_s + size / rate if rate else math.inf

    def _fastest_rate(self, communication: Communication, ranks: int, per_leaf: int) -> float:
        """Return the most bytes per second of a flow in any candidate; 0 without any.

        They are the same for all numbers of bytes and all times of computing.
        """
        block = np.arange(ranks) // per_leaf
        return max(
            (
                traffic_of(self._topology, leaves[block], communication).alone_rate(
                    self._topology.capacity
                )
                for leaves in best_sets(self._topology, int(block[-1]) + 1)
            ),
            default=0.0,
        )


def best_sets(topology: Topology, count: int) -> Iterator[Ints]:
    """Yield the candidates for the best possible set of `count` leaves; see `BestSets`."""
    if count > topology.leaves:
        return
    if isinstance(topology, Mesh):
        yield from _boxes(topology, count)
        return
    if isinstance(topology, Annexed) and count <= topology.inside.leaves:
        yield from best_sets(topology.inside, count)
        return
    tree = topology.tree if isinstance(topology, FatTree) else topology
    if not isinstance(tree, Tree):
        yield np.arange(count)
        return
    for vertex in _smallest_subtrees(tree, count):
        yield tree.first_leaf[vertex] + np.arange(count)


def _smallest_subtrees(tree: Tree, count: int) -> list[int]:
    """Return subtrees with enough leaves whose children have fewer: the widest of each level."""
    holds = tree.end_leaf - tree.first_leaf >= count
    smallest = holds.copy()
    smallest[tree.parent[1:][holds[1:]]] = False
    narrowest = np.full(tree.vertices, np.inf)  # of the links below each vertex
    for level in range(int(tree.level.max()), 0, -1):
        here = np.flatnonzero(tree.level == level)
        np.minimum.at(narrowest, tree.parent[here], np.minimum(narrowest[here], tree.uplink[here]))
    widest: dict[int, int] = {}
    for vertex in np.flatnonzero(smallest).tolist():
        level = int(tree.level[vertex])
        if level not in widest or narrowest[vertex] > narrowest[widest[level]]:
            widest[level] = vertex
    return list(widest.values())


def _boxes(mesh: Mesh, count: int) -> Iterator[Ints]:
    least = mesh.least_diameter(count)
    for sides in itertools.product(*(range(1, size + 1) for size in mesh.shape[1:])):
        first = -(-count // math.prod(sides))
        if first > mesh.shape[0] or first - 1 + sum(sides) - len(sides) > least:
            continue
        box = np.indices((first, *sides)).reshape(len(mesh.shape), -1)[:, :count]
        yield np.ravel_multi_index(tuple(box), mesh.shape).astype(np.int64)
