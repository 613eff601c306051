"""The difference of two snapshots of one history of states: changed rows, by table.

Nothing is recorded for it as the state changes: two views of a column share every page that was
not written to between them, so only the other pages are compared.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.state.tables import GPU_GONE
from headgate.state.view import View


class Changes:
    """Rows of each table, ascending, that are new or changed.

    Each is computed on first access: O(pages), and O(rows) of the pages written to.
    """

    def __init__(self, before: View, after: View) -> None:
        """Compare two snapshots of one history, the earlier one first."""
        self.before, self._after = before, after

    @cached_property
    def tasks(self) -> Ints:
        """Tasks in another state, or in another run, or that begin or cease to move.

        No other column of a task that policies read changes without one of these.
        """
        return self._rows("tasks", "state", "attempts", "target")

    @cached_property
    def demands(self) -> Ints:
        """Tasks that were known before and have another demand: labels of queues changed."""
        before, after = self.before.tasks.demand, self._after.tasks.demand
        rows = after.changed(before)
        known: Ints = rows[rows < len(before)]
        differs: Bools = before.take(known) != after.take(known)
        return known[differs]

    @cached_property
    def assigned(self) -> Ints:
        """Jobs that were known before and have moved to another queue."""
        before, after = self.before.jobs.queue, self._after.jobs.queue
        rows = after.changed(before)
        known: Ints = rows[rows < len(before)]
        differs: Bools = before.take(known) != after.take(known)
        return known[differs]

    @cached_property
    def jobs(self) -> Ints:
        """Jobs in another state, or with other held GPUs, unfinished or waiting GPU tasks."""
        return self._rows("jobs", "state", "waiting", "unfinished", "held_gpus_milli")

    @cached_property
    def queues(self) -> Ints:
        """Queues that were set, even to an equal value, or that hold other GPUs."""
        return self._rows("queues", "spec", "held_gpus_milli")

    @cached_property
    def nodes(self) -> Ints:
        """Nodes that joined, were lost, or have another capacity or other labels.

        Their capacity changes when they return, when GPUs are withheld, while they drain, and with
        what processes outside Headgate use of GPUs.
        """
        columns = ("alive", "rack", "first_gpu", "gpu_count", "draining", "label_set")
        moved = self._rows("nodes", *columns)
        before, after = self.before.gpus, self._after.gpus
        known = self.gpus[: np.searchsorted(self.gpus, len(before.task))]
        was_gone, is_gone = (table.task.take(known) == GPU_GONE for table in (before, after))
        gpus = np.union1d(known[was_gone != is_gone], self._rows("gpus", "outside_bytes"))
        return np.union1d(moved, after.node.take(gpus)) if len(gpus) else moved

    @cached_property
    def gpus(self) -> Ints:
        """GPUs that were added or removed, or with another holder, or other use outside."""
        return self._rows("gpus", "task", "outside_bytes")

    @cached_property
    def shards(self) -> Ints:
        """Shards of another size, or with copies added or removed, even if restored since."""
        return self._rows("shards", "size_bytes", "replicas", "shared")

    @cached_property
    def runtime_classes(self) -> Ints:
        """Runtime classes that are new, or whose means in seconds changed."""
        return self._rows("runtime_classes", "compute_s", "held_s")

    def _rows(self, table: str, *columns: str) -> Ints:
        before, after = getattr(self.before, table), getattr(self._after, table)
        parts: list[Ints] = [
            getattr(after, name).changed(getattr(before, name)) for name in columns
        ]
        some = [rows for rows in parts if len(rows)] or parts[:1]
        if len(some) == 1:
            return some[0]
        rows = np.sort(np.concatenate(some))
        first = np.ones(len(rows), bool)
        np.not_equal(rows[1:], rows[:-1], out=first[1:])
        return rows[first]
