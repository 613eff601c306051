"""Stage 1 of a round: which tasks are eligible, and how many GPUs each job is entitled to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.planning.moves.migration import Migration
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.prices import Prices
from headgate.policies.flow.unit_reservations import UnitReservations
from headgate.policies.flow.windows import Windows
from headgate.protocol import Refusal, Reserved
from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entitled:
    """The number of tasks that may and must be placed in a round; int64 arrays.

    Jobs are limited in groups: each job alone, or several together. At most `most` tasks of a group
    are placed, and at least `least` if enough GPUs fit. `target` are the jobs' fair shares.
    """

    target: Ints  # [jobs] GPUs
    group: Ints  # [jobs] index of the group
    row: Ints  # [groups] row of the job, or of the queue
    most: Ints  # [groups]
    least: Ints  # [groups]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingTasks:
    """The waiting tasks of a `Standing`, `[tasks]`.

    Tasks of one task group have equal demand and input: the flow may place any of them.
    """

    row: Ints
    job: Ints  # index into `Standing.jobs`
    task_group: Ints  # row of the first task of the group
    eligible: Bools  # some GPU fits it, and its group of jobs is entitled to one


class PlacedUnits(Protocol):
    """The multi-GPU units of a round, placed before the flow, and once more after it.

    `planning.place.multi_gpu.MultiGpuUnits` and `policies.flow.unit_reservations.UnitReservations`.
    """

    def __bool__(self) -> bool:
        """Return whether any units may be left."""

    def standing_after(self) -> Standing:
        """Return the standing on what the placements leave to the flow."""

    def place_rest(self) -> None:
        """Place units on what the flow leaves, without limits."""

    def room_freed(self) -> RoomFreed:
        """Return the room that runs free which are stopped after all placements so far."""

    def migration(self) -> Migration:
        """Return moves of runs that make room for a unit, or none."""

    def planned(self) -> Iterator[Reserved]:
        """Yield what is reserved, in order."""

    def refusals(self) -> Iterator[Refusal]:
        """Yield why units still wait, one refusal per reason."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """The immutable inputs of the flow problem of one snapshot."""

    standing: Standing
    in_flight: InFlight | None  # of policies that also assign GPUs held now
    entitled: Entitled
    tasks: WaitingTasks
    prices: Prices
    units: PlacedUnits
    reserving: UnitReservations | None  # the `units`, of a policy that reserves GPUs for some

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the round."""
        return self.standing.snapshot

    @property
    def windows(self) -> Windows | None:
        """The windows of the GPUs that are reserved for later."""
        return None if self.reserving is None else self.reserving.windows


def round_of(
    standing: Standing,
    in_flight: InFlight | None,
    entitled: Entitled,
    prices: Prices,
    units: PlacedUnits,
    reserving: UnitReservations | None,
) -> Round:
    """Return the inputs of a round; O(waiting tasks)."""
    most = entitled.most[entitled.group]
    eligible = (standing.task_type < len(standing.accepts)) & (most > 0)[standing.task_job]
    if in_flight is None and not standing.free.any():
        eligible[:] = False
    tasks = WaitingTasks(
        row=standing.task,
        job=standing.task_job,
        task_group=standing.snapshot.tasks.task_group.take(standing.task).astype(np.int64),
        eligible=eligible,
    )
    return Round(
        standing=standing,
        in_flight=in_flight,
        entitled=entitled,
        tasks=tasks,
        prices=prices,
        units=units,
        reserving=reserving,
    )
