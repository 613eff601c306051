"""The order of tasks at a node: which of them start, and which wait for which held GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.order import in_order, least_of_each, nth_of_equals
from headgate.planning.shares.standing import Standing
from headgate.planning.times.reservations import UNKNOWN_AT
from headgate.planning.units.costs import PRICE_LIMIT
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.placed import Placed

PAUSE_S = 1.0  # least seconds until a requested round


def starts_by_rank(standing: Standing, placed: Placed, rank: Ints) -> tuple[Placed, Placed]:
    """Return the placed tasks that get free GPUs of their nodes, and, by rank, the others.

    `rank` is each job's position in the order of jobs, `[jobs]`.
    """
    order = in_order(rank[standing.task_job[placed.task]])
    cell = (placed.node * standing.free.shape[1] + placed.gpu_class)[order]
    free = standing.free.ravel()[cell]
    some = np.flatnonzero(free)
    first = np.zeros(len(order), bool)
    first[some] = nth_of_equals(cell[some]) < free[some]
    return placed.only(np.sort(order[first])), placed.only(order[~first])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignedWaits:
    """Tasks that wait for a GPU held now, in the order of their jobs; `[tasks]`."""

    task: Ints  # indices into `Standing.task`
    job: Ints  # indices into `Standing.jobs`
    run: Ints  # index into `InFlight`
    price: Ints  # of the wait and of reading there, microseconds

    def price_by_job(self, jobs: int) -> Ints:
        """Return the least price of waiting among each job's tasks, `[jobs]`, in microseconds."""
        return least_of_each(self.job, self.price, jobs, PRICE_LIMIT)


def assign_waiting(standing: Standing, ahead: InFlight, left: Placed) -> AssignedWaits:
    """Return the held GPU of its node that each task waits for: the soonest free, in task order.

    There are at most as many tasks `left` at a node as held GPUs of the class.
    """
    classes = standing.free.shape[1]
    cell = ahead.runs.node * classes + ahead.runs.gpu_class
    sought = left.node * classes + left.gpu_class
    soonest = in_order(ahead.price)
    soonest = soonest[in_order(cell[soonest])]
    held = np.bincount(cell, minlength=standing.free.size)
    first = np.cumsum(held) - held
    run = soonest[first[sought] + nth_of_equals(sought)]
    return AssignedWaits(
        task=left.task,
        job=standing.task_job[left.task],
        run=run,
        price=np.minimum(left.price + ahead.price[run], PRICE_LIMIT),
    )


def next_round_at(
    standing: Standing,
    ahead: InFlight,
    waiting: AssignedWaits,
    free: Ints,
    short: Bools,
    next_s: float,
) -> float | None:
    """Return the time of the next round if no event occurs until then, or None.

    It is when the first GPU is expected to be free that is awaited by a task that fits a free GPU
    (`free`, `[classes]`), or whose job is below its share (`short`, `[jobs]`), or after `next_s`.
    """
    fits = standing.types_on(free)
    relevant = fits[standing.task_type[waiting.task]] | short[waiting.job]
    soon_s = float(ahead.wait_s[waiting.run[relevant]].min(initial=next_s))
    at = standing.snapshot.now + max(PAUSE_S, soon_s)
    return at if at < UNKNOWN_AT else None
