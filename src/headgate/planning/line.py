"""The line of wide units under greedy policies: GPUs are kept free for the first job in it.

Small tasks would otherwise take each free GPU before a wide unit has all that it needs. A job below
its share whose turn comes, but whose unit does not fit what is free, joins the line, and leaves it
when a unit starts or it is at its share. The first in line chooses before all other jobs; while its
unit does not fit, no other task starts on the nodes kept for it: those with most GPUs free, as many
as hold the unit when idle. They change only for nodes with more free GPUs, so it starts at the
latest when the runs on them have ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headgate.planning.fit import runs_that_fit
from headgate.planning.standing import Standing
from headgate.planning.units import Unit
from headgate.protocol import Memo
from headgate.state import Scratch

IN_LINE_SINCE = "in_line_since"
"""Column of the memo: the time at which a job joined the line, -1 once it has left it."""


class Line:
    """The line in one round; jobs are indices into `Standing.jobs`."""

    def __init__(self, now: Standing) -> None:
        self._now = now
        known = now.snapshot.memo(IN_LINE_SINCE)[now.jobs]
        self._before = np.where(np.isnan(known), -1.0, known)
        self._since = self._before.copy()
        self.kept_for: int | None = None

    def in_order(self, eligible: NDArray[np.bool_]) -> Iterator[int]:
        """Remove all but `eligible` jobs, `[jobs]`; yield the others, the earliest first."""
        self._since[~eligible] = -1.0
        waiting = np.flatnonzero(self._since >= 0)
        yield from waiting[np.argsort(self._since[waiting], kind="stable")].tolist()

    def join(self, job: int, unit: Unit, scratch: Scratch) -> list[int]:
        """Add a job to the end of the line; return the nodes (rows) that are kept for its unit.

        None for a job that is not the first in this round. A unit that the idle cluster does not
        hold, or a gang of tasks of different demands, does not join. O(nodes x log).
        """
        nodes = _nodes_for(scratch, unit)
        if not nodes:
            return []
        if self._since[job] < 0:
            self._since[job] = scratch.snapshot.now
        if self.kept_for is not None:
            return []
        self.kept_for = job
        scratch.ledger.close(nodes)
        return nodes

    def leave(self, job: int) -> None:
        """Remove a job whose unit has started."""
        self._since[job] = -1.0

    def memo(self) -> Memo:
        """Return the times that have changed, by row of the job."""
        changed = np.flatnonzero(self._since != self._before)
        rows, since = self._now.jobs[changed].tolist(), self._since[changed].tolist()
        return {IN_LINE_SINCE: dict(zip(rows, since, strict=True))} if rows else {}


def _nodes_for(scratch: Scratch, unit: Unit) -> list[int]:
    """Return the nodes to keep for a unit, none if the idle cluster does not hold it.

    None for a gang of tasks of different demands, either.
    """
    if len(set(unit.demands)) > 1:
        return []
    snapshot = scratch.snapshot
    free, demand = scratch.ledger.nodes.free_gpus, snapshot.names.demands[unit.demands[0]]
    chosen, missing = [], len(unit.tasks)
    for node in sorted(snapshot.live_nodes(), key=lambda row: (-free[row], row)):
        holds = runs_that_fit(snapshot.node(node), demand)
        if holds:
            chosen.append(node)
            missing -= 1 if unit.distinct_nodes else holds
        if missing <= 0:
            return chosen
    return []
