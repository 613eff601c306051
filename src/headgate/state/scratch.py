"""What-if on a snapshot: place tasks on paper; what is not kept leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from headgate.base.column import Array
from headgate.protocol import Placement
from headgate.state.snapshot import Snapshot


class Trial:
    """An attempt within a scratch; undone at its end unless `keep()` was called."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        """Let the attempt stand."""
        self.kept = True


class Scratch:
    """Free GPUs and CPU slots of a snapshot, less what has been placed on paper.

    `placements` is what stands, in order. Looking a node up costs O(its GPUs) once; everything else
    is O(what is placed).
    """

    __slots__ = ("_free_cpus", "_free_gpus", "_memory", "_used_by_queue", "placements", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.placements: list[Placement] = []
        self._free_gpus: dict[int, Array] = {}
        self._memory: dict[int, Array] = {}
        self._free_cpus: dict[int, int] = {}
        self._used_by_queue: dict[int, int] = {}

    def free_cpus(self, node: int) -> int:
        """Return the CPU slots of a node that are free on paper."""
        known = self._free_cpus.get(node)
        return self.snapshot.nodes.free_cpus[node] if known is None else known

    def fitting_gpus(self, node: int, memory_bytes: int) -> Array:
        """Return the indices of a node's GPUs that are free on paper and large enough.

        Smallest memory first, then by index, so that large GPUs are kept for who needs them.
        """
        free = self._free_gpus.get(node)
        if free is None:
            free = self._free_gpus[node] = self.snapshot.free_gpus_of(node)
            self._memory[node] = self.snapshot.gpu_memory_bytes_of(node)
        memory = self._memory[node][free]
        fitting = free[memory >= memory_bytes]
        if len(fitting) > 1 and memory.min() != memory.max():
            fitting = fitting[np.argsort(self._memory[node][fitting], kind="stable")]
        return fitting

    def used_gpus(self, queue: int) -> int:
        """Return the GPUs that a queue holds, on paper too."""
        extra = self._used_by_queue.get(queue, 0)
        held: int = self.snapshot.queues.held_gpus[queue]
        return held + extra

    def place(self, task: int, node: int) -> bool:
        """Place a task on a node if it fits there now, on the smallest GPUs that do."""
        tasks = self.snapshot.tasks
        count = tasks.gpus[task]
        if count == 0:
            cpus = tasks.cpus[task]
            if self.free_cpus(node) < cpus:
                return False
            self._free_cpus[node] = self.free_cpus(node) - cpus
            self.placements.append(Placement(task=task, node=node, gpus=()))
            return True
        fitting = self.fitting_gpus(node, tasks.memory_bytes[task])
        if len(fitting) < count:
            return False
        chosen = fitting[:count]
        self._free_gpus[node] = np.setdiff1d(self._free_gpus[node], chosen, assume_unique=True)
        queue = self.snapshot.jobs.queue[tasks.job[task]]
        self._used_by_queue[queue] = self._used_by_queue.get(queue, 0) + count
        self.placements.append(Placement(task=task, node=node, gpus=tuple(chosen.tolist())))
        return True

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Undo everything placed inside unless the trial is kept."""
        before = (
            len(self.placements), dict(self._free_gpus), dict(self._free_cpus),
            dict(self._used_by_queue),
        )  # fmt: skip
        attempt = Trial()
        try:
            yield attempt
        finally:
            if not attempt.kept:
                length, self._free_gpus, self._free_cpus, self._used_by_queue = before
                del self.placements[length:]
