"""The line of multi-GPU units under policies that offer single GPUs: some are kept for the first.

Small tasks would otherwise take each free GPU before a multi-GPU unit has all that it needs. A job
below its share whose turn comes, but whose unit does not fit what is free, joins the line, and
leaves it when a unit starts or it is at its share. The first in line chooses before all other jobs;
while its unit does not fit, no other task starts on the nodes kept for it: those with most GPUs
free, as many as hold the unit when idle. They change only for nodes with more free GPUs, so it
starts at the latest when the runs on them have ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headgate.planning.place.multi_gpu import MultiGpuUnits
from headgate.planning.shares.standing import Standing
from headgate.planning.units.unit import Unit
from headgate.protocol import Memo
from headgate.protocol.reasons import KeptFor
from headgate.state import Scratch

IN_LINE_SINCE = "in_line_since"
"""Column of the memo: the time at which a job joined the line, -1 once it has left it."""


class Line:
    """The line in one round; jobs are indices into `Standing.jobs`."""

    def __init__(self, scratch: Scratch, standing: Standing, multi_gpu: MultiGpuUnits) -> None:
        self._scratch, self._standing, self._multi_gpu = scratch, standing, multi_gpu
        known = standing.snapshot.memo(IN_LINE_SINCE)[standing.jobs]
        self._before = np.where(np.isnan(known), -1.0, known)
        self._since = self._before.copy()
        self._idle_nodes: dict[tuple[tuple[int, ...], bool], list[int]] = {}  # by shape
        self.kept: list[int] = []
        """Nodes (rows) that are kept for the first in line; closed in the scratch's ledger."""
        self._first = -1  # for which they are kept
        self.kept_milli = 0
        """Thousandths of GPUs for which its queue keeps room below its ceiling."""

    def in_order(self, eligible: NDArray[np.bool_]) -> Iterator[int]:
        """Remove all but `eligible` jobs, `[jobs]`; yield the others, the earliest first.

        Ends when nodes are kept for one of them.
        """
        self._since[~eligible] = -1.0
        waiting = np.flatnonzero(self._since >= 0)
        for job in waiting[np.argsort(self._since[waiting], kind="stable")].tolist():
            if self.kept:
                return
            yield job

    def offer(self, job: int, room_milli: int, *, below_share: bool) -> int | None:
        """Place the first unit of a job that fits; return its thousandths of GPUs, None if none.

        `room_milli` is what its queue may get. If none fits, a job below its share joins the line;
        if it is the first of this round, nodes are kept for it. O(nodes x log), for a gang of tasks
        of different demands O(nodes x tasks).
        """
        milli = self._multi_gpu.place_one(job, room_milli=room_milli)
        in_line = milli is None and below_share
        unit = self._multi_gpu.next_unit(job) if in_line else None
        if unit is not None and self._holds(job, unit):
            if self._since[job] < 0:
                self._since[job] = self._scratch.snapshot.now
            if not self.kept:
                nodes = self._nodes_for(unit)
                milli = self._multi_gpu.place_one(job, room_milli=room_milli, among=nodes)
                if milli is None:
                    self._first = job
                    self._keep(nodes, unit)
        if milli is not None:
            self._since[job] = -1.0
        return milli

    def __bool__(self) -> bool:
        """Return whether any unit is in line."""
        return bool((self._since >= 0).any())

    def end(self) -> None:
        """Open the nodes that were kept."""
        self._scratch.ledger.close([])

    def why(self, job: int) -> KeptFor | None:
        """Return that the GPUs left are kept for another job than this one, if some are."""
        free = int(self._scratch.ledger.nodes.free_gpus.array()[self.kept].sum())
        if not free or job == self._first:
            return None
        first = self._scratch.snapshot.job(int(self._standing.jobs[self._first]))
        return KeptFor(job=first.id, free_gpus=free)

    def why_row(self, row: int) -> KeptFor | None:
        """Return the same of the job of a row."""
        return self.why(int(np.searchsorted(self._standing.jobs, row)))

    def memo(self) -> Memo:
        """Return the times that have changed, by row of the job."""
        changed = np.flatnonzero(self._since != self._before)
        rows, since = self._standing.jobs[changed].tolist(), self._since[changed].tolist()
        return {IN_LINE_SINCE: dict(zip(rows, since, strict=True))} if rows else {}

    def _keep(self, nodes: list[int], unit: Unit) -> None:
        self.kept, self.kept_milli = nodes, unit.gpus_milli(self._scratch.snapshot)
        self._scratch.ledger.close(nodes)

    def _holds(self, job: int, unit: Unit) -> bool:
        """Return whether the idle cluster and the ceilings of its queue hold a unit."""
        quotas, milli = self._scratch.quotas, unit.gpus_milli(self._scratch.snapshot)
        if any(milli > quotas.limit(row) for row in quotas.above(int(self._standing.queue[job]))):
            return False
        if unit.shape not in self._idle_nodes:
            self._idle_nodes[unit.shape] = self._nodes_for(unit)
        return bool(self._idle_nodes[unit.shape])

    def _nodes_for(self, unit: Unit) -> list[int]:
        """Return the nodes to keep for a unit, none if the idle cluster does not hold it."""
        free = self._scratch.ledger.nodes.free_gpus
        nodes = sorted(self._scratch.snapshot.live_nodes(), key=lambda row: (-free[row], row))
        return self._multi_gpu.nodes_for(unit, nodes)
