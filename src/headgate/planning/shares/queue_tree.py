"""The tree of queues that fair shares are divided over, with guarantees and limits at every level.

`planning.shares.fair_shares` defines what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.model import WHOLE, Queue
from headgate.model.queue import GPUS_KIND, guaranteed_of
from headgate.state.quota_rows import QuotaRows
from headgate.state.quotas import lends

NO_CEILING = 1 << 40
"""A `max_gpus` above any number of GPUs: no limit."""


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueTree:
    """Queues by row, each with its parent and its numbers of GPUs; all arrays are `[queues]`.

    Users are queues as well where what they hold is limited. Jobs are in queues without children.
    `Hierarchy` raises ValueError for a tree that is none.
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

    def _above(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield, one level up after the other, queues and the queue above each so many levels."""
        queue, above = np.arange(len(self.parent)), self.parent
        for _ in range(len(self.parent)):  # ends for a cycle as well
            queue, above = queue[above >= 0], above[above >= 0]
            if not len(above):
                return
            yield queue, above
            above = self.parent[above]


def queue_tree(rows: QuotaRows, wanted: Ints, kind: str = GPUS_KIND) -> QueueTree:
    """Return the tree of a view's queues, in GPUs, or in CPUs; O(queues x depth).

    Where users are limited, they are equal children of their queues. `wanted` is what the jobs of
    each row hold and wait for, `[rows]`. What a queue that lends nothing has of its guarantee
    beyond that stays idle.
    """
    specs, users = rows.specs, rows.most_of_users(kind)
    guaranteed = [guaranteed_of(specs, row, kind) // WHOLE for row in range(len(specs))]
    most = [NO_CEILING if each is None else each // WHOLE for each in users]
    tree = QueueTree(
        parent=np.array(rows.parent, np.int64),
        weight=np.array([*(queue.weight for queue in specs), *(1.0 for _ in users)], np.float64),
        guaranteed=np.array([*guaranteed, *(0 for _ in users)], np.int64),
        most=np.array([*(_most(queue, kind) for queue in specs), *most], np.int64),
    )
    if not any(guaranteed):
        return tree
    keeps = [row for row in range(len(specs)) if not lends(rows.view, row)]
    if not keeps:
        return tree
    return replace(tree, idle=_idle(tree, keeps, tree.total(wanted)))


def _idle(tree: QueueTree, keeps: Sequence[int], wanted: Ints) -> Ints:
    """Return what each queue that does not lend keeps, beside what is `wanted` or kept below it."""
    idle = np.zeros_like(wanted)
    depth = tree.total(np.ones_like(wanted))  # of a queue more than of any below it
    for row in np.argsort(depth, kind="stable").tolist():
        if row in keeps:
            kept = wanted[row] + tree.total(idle)[row]
            idle[row] = max(int(tree.guaranteed[row] - kept), 0)
    return idle


def _most(queue: Queue, kind: str) -> int:
    if queue.state == "stopped":
        return 0
    if kind == GPUS_KIND:
        gpus = queue.most_gpus()
        return NO_CEILING if gpus is None else gpus
    most = dict(queue.most_of_others()).get(kind)
    return NO_CEILING if most is None else most // WHOLE
