"""Tentative placement: a ledger that starts as a snapshot's, and the placements made in it."""

from __future__ import annotations

import numpy as np

from headgate.base.column import Array
from headgate.protocol import NO_STEPS, NodeMemo, Start, Steps
from headgate.protocol.plan import Starts
from headgate.state.ledger import Ledger
from headgate.state.quotas import Amounts, Quotas, amounts_of
from headgate.state.snapshot import Snapshot
from headgate.state.trial import Trial


class Scratch:
    """The free resources of a snapshot, less tentative placements.

    `starts` is what has been placed, in order. Placing costs O(GPUs of the node concerned). It also
    has what placing changes in the policy's memo by node.
    """

    __slots__ = ("_group", "_memos", "_open", "_quotas", "ledger", "snapshot", "starts")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ledger = Ledger.tentative(snapshot)
        self.starts: list[Start] = []
        self._group: list[int] = []  # of each start
        self._open: int | None = None  # group of the trial under way
        self._quotas: Quotas | None = None
        self._memos: dict[str, Array] = {}  # columns by node that have changed; never in place

    @property
    def quotas(self) -> Quotas:
        """What queues and their users hold, starts included, and their limits."""
        if self._quotas is None:
            self._quotas = Quotas(self.snapshot)
            for start in self.starts:
                self._count(start.task)
        return self._quotas

    def _count(self, task: int, sign: int = 1) -> None:
        if self._quotas is not None:
            row = self._quotas.row_of(self.snapshot.tasks.job[task])
            amounts = amounts_of(self.snapshot.names, self.snapshot.tasks.demand[task])
            self._quotas.add(row, amounts, sign)

    def may_hold(self, job: int, amounts: Amounts) -> bool:
        """Return whether the limits of a job (row) have room for so much more, given the starts."""
        return self.quotas.at_limit(self.quotas.row_of(job), amounts) is None

    def place(self, task: int, node: int, gpus: tuple[int, ...] | None = None) -> bool:
        """Place a task on a node if it fits there, on the GPUs given or the best ones.

        And if the limits of its queue, and of its user there, have room.
        """
        demand = self.snapshot.tasks.demand[task]
        job = self.snapshot.tasks.job[task]
        if not self.may_hold(job, amounts_of(self.snapshot.names, demand)):
            return False
        if gpus is None:
            gpus = self.ledger.best_gpus(demand, node)
        elif self.ledger.infeasibility(demand, node, gpus):
            return False
        if gpus is None:
            return False
        self.ledger.take(task, demand, node, gpus)
        self._count(task)
        self.starts.append(Start(task, node, gpus))
        group = self._open
        self._group.append(self._next_group() if group is None else group)
        return True

    def node_memo(self, name: str) -> Array:
        """Return a copy of one column of the policy's memo by node, `[nodes]`, as changed here."""
        changed = self._memos.get(name)
        return self.snapshot.node_memo(name) if changed is None else changed.copy()

    def write_node_memo(self, name: str, column: Array) -> None:
        """Change one column of the policy's memo by node."""
        self._memos[name] = column

    def node_memos(self) -> NodeMemo:
        """Return the changes of the memo by node, for the plan."""
        changes: dict[str, dict[int, float]] = {}
        for name, column in self._memos.items():
            rows = np.flatnonzero(column != self.snapshot.node_memo(name))
            changes[name] = dict(zip(rows.tolist(), column[rows].tolist(), strict=True))
        return changes

    def _next_group(self) -> int:
        return self._group[-1] + 1 if self._group else 0

    def steps(self) -> Steps:
        """Return the starts as steps: those of a trial as one group, others one by one."""
        return Steps(starts=Starts.of(self.starts, self._group)) if self.starts else NO_STEPS

    def trial(self) -> Trial:
        """Return an attempt that undoes all placements inside unless it is kept.

        The placements of a kept one are one group of steps.
        """
        placed, outer = len(self.starts), self._open
        memos = dict(self._memos)
        if outer is None:
            self._open = self._next_group()
        attempt = self.ledger.trial()

        def end(kept: bool) -> None:
            attempt.end(kept)
            self._open = outer
            if not kept:
                self._memos = memos
                for start in self.starts[placed:]:
                    self._count(start.task, -1)
                del self.starts[placed:], self._group[placed:]

        return Trial(end)
