"""Reservations: GPUs that are kept free for a unit from a time on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headgate.base.arrays import Ints
from headgate.planning.units.unit import Unit
from headgate.protocol import Memo, Reserved
from headgate.protocol.reserved_at import Cause
from headgate.state import Snapshot

UNKNOWN_AT = 1e300
"""The end of a run of unknown length, for those who want a reservation for what waits for it.

It is later than every known end, so that runs of known length may use its GPUs before.
"""

RESERVED_AT = "reserved_at"
"""Column of the memo of policies that reserve: the time of the first reservation of each job."""

SUPERSEDED = "superseded"
"""Column of the memo by job: why that start no longer stands (`Cause`); 0 once it does again."""


LATE_S = 60.0
"""An announced start holds that is no later than by this."""


class TasksOnNode(NamedTuple):
    """So many tasks of a demand (row) on a node (row)."""

    node: int
    demand: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The best set that a unit could use now: it spans so many parts of a level of the topology.

    There it would run for `slowdown` times as long as in its best possible set, the time that its
    neighbours would lose included; the set that it waits for is in `better_spans` parts.
    """

    spans: int
    level: str
    slowdown: float
    better_spans: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """GPUs (rows), and what else its tasks need of nodes, kept free for a unit from a time on.

    A GPU of which several tasks get parts stands there once for each; see `gpus_of_tasks`.
    """

    unit: Unit
    at: float
    gpus: Ints
    tasks: tuple[TasksOnNode, ...]
    spread: Spread | None = None
    """What the unit could use now, if it waits for faster links."""
    announced: bool = True
    """Whether its time is announced, else only expected: others may still come first."""

    def planned(self, snapshot: Snapshot, run_s: float) -> Reserved:
        """Return it as part of a plan, given how long the unit runs, inf or NaN if unknown."""
        at = self.at if self.at < UNKNOWN_AT else math.inf
        until = math.inf if math.isnan(run_s) else at + run_s
        milli = dict.fromkeys(self.gpus.tolist(), 0)
        for tasks, gpus in gpus_of_tasks(snapshot, self.gpus, self.tasks):
            for gpu in gpus:
                milli[gpu] += snapshot.names.demands[tasks.demand].gpu_milli
        return Reserved(
            job=self.unit.job, at=at, gpus=(*milli,), milli=(*milli.values(),), until=until
        )


def gpus_of_tasks(
    snapshot: Snapshot, gpus: Ints, tasks: Sequence[TasksOnNode]
) -> Iterator[tuple[TasksOnNode, list[int]]]:
    """Yield the GPUs (rows) of tasks on each node: those of the first task, then of the next.

    `gpus` are those of all tasks, in their order on each node.
    """
    left: dict[int, list[int]] = {}
    for row, node in zip(gpus.tolist(), snapshot.gpus.node.take(gpus).tolist(), strict=True):
        left.setdefault(node, []).append(row)
    for each in tasks:
        count = each.number * snapshot.names.demands[each.demand].gpus
        here = left.get(each.node, [])
        yield each, here[:count]
        del here[:count]


def superseded(snapshot: Snapshot, job: int) -> str | None:
    """Return why the announced start of a job (row) no longer stands, None if it does."""
    column = snapshot.memos.get(SUPERSEDED)
    cause = math.nan if column is None else column[job]
    return (
        None if math.isnan(cause) or not cause else Cause(int(cause)).name.lower().replace("_", "-")
    )


def first_reservations(
    snapshot: Snapshot, reservations: Iterable[Reservation], within_s: float = math.inf
) -> Memo:
    """Return the memo of reservations: their known times, of jobs that had none before.

    No times later than in `within_s` seconds.
    """
    first = dict[int, float]()
    for each in reservations:
        if is_new(snapshot, each, within_s):
            first.setdefault(each.unit.job, each.at)
    return {RESERVED_AT: first} if first else {}


def is_new(snapshot: Snapshot, reservation: Reservation, within_s: float = math.inf) -> bool:
    """Return whether a reservation is the first one of a known time for its job."""
    known = snapshot.memos.get(RESERVED_AT)
    if known is not None and not math.isnan(known[reservation.unit.job]):
        return False
    return snapshot.now < reservation.at < min(snapshot.now + within_s, UNKNOWN_AT)
