"""What nodes have beside GPUs once runs that are stopped have ended.

Who preempts chooses GPUs, and stops the runs that hold them. Whether the unit then starts depends
on the rest of its demand, too: what other runs hold of a node stays held.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.units.unit import Unit
from headgate.state import Scratch, TaskState
from headgate.state.ledger import runs_in
from headgate.state.moves import is_moving, unit_of


class RoomFreed:
    """The room of one round, from what is free and what is being freed when it begins."""

    def __init__(self, scratch: Scratch) -> None:
        """Count the runs that are being stopped as ended; O(tasks)."""
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._taken: dict[int, Ints] = {}  # by kind: what is not free, less what will be, `[nodes]`
        self._ended: set[int] = set()
        stopping = np.flatnonzero(self._snapshot.tasks.state.array() == TaskState.STOPPING).tolist()
        self._end(task for task in stopping if not is_moving(self._snapshot, task))

    def holds(self, unit: Unit, gpus: Ints, stops: Iterable[int], *, counts: bool = True) -> bool:
        """Return whether a unit fits once runs have ended; if so, count these and what it takes.

        Or count nothing. `stops` are their tasks (rows), members of gangs for the whole gang;
        `gpus` (rows) are those of the unit, as in `Unit.by_demand`.
        """
        names = self._snapshot.names
        if not any(names.needs[demand] for demand in set(unit.demands)):
            if counts:
                self._end(stops)
            return True
        before, ended = {k: taken.copy() for k, taken in self._taken.items()}, self._ended.copy()
        self._end(stops)
        fits = self._take(unit, gpus)
        if not (fits and counts):
            self._taken, self._ended = before, ended
        return fits

    def _take(self, unit: Unit, gpus: Ints) -> bool:
        """Count what the tasks of a unit on GPUs need; return whether all fit."""
        names, nodes = self._snapshot.names, self._snapshot.gpus.node.take(gpus).astype(np.int64)
        for demand, tasks in unit.by_demand(self._snapshot):
            each = names.demands[demand].gpus
            if not each:  # on no known node
                continue
            here, nodes = nodes[: len(tasks) * each], nodes[len(tasks) * each :]
            places = runs_in(np.bincount(here, minlength=len(self._snapshot.nodes.alive)), each)
            if (places > self._scratch.ledger.room(demand, self._taken)).any():
                return False
            for kind, amount in names.needs[demand]:
                self._of(kind)[:] += places * amount
        return True

    def _end(self, tasks: Iterable[int]) -> None:
        """Count what runs hold as free."""
        snapshot = self._snapshot
        for task in tasks:
            for member in unit_of(snapshot, task):
                grant = snapshot.tasks.grant[member]
                if member in self._ended or grant < 0:
                    continue
                self._ended.add(member)
                for kind, amount in snapshot.names.needs[snapshot.tasks.demand[member]]:
                    self._of(kind)[snapshot.tasks.node[member]] -= amount

    def _of(self, kind: int) -> Ints:
        if kind not in self._taken:
            self._taken[kind] = np.zeros(len(self._snapshot.nodes.alive), np.int64)
        return self._taken[kind]
