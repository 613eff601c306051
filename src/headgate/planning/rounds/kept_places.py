"""Which places are kept for a unit that hardens, and whose announced starts are in their way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.compact import Chosen
from headgate.planning.place.node_book import room_over_time
from headgate.planning.place.placement import never, placing
from headgate.planning.place.timetable import SOONEST_S, EndAt, GpuCosts, latest_holders
from headgate.planning.times.estimates import Estimates
from headgate.planning.times.reservations import (
    LATE_S,
    RESERVED_AT,
    SUPERSEDED,
    Reservation,
    gpus_of_tasks,
)
from headgate.planning.units.unit import Unit, one_task, waiting_gang, waiting_units
from headgate.protocol import KeptPlace
from headgate.protocol.plan import Starts
from headgate.state import Scratch, Snapshot

SURE = 0.95
"""The probability with which runs take no longer than is assumed."""

NONE: Ints = np.zeros(0, np.int64)
_UNKNOWN_S = 1e9  # the rest of a run of unknown length: longer than any that is known


class Found(NamedTuple):
    """Places for a unit."""

    places: tuple[KeptPlace, ...]
    """None if there never are any."""
    idle_s: float
    """For how long their GPUs are expected to be kept idle for it, in the mean."""
    gpus: Ints
    """Their GPUs (rows)."""
    left_s: float
    """In how many seconds the last of them is expected to be free."""


NOWHERE = Found((), math.inf, NONE, math.inf)


class AnnouncedStart(NamedTuple):
    """The reservation of a job with an announced start, and how long it runs then."""

    reservation: Reservation
    announced_at: float
    run_s: float


class KeptPlaces:
    """Places for units, beside the starts of a round."""

    def __init__(self, snapshot: Snapshot, starts: Starts, placer: Placer | None) -> None:
        """Take what a policy with this placer starts."""
        self._snapshot, self._starts, self._placer = snapshot, starts, placer

    @cached_property
    def estimates(self) -> Estimates:
        """The times of runs; few rounds need them."""
        return Estimates(self._snapshot)

    def find(self, unit: Unit, announced: Mapping[int, AnnouncedStart]) -> Found:
        """Return the places that runs, and announced starts, are expected to leave first.

        O(GPUs x log).
        """
        snapshot, scratch = self._snapshot, Scratch(self._snapshot)
        if not unit.on_gpus(snapshot):
            return self._on_cpus(unit, scratch, self._left_s)
        cost = latest_holders(snapshot, self._left_s, free=0.0, left=SOONEST_S)
        tasks = self._starts.task
        run_s = np.fmin(self.estimates.run_s(tasks, SURE), _UNKNOWN_S)
        for (_, node, gpus), lasts_s in zip(self._starts, run_s.tolist(), strict=True):
            cost[[snapshot.nodes.first_gpu[node] + gpu for gpu in gpus]] = lasts_s
        for each in announced.values():
            rows = each.reservation.gpus
            left_s = min(each.reservation.at + each.run_s - snapshot.now, _UNKNOWN_S)
            cost[rows] = np.maximum(cost[rows], left_s)
        costs = GpuCosts(cost, self._left_s)
        chosen = placing(scratch, never, self._placer).cheapest_places(unit, costs)
        if chosen is None:
            return NOWHERE
        left = cost[np.unique(chosen.gpus)]
        idle_s = float((left.max() - left).mean()) if left.max() < _UNKNOWN_S else math.inf
        return Found(self._assigned(unit, chosen), idle_s, chosen.gpus, float(left.max()))

    def _left_s(self, tasks: Ints) -> Floats:
        """Return in how many seconds runs of tasks (rows) surely end."""
        end_at = self.estimates.end_at(tasks, SURE)
        return np.minimum(end_at - self._snapshot.now, _UNKNOWN_S)

    def announced(
        self, jobs: Ints, taken: Ints = NONE, until: float = math.inf
    ) -> dict[int, AnnouncedStart]:
        """Return the reservations of the jobs (rows) whose announced starts stand, by job.

        Of those given that have such starts, in the order of these; `taken` are GPUs (rows) that
        another unit gets, until a time. O(reservations x GPUs x log).
        """
        snapshot, found = self._snapshot, dict[int, AnnouncedStart]()
        at = snapshot.memo(RESERVED_AT)[jobs]
        stands = (at >= snapshot.now - LATE_S) & ~(snapshot.memo(SUPERSEDED)[jobs] > 0)
        stands &= np.isnan(snapshot.jobs.started_at.take(jobs))
        if not stands.any():
            return found
        scratch = Scratch(snapshot)
        for task, node, gpus in self._starts:
            scratch.place(task, node, gpus)
        places = placing(scratch, self.estimates.end_at, self._placer)
        places.table.take(taken, until)
        order = np.argsort(at[stands], kind="stable")
        for job, announced_at in zip(
            jobs[stands][order].tolist(), at[stands][order].tolist(), strict=True
        ):
            unit = next(units_of(snapshot, job), None)
            if unit is None or not unit.on_gpus(snapshot):
                continue
            run_s = self.estimates.together_s(unit.tasks)
            reservation = places.earliest(unit, run_s)
            if reservation is not None:
                places.table.keep(reservation, run_s)
                found[job] = AnnouncedStart(reservation, announced_at, run_s)
        return found

    def _on_cpus(self, unit: Unit, scratch: Scratch, left_s: EndAt) -> Found:
        """Return the same of a unit without GPUs, of which each place is what it needs of a node.

        What starts in this round holds it for longer than can be said. Tasks of different demands
        are on different nodes.
        """
        snapshot = self._snapshot
        for task, node, gpus in self._starts:
            scratch.place(task, node, gpus)
        first, places = snapshot.tasks_of(unit.job).start, list[KeptPlace]()
        ends, used = list[float](), set[int]()
        for demand, tasks in unit.by_demand(snapshot):
            most = 1 if unit.distinct_nodes else len(tasks)
            nodes, left = room_over_time(scratch, demand, most, left_s)
            known = np.isfinite(left) & ~np.isin(nodes, sorted(used))
            nodes, left = nodes[known], left[known]
            if len(nodes) < len(tasks):
                return NOWHERE
            soonest = np.argsort(left, kind="stable")[: len(tasks)]
            ends += left[soonest].tolist()
            used |= set(nodes[soonest].tolist())
            for task, row in zip(tasks, nodes[soonest].tolist(), strict=True):
                places.append(KeptPlace(task - first, snapshot.node(row).id, ()))
        unknown = max(ends) >= _UNKNOWN_S
        idle_s = math.inf if unknown else max(ends) - sum(ends) / len(ends)
        return Found(tuple(places), idle_s, NONE, max(ends))

    def _assigned(self, unit: Unit, found: Chosen) -> tuple[KeptPlace, ...]:
        """Return the places of the tasks of a unit."""
        snapshot = self._snapshot
        first, places = snapshot.tasks_of(unit.job).start, []
        by_demand = {demand: iter(tasks) for demand, tasks in unit.by_demand(snapshot)}
        for (node, demand, number), rows in gpus_of_tasks(snapshot, found.gpus, found.tasks):
            count, begin = snapshot.names.demands[demand].gpus, snapshot.nodes.first_gpu[node]
            for nth in range(number):
                gpus = tuple(sorted(row - begin for row in rows[nth * count : (nth + 1) * count]))
                task = next(by_demand[demand])
                places.append(KeptPlace(task - first, snapshot.node(node).id, gpus))
        return tuple(places)


def delayed(before: Mapping[int, AnnouncedStart], after: Mapping[int, AnnouncedStart]) -> list[int]:
    """Return the jobs (rows) whose announced starts are later after a change than before it."""
    return [
        job
        for job, each in before.items()
        if job not in after
        or after[job].reservation.at > max(each.reservation.at, each.announced_at) + LATE_S
    ]


def units_of(snapshot: Snapshot, job: int) -> Iterator[Unit]:
    """Yield the units of a job (row) that wait for GPUs, or, if none does, those for CPUs."""
    snapshot = replace(snapshot, hardened=None)  # that one, too
    if snapshot.jobs.waiting[job]:
        for units in waiting_units(snapshot, job):
            yield from units
    elif snapshot.jobs.gang[job]:
        gang = waiting_gang(snapshot, job)
        if gang is not None:
            yield gang
    else:
        for task in snapshot.waiting_of(job).tolist():
            yield one_task(snapshot, task)
