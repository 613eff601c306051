"""Where and when tasks on parts of GPUs start, on a timetable.

A GPU has a place for each task that fits it beside others, from some time on. Of the GPUs of a node
those come first that have least left, so that others stay whole; of GPUs alike the one that becomes
free last, so that what is free now stays usable. With costs in place of times, a GPU costs the same
whatever part of it is taken, and all of it is then free; the cheapest come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.model import WHOLE
from headgate.planning.place.timetable import Look, Timetable
from headgate.state.ledger import parts_in
from headgate.state.tables import GPU_IN_PART


class PartPlaces:
    """The places for the tasks of a unit that have one demand; O(GPUs x places of one x log)."""

    def __init__(
        self,
        table: Timetable,
        demand: int,
        most: int,
        available: Floats,
        is_open: Bools,
        look: Look,
    ) -> None:
        """Find at most `most` places of a node, on GPUs that are open to the tasks.

        `available` is when each is free as a whole; both by index of `Timetable.row`.
        """
        self._table, self._look, self._spec = table, look, table.demands[demand]
        ledger, rows = table.scratch.ledger, table.row
        taken = np.flatnonzero(np.isin(rows, [*look.parts]))
        in_book = np.zeros(len(rows), bool)
        if look.costs is None:
            in_book = (ledger.gpus.task.array()[rows] == GPU_IN_PART) | table.parts.is_kept[rows]
            in_book[taken] = True
        self._milli, self._bytes = np.full(len(rows), WHOLE), table.memory.copy()
        for index in taken.tolist():
            milli, memory_bytes = look.parts[int(rows[index])]
            self._milli[index] -= milli
            self._bytes[index] -= memory_bytes
        fit = parts_in(self._spec, self._milli, self._bytes, table.memory)
        width = min(most, int(fit.max(initial=1)))
        free_at = np.where(is_open, available, np.inf)
        if look.costs is not None:  # of GPUs that other tasks of the unit share
            free_at[taken] = np.where(is_open[taken], look.costs.gpu[rows[taken]], np.inf)
        self._when = np.where(np.arange(width) < fit[:, None], free_at[:, None], np.inf)
        self._in_book = np.flatnonzero(in_book & is_open)
        if len(self._in_book):
            some = rows[self._in_book]
            self._free = table.parts.free(some, table.free_at[some], look.parts)
            self._when[self._in_book] = self._free.earliest(self._spec, look.at, look.run_s, width)
        node, ordinal, when = self._places(most)
        self.node = node
        """The node (row) of each place."""
        self.free_at = table.with_room(demand, node, ordinal, when, look)
        """When it is free."""

    def _places(self, most: int) -> tuple[Ints, Ints, Floats]:
        """Return the nodes of places, their ordinals there, and when their GPUs have room."""
        gpus, width = self._spec.gpus, self._when.shape[1]
        if gpus == 1:
            node, when = np.repeat(self._table.node, width), self._when.ravel()
            order = np.lexsort((when, node))
            order = order[np.isfinite(when[order])]
            ordinal = nth_of_equals(node[order])
            order, ordinal = order[ordinal < most], ordinal[ordinal < most]
            return node[order], ordinal, when[order]
        nodes, ordinals, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for nth in range(most):  # so many tasks and one hold as many parts of a GPU at most
            some = self._when[:, : nth + 1]
            node, when = np.repeat(self._table.node, some.shape[1]), some.ravel()
            order = np.lexsort((when, node))
            last = order[nth_of_equals(node[order]) == gpus * (nth + 1) - 1]
            last = last[np.isfinite(when[last])]
            nodes.append(node[last])
            ordinals.append(np.full(len(last), nth))
            times.append(when[last])
        return np.concatenate(nodes), np.concatenate(ordinals), np.concatenate(times)

    def take(self, nodes: Sequence[int], by: float) -> Ints:
        """Return the GPUs (indices) of tasks on nodes, one entry per task, at a time.

        Node by node, those of one task after those of another. The look counts them as taken.
        """
        room = (self._when <= by).sum(axis=1)
        milli, memory_bytes = self._milli, self._bytes
        if len(self._in_book):
            left = self._free.lowest(by, self._look.run_s)
            milli[self._in_book], memory_bytes[self._in_book] = left
        chosen = [np.zeros(0, np.int64)]
        last = self._when[:, 0] * (-1 if self._look.costs is None else 1)
        order = np.lexsort((last, memory_bytes, milli))
        for node, count in Counter(nodes).items():
            here = order[(self._table.node[order] == node) & (room[order] > 0)]
            slots = np.repeat(here, np.minimum(room[here], count))[: count * self._spec.gpus]
            chosen += [slots[nth::count] for nth in range(count)]
        gpus = np.concatenate(chosen)
        self._look.take_parts(self._spec, self._table.row[gpus], self._table.memory[gpus])
        return gpus
