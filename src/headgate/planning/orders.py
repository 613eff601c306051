"""Orders of jobs: who is next, apart from where and how many.

An order ranks the jobs that wait, or, if it preempts, all that wait or run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.planning.estimates import Estimates
from headgate.planning.shares import Ints
from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`rank` sorts jobs (rows, ascending) in the order in which they are served."""

    name: str
    idea: str
    rank: Callable[[Snapshot, Ints, Estimates], Ints]


def _by_arrival(snapshot: Snapshot, jobs: Ints, estimates: Estimates) -> Ints:
    del snapshot, estimates
    return jobs


ARRIVAL = Order(name="arrival", idea="in order of arrival", rank=_by_arrival)

ORDERS: Mapping[str, Order] = {order.name: order for order in (ARRIVAL,)}
"""All orders by name."""
