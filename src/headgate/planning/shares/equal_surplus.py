"""The division of what a queue leaves over among its running elastic jobs, in equal parts.

Source: NewCapacity (spec 5, section 5, step 1). Each of N jobs gets an N-th of what is left, in
whole units of its own size. What then remains of a kind goes to the job that needs most of that
kind for a unit. A unit has a fixed size here, so a job gets more units of the rest only as far as
the rests of all kinds that it needs are its own (deviation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headgate.base.arrays import Ints
from headgate.state import Snapshot
from headgate.state.ledger import runs_in
from headgate.state.quotas import Quotas, amounts_of

Needs = Mapping[int, int]
"""What a unit needs by kind, each above 0."""


class Division(NamedTuple):
    """The units that each job gets; and by kind, which job gets the rest, and how much that is."""

    units: list[int]
    rest: dict[int, tuple[int, int]]


def divided(left: Mapping[int, int], jobs: Sequence[Needs]) -> Division:
    """Return the division of what is left, by kind, among jobs; O(jobs x kinds)."""
    if not jobs:
        return Division([], {})
    part = {kind: max(amount, 0) // len(jobs) for kind, amount in left.items()}
    units = [_units(part, needs) for needs in jobs]
    rest: dict[int, tuple[int, int]] = {}
    for kind, amount in left.items():
        most = max(range(len(jobs)), key=lambda n: (jobs[n].get(kind, 0), -n))
        taken = sum(count * needs.get(kind, 0) for count, needs in zip(units, jobs, strict=True))
        if jobs[most].get(kind, 0):
            rest[kind] = most, max(amount, 0) - taken
    return Division(units, rest)


def units_with_rest(left: Mapping[int, int], jobs: Sequence[Needs]) -> list[int]:
    """Return the units that each job gets, with those of the rests that are its own."""
    units, rest = divided(left, jobs)
    for number, needs in enumerate(jobs):
        own = {kind: amount for kind, (job, amount) in rest.items() if job == number}
        units[number] += _units(own, needs) if set(needs) <= set(own) else 0
    return units


def _units(amounts: Mapping[int, int], needs: Needs) -> int:
    """Return how many units of a job fit some amounts; kinds that are not named are no limit."""
    bounds = [int(runs_in(amounts[kind], need)) for kind, need in needs.items() if kind in amounts]
    return min(bounds, default=0)


def equal_surplus(snapshot: Snapshot, planned: Ints, jobs: Mapping[int, int]) -> dict[int, int]:
    """Return how many units beyond their minimum jobs (rows) get that run, given their demands.

    In a snapshot without surplus, beside the starts of `planned` tasks (rows). The jobs of a queue
    divide what is left of its guarantee, or of that of the nearest queue above it with one, of each
    kind; of the whole cluster where none has any. O(grants + jobs).
    """
    names = snapshot.names
    every = (kind for demand in jobs.values() for kind, _ in amounts_of(names, demand))
    quotas = Quotas(snapshot, dict.fromkeys(every))
    for task in planned.tolist():
        row, demand = quotas.row_of(snapshot.tasks.job[task]), snapshot.tasks.demand[task]
        quotas.add(row, amounts_of(names, demand))
    of_queue: dict[int, list[int]] = {}
    for job in jobs:
        of_queue.setdefault(snapshot.jobs.queue[job], []).append(job)
    found: dict[int, int] = {}
    for row, members in of_queue.items():
        needs = [{k: n for k, n in amounts_of(names, jobs[job]) if n} for job in members]
        left = {kind: quotas.left(row, kind) for each in needs for kind in each}
        found |= dict(zip(members, units_with_rest(left, needs), strict=True))
    return found
