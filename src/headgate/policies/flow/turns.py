"""Turns at a node: which of the tasks sent there start, and which wait for which held GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headgate.base.order import in_order, least_of_each, nth_of_equals
from headgate.flow import Ints
from headgate.planning.census import Bools
from headgate.planning.costs import PRICE_LIMIT
from headgate.planning.standing import Standing
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.solve import Placed

_PAUSE_S = 1.0  # no round asks for the next one sooner than this


def in_turn(now: Standing, placed: Placed, turn: Ints) -> tuple[Placed, Placed]:
    """Return which of the tasks sent to a node get its free GPUs, and, in turn, those that do not.

    `turn` is each job's place in the order of jobs.
    """
    order = in_order(turn[now.task_job[placed.task]])
    cell = (placed.node * now.free.shape[1] + placed.memory_class)[order]
    free = now.free.ravel()[cell]
    some = np.flatnonzero(free)
    first = np.zeros(len(order), bool)
    first[some] = nth_of_equals(cell[some]) < free[some]
    return placed.only(np.sort(order[first])), placed.only(order[~first])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that wait for a GPU held now, those first whose turn comes first."""

    task: Ints  # indices into `Standing.task`
    job: Ints  # indices into `Standing.jobs`
    run: Ints  # index into `InFlight`
    price: Ints  # of the wait and of reading there, microseconds

    def price_by_job(self, jobs: int) -> Ints:
        """Return what waiting costs each job's task that waits least."""
        return least_of_each(self.job, self.price, jobs, PRICE_LIMIT)


def waiting_for(now: Standing, ahead: InFlight, left: Placed) -> Waiting:
    """Return for which GPUs of their nodes tasks wait, in their turn, those free soonest first.

    No more tasks are `left` at a node than GPUs of the class are held there.
    """
    classes = now.free.shape[1]
    cell = ahead.runs.node * classes + ahead.runs.memory_class
    sought = left.node * classes + left.memory_class
    soonest = in_order(ahead.price)
    soonest = soonest[in_order(cell[soonest])]
    held = np.bincount(cell, minlength=now.free.size)
    first = np.cumsum(held) - held
    run = soonest[first[sought] + nth_of_equals(sought)]
    return Waiting(
        task=left.task,
        job=now.task_job[left.task],
        run=run,
        price=np.minimum(left.price + ahead.price[run], PRICE_LIMIT),
    )


def next_round_at(
    now: Standing,
    ahead: InFlight,
    waiting: Waiting,
    free: Ints,
    short: Bools,
    next_s: float,
) -> float | None:
    """Return when to decide again, though nothing may happen until then, or None.

    When the first GPU is expected to be free that a task waits for which might run now elsewhere
    (`free`, by class), or whose job is below its share (`short`), or after `next_s`.
    """
    fitting = np.append(np.cumsum(free[::-1])[::-1], 0)
    might = (fitting[now.task_class[waiting.task]] > 0) | short[waiting.job]
    soon_s = float(ahead.wait_s[waiting.run[might]].min(initial=next_s))
    return None if math.isinf(soon_s) else now.snapshot.now + max(_PAUSE_S, soon_s)
