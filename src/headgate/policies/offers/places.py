"""Free GPUs near a task's data: on a node with a replica, in such a node's rack, anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headgate.model import Locality
from headgate.planning.shares.standing import Standing
from headgate.protocol import Start
from headgate.state import Snapshot
from headgate.state.tables import GPU_FREE

Place = tuple[Locality, int]
"""A node or a rack by its row, or the cluster."""

_CLUSTER: Place = (Locality.CLUSTER, 0)


class FreeGpusByPlace:
    """The free GPUs of a round by place and class; GPUs are only taken."""

    def __init__(self, snapshot: Snapshot, standing: Standing) -> None:
        """Sort the free GPUs; O(GPUs x log GPUs)."""
        self._snapshot, self._type = snapshot, standing.kinds.of_demand
        free = standing.free_gpu
        self.left = len(free)
        self._class, self._node = standing.hardware.gpu_class, snapshot.gpus.node.array()
        self._free: dict[Place, dict[int, deque[int]]] = {}  # by place and class
        self._accepted = [*map(np.flatnonzero, standing.accepts), np.zeros(0, np.int64)]  # by type
        self._taken: set[int] = set()
        for gpu in free[np.lexsort((free, self._node[free], self._class[free]))].tolist():
            node, gpu_class = int(self._node[gpu]), int(self._class[gpu])
            rack = (Locality.RACK, int(snapshot.nodes.rack[node]))
            for place in ((Locality.NODE, node), rack, _CLUSTER):
                self._free.setdefault(place, {}).setdefault(gpu_class, deque()).append(gpu)

    def smallest(self, places: tuple[Place, ...], task: int) -> int | None:
        """Return the row of the smallest GPU of some places that suits a task (ties: the first)."""
        classes = self._accepted[self._type[self._snapshot.tasks.demand[task]]].tolist()
        found = [gpu for p in places if (gpu := self._smallest(p, classes)) is not None]
        return min(found, key=self._by_size, default=None)

    def take(self, task: int, gpu: int) -> Start:
        """Take a free GPU and return the start of the task on it."""
        self._taken.add(gpu)
        self.left -= 1
        node = int(self._node[gpu])
        index = gpu - self._snapshot.nodes.first_gpu[node]
        return Start(task, node, (index,))

    def remove(self, starts: Iterable[Start]) -> None:
        """Remove the GPUs of starts."""
        for _, node, gpus in starts:
            self._remove(self._snapshot.nodes.first_gpu[node] + index for index in gpus)

    def remove_nodes(self, nodes: Iterable[int]) -> None:
        """Remove all GPUs of nodes."""
        first, count = self._snapshot.nodes.first_gpu, self._snapshot.nodes.gpu_count
        for node in nodes:
            self._remove(range(first[node], first[node] + count[node]))

    def _remove(self, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            if self._snapshot.gpus.task[gpu] == GPU_FREE and gpu not in self._taken:
                self._taken.add(gpu)
                self.left -= 1

    def _smallest(self, place: Place, classes: Iterable[int]) -> int | None:
        by_class = self._free.get(place, {})
        for free in [by_class[each] for each in classes if each in by_class]:
            while free and free[0] in self._taken:
                free.popleft()
            if free:
                return free[0]
        return None

    def _by_size(self, gpu: int) -> tuple[int, int, int]:
        return int(self._class[gpu]), int(self._node[gpu]), gpu


def places_of(
    snapshot: Snapshot, waiting: Sequence[int], gpus: FreeGpusByPlace
) -> Iterator[tuple[int, int]]:
    """Yield (task, GPU) as rows for a job's `waiting` tasks: best level first, then in their order.

    The caller must take each GPU before it requests the next one. Other jobs may take GPUs in
    between: a task that has found no GPU at a level finds none there later in the round.
    """
    levels: dict[tuple[int, ...], tuple[tuple[Place, ...], ...]] = {}
    for level in range(len(Locality)):
        rest = []
        for task in waiting:
            reads = snapshot.reads(task)
            if reads not in levels:
                levels[reads] = _levels(snapshot, reads)
            gpu = gpus.smallest(levels[reads][level], task)
            if gpu is None:
                rest.append(task)
            else:
                yield task, gpu
        waiting = rest


def _levels(snapshot: Snapshot, reads: tuple[int, ...]) -> tuple[tuple[Place, ...], ...]:
    """Return the places by level for a task that reads these shards: nodes, their racks, anywhere.

    The nodes are those with most of its bytes. Without replicas, all GPUs are at the first level.
    """
    held_bytes: dict[int, int] = {}
    for shard in dict.fromkeys(reads):
        for node in snapshot.replicas(shard):
            held_bytes[node] = held_bytes.get(node, 0) + snapshot.shards.size_bytes[shard]
    most = max(held_bytes.values(), default=0)
    if not most:
        return (_CLUSTER,), (), ()
    nodes = sorted(node for node, held in held_bytes.items() if held == most)
    racks = dict.fromkeys(int(snapshot.nodes.rack[node]) for node in nodes)
    return (
        tuple((Locality.NODE, node) for node in nodes),
        tuple((Locality.RACK, rack) for rack in racks),
        (_CLUSTER,),
    )
