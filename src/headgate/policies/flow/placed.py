"""The tasks that the flow of a round places."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from headgate.base.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """Placed tasks, ascending, each one's node, class and window, and its price; `[tasks]`.

    `price` is that of reading, and of a GPU larger than needed, in microseconds, without the wait
    for a held GPU.
    """

    task: Ints
    node: Ints
    gpu_class: Ints
    window: Ints
    price: Ints

    def only(self, chosen: Ints) -> Placed:
        """Return those at the indices `chosen`."""
        return Placed(
            task=self.task[chosen],
            node=self.node[chosen],
            gpu_class=self.gpu_class[chosen],
            window=self.window[chosen],
            price=self.price[chosen],
        )

    def joined(self, *others: Placed) -> Placed:
        """Return these and others, ascending."""
        parts = (self, *others)
        columns = {
            each.name: np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(Placed)
        }
        return Placed(**columns).only(np.argsort(columns["task"], kind="stable"))


NOTHING_PLACED = Placed(
    task=np.zeros(0, np.int64),
    node=np.zeros(0, np.int64),
    gpu_class=np.zeros(0, np.int64),
    window=np.zeros(0, np.int64),
    price=np.zeros(0, np.int64),
)
