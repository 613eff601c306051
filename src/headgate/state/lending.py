"""Loans: which queue holds what another one is guaranteed and does not use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headgate.model import WHOLE, Queue
from headgate.model.queue import GPUS_KIND, guaranteed_of
from headgate.state.queues import queues_of
from headgate.state.quotas import Quotas
from headgate.state.view import View


class Loan(NamedTuple):
    """Thousandths of GPUs that a queue holds of what a sibling is guaranteed; queues are rows."""

    borrower: int
    lender: int
    gpus_milli: int


def loans(view: View) -> list[Loan]:
    """Return what queues borrow of each other, level by level, each in the order of its queues.

    At each level, what siblings hold beyond their guarantees is first taken from what none of them
    is guaranteed, then from what others do not use of theirs. O(queues x depth).
    """
    rows, quotas = queues_of(view), Quotas(view)
    specs = [view.queue(row) for row in range(len(view.queues.spec))]
    found: list[Loan] = []
    below: dict[str, list[int]] = {}
    for row in rows:
        below.setdefault(specs[row].parent, []).append(row)
    for parent, siblings in below.items():
        has = WHOLE * view.gpu_count()
        if parent:
            above = view.names.queue_rows[parent]
            has = max(_guaranteed(specs, above), quotas.used(above))
        found += _among(siblings, specs, quotas, has)
    return found


def _guaranteed(specs: Sequence[Queue], row: int) -> int:
    return guaranteed_of(specs, row, GPUS_KIND)


def _among(siblings: list[int], specs: Sequence[Queue], quotas: Quotas, has: int) -> list[Loan]:
    """Return the loans among siblings that have so much together."""
    own = {row: _guaranteed(specs, row) for row in siblings}
    more = {row: max(quotas.used(row) - own[row], 0) for row in siblings}
    unused = {row: max(own[row] - quotas.used(row), 0) for row in siblings}
    beside = max(has - sum(own.values()), 0)  # guaranteed to none of them
    found: list[Loan] = []
    lenders = [row for row in siblings if unused[row]]
    for borrower in siblings:
        free = min(more[borrower], beside)
        beside, left = beside - free, more[borrower] - free
        while left and lenders:
            milli = min(left, unused[lenders[0]])
            found.append(Loan(borrower, lenders[0], milli))
            left, unused[lenders[0]] = left - milli, unused[lenders[0]] - milli
            if not unused[lenders[0]]:
                lenders.pop(0)
    return found
