"""The tree of queues that fair shares are divided over, with guarantees and limits at every level.

`planning.shares.fair_shares` defines what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model import Queue
from headgate.state import Snapshot

NO_CEILING = 1 << 40
"""A `max_gpus` above any number of GPUs: no limit."""


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueTree:
    """Queues by row, each with its parent and its numbers of GPUs; all arrays are `[queues]`.

    Jobs are in queues without children. `Hierarchy` raises ValueError for a tree that is none.
    """

    parent: Ints  # rows, -1 for a queue at the top
    weight: Floats  # against siblings, above 0
    guaranteed: Ints  # 0 for none
    most: Ints  # NO_CEILING for none
    idle: Ints = field(default_factory=_none)  # of the guarantee, neither used nor lent; zeros

    def __post_init__(self) -> None:
        """Without idle GPUs given, set zeros."""
        if not len(self.idle):
            object.__setattr__(self, "idle", np.zeros_like(self.parent))

    @classmethod
    def flat(cls, *, weight: Floats, most: Ints) -> QueueTree:
        """Return queues without parents and guarantees."""
        zeros = np.zeros(len(weight), np.int64)
        return cls(parent=zeros - 1, weight=weight, guaranteed=zeros, most=most)

    def total(self, own: Ints) -> Ints:
        """Return what each queue and all below it have together, given what each has itself.

        O(queues x depth).
        """
        total = own.copy()
        for queue, above in self._above():
            np.add.at(total, above, own[queue])
        return total

    def or_above(self, some: Bools) -> Bools:
        """Return whether `some` is true of each queue or of any above it; O(queues x depth)."""
        found = some.copy()
        for queue, above in self._above():
            found[queue] |= some[above]
        return found

    def limited(self, gpus: int) -> Bools:
        """Return which queues have a limit below so many GPUs, or a queue above them has."""
        return self.or_above(self.most < gpus)

    def beside(self, others: Ints) -> QueueTree:
        """Return what is left for some jobs when others hold `others` GPUs, `[queues]`.

        Those count for their queues and all above, in guarantees and limits. O(queues x depth).
        """
        total = self.total(others)
        return replace(
            self,
            guaranteed=np.clip(self.guaranteed - total, 0, self.guaranteed),
            most=np.maximum(self.most - total, 0),
        )

    def by_weight(self) -> QueueTree:
        """Return the tree without guarantees and limits: they are in GPUs, not in CPUs."""
        zeros = np.zeros_like(self.parent)
        return replace(self, guaranteed=zeros, most=zeros + NO_CEILING, idle=zeros)

    def _above(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield, one level up after the other, queues and the queue above each so many levels."""
        queue, above = np.arange(len(self.parent)), self.parent
        for _ in range(len(self.parent)):  # ends for a cycle as well
            queue, above = queue[above >= 0], above[above >= 0]
            if not len(above):
                return
            yield queue, above
            above = self.parent[above]


def queue_tree(snapshot: Snapshot) -> QueueTree:
    """Return the tree of a snapshot's queues; O(queues)."""
    specs, rows = snapshot.queues.spec.array(), snapshot.names.queue_rows
    parent = np.array([rows[q.parent] if q.parent else -1 for q in specs], np.int64)
    return QueueTree(
        parent=parent,
        weight=np.array([queue.weight for queue in specs], np.float64),
        guaranteed=np.zeros_like(parent),
        most=np.array([_most(queue) for queue in specs], np.int64),
    )


def _most(queue: Queue) -> int:
    if queue.state == "stopped":
        return 0
    return NO_CEILING if queue.max_gpus is None else queue.max_gpus
