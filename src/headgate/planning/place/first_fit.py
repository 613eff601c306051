"""First fit in a ledger: whether tasks fit together."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.state.ledger import Ledger


def first_fit(
    ledger: Ledger,
    tasks: Sequence[int],
    demands: Sequence[int],
    nodes: Sequence[int],
    *,
    apart: bool,
) -> bool:
    """Return whether first fit places all tasks of these demands, `apart` on a node each.

    What it places stays taken in the ledger. O(tasks + distinct demands x nodes).
    """
    first: dict[int, int] = {}  # demand -> node: those before are too full for it, or used
    used: set[int] = set()
    for task, demand in zip(tasks, demands, strict=True):
        for index in range(first.get(demand, 0), len(nodes)):
            node = nodes[index]
            gpus = None if node in used else ledger.best_gpus(demand, node)
            if gpus is not None:
                ledger.take(task, demand, node, gpus)
                first[demand] = index
                used |= {node} if apart else set()
                break
        else:
            return False
    return True
