"""Slots of leases are reclaimed for units of other owners that wait below their fair share.

A job with items may hold its slots as long as it has items, and many policies stop no runs. After a
round of any policy, each waiting unit with which its owner (`planning.shares.owners`) stays within
its share gets what slots of others above their share hold: of planned starts of slots, which are
then not made, else of the fewest slots that run, on nodes where the unit then fits. Slots are taken
from the job farthest above its share, and no owner comes below its own.

A stopped slot ends the item that it executes first, so what it holds is free in a later round. Then
the policy may prefer others: the memo by job counts the units for which slots were stopped, and
these start before planned starts of owners above their share. So slots are stopped once for each
unit, unless what they held is lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Floats
from headgate.base.errors import InvariantBroken
from headgate.planning.rounds.claims import held_place
from headgate.planning.shares.owners import GPU_KIND, Owners
from headgate.planning.units.unit import Unit, all_units
from headgate.protocol import (
    Group,
    OnDemand,
    Plan,
    Reclaimed,
    Refusal,
    Resize,
    Start,
    Steps,
)
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING
from headgate.state.quotas import Quotas, amounts_of

PENDING = "units_given_slots"
"""Column of the memo by job: waiting units for which slots were stopped."""


def with_reclaimed(snapshot: Snapshot, plan: Plan, *, gpus: bool = True) -> Plan:
    """Return a plan with the slots that are reclaimed, on GPUs only with `gpus`.

    A plan that stops runs on GPUs takes none there, one that moves runs none at all. O(leases)
    if there are none, or no unit waits.
    """
    state, known = snapshot.jobs.state, len(snapshot.jobs.state)
    leases = [j for j in snapshot.names.leases if j < known and state[j] == JobState.ACTIVE]
    has_promised = PENDING in snapshot.memos and np.nansum(snapshot.memo(PENDING)) > 0
    if (not leases and not has_promised) or len(plan.moves):
        return plan
    waiting = snapshot.jobs.waiting.array() + snapshot.jobs.waiting_cpu.array()
    jobs = np.flatnonzero((state.array() == JobState.ACTIVE) & (waiting > 0))
    if not len(jobs):
        return plan
    with suppress(InvariantBroken):  # a faulty plan, which admission rejects
        return _Reclaim(snapshot, plan, leases, gpus=gpus).plan(jobs.tolist())
    return plan


class _Held(NamedTuple):
    """What a run, or a planned start (`group`, else -1), holds."""

    task: int
    job: int
    demand: int
    node: int
    gpus: tuple[int, ...]
    group: int

    @property
    def planned(self) -> bool:
        return self.group >= 0


@dataclass(frozen=True, slots=True)
class _Room:
    """Where a unit fits once others hold nothing more."""

    starts: list[Start]
    freed: list[_Held]


_Allowed = Callable[[_Held], bool]


class _Reclaim:
    """One round. `now` is what is free after the starts of the plan, `soon` after all stops."""

    def __init__(self, snapshot: Snapshot, plan: Plan, leases: list[int], *, gpus: bool) -> None:
        self._snapshot, self._plan = snapshot, plan
        self._gpus = gpus and not len(plan.stops)
        self._owners = Owners(snapshot, plan.starts.task)
        self._started = set(plan.starts.task.tolist())
        self._leases = {job for job in leases if not snapshot.jobs.gang[job]}
        self._now, self._soon = Ledger.tentative(snapshot), Ledger.tentative(snapshot)
        self._nodes = snapshot.live_nodes()
        self._by_node: dict[int, list[_Held]] = {node: [] for node in self._nodes}
        self._dropped: set[int] = set()  # groups
        self._reserved: set[int] = set()  # nodes, where a unit has what is free
        self._starts: list[Group] = []
        self._stopped: dict[tuple[int, int], tuple[Reclaimed, list[int]]] = {}  # by job and node
        self._refused: dict[int, Reclaimed] = {}  # by job
        self._pending: dict[int, int] = {}  # units, by job
        self._quotas_now, self._quotas_soon = Quotas(snapshot), Quotas(snapshot)
        self._book()

    def _book(self) -> None:
        """Book planned stops and starts, and find what can be freed."""
        snapshot, tasks = self._snapshot, self._snapshot.tasks
        state, stops = tasks.state.array(), set(self._plan.stops.task.tolist())
        stopping = np.flatnonzero((state == TaskState.STOPPING) & (tasks.target.array() < 0))
        for task in sorted({*stopping.tolist(), *stops}):
            if (held := self._held(task)) is not None:
                self._soon.free(task, held.demand, held.node, held.gpus)
                self._count(self._soon, held.job, held.demand, -1)
        self._book_starts()
        slots = [task for lease in sorted(self._leases) for task in snapshot.tasks_of(lease)]
        for task in slots:
            if state[task] in EXECUTING and task not in stops and (held := self._held(task)):
                self._by_node[held.node].append(held)

    def _book_starts(self) -> None:
        """Take what planned starts hold; those that are groups of their own may be dropped."""
        tasks, plan = self._snapshot.tasks, self._plan
        groups = np.concatenate([plan.starts.group, plan.stops.group])
        sizes = np.bincount(groups, minlength=plan.steps.groups)
        for group, (task, node, gpus) in zip(plan.starts.group.tolist(), plan.starts, strict=True):
            held = _Held(task, tasks.job[task], tasks.demand[task], node, gpus, group)
            for ledger in (self._now, self._soon):
                ledger.take(task, held.demand, node, gpus)
                self._count(ledger, held.job, held.demand)
            if sizes[group] == 1:
                self._by_node[node].append(held)

    def _held(self, task: int) -> _Held | None:
        """Return what a run holds; None if some of it stays withheld from all others."""
        place = held_place(self._snapshot, task)
        return None if place is None else _Held(task, self._snapshot.tasks.job[task], *place, -1)

    # --- units -------------------------------------------------------------------------------

    def plan(self, jobs: list[int]) -> Plan:
        """Return the plan with what is reclaimed for the waiting units of jobs (rows)."""
        failed: set[object] = set()
        memo = self._snapshot.memo(PENDING)
        for job in jobs:
            promised = int(np.nan_to_num(memo[job])) - self._planned_units(job)
            for unit in self._units(job):
                kind, amount = self._owners.need(unit)
                shape = (self._owners.of_job[job], unit.shape)
                if shape in failed or (kind == GPU_KIND and not self._gpus):
                    continue
                if not self._owners.is_entitled(job, kind, amount):
                    break
                if self._serve(unit, promised=promised > 0):
                    self._owners.add(job, kind, amount)
                    promised -= 1
                else:
                    failed.add(shape)
        return self._result(jobs, memo)

    def _planned_units(self, job: int) -> int:
        started = sum(task in self._started for task in self._snapshot.tasks_of(job))
        return min(started, 1) if self._snapshot.jobs.gang[job] else started

    def _units(self, job: int) -> Iterator[Unit]:
        """Yield the units of a job that the plan leaves waiting."""
        units = chain.from_iterable(all_units(self._snapshot, job))
        return (unit for unit in units if not self._started & set(unit.tasks))

    def _serve(self, unit: Unit, *, promised: bool) -> bool:
        """Start a unit, or free what it needs; return whether it will have room."""

        def exchanged(held: _Held) -> bool:
            return held.planned and (promised or held.job in self._leases)

        def reclaimed(held: _Held) -> bool:
            return not held.planned or exchanged(held)

        room = self._room(self._now, unit, exchanged)
        if room is not None:
            if room.freed or promised:
                self._start(unit, room)
            else:  # it waits by the choice of the policy
                self._take(room, self._now, self._soon)
            return True
        for allowed in (exchanged, reclaimed):
            room = self._room(self._soon, unit, allowed)
            if room is not None:
                self._await(unit, room, promised=promised)
                return True
        return False

    def _start(self, unit: Unit, room: _Room) -> None:
        self._free(unit, room.freed, self._now, self._soon)
        self._take(room, self._now, self._soon)
        self._starts.append(Group(tuple(room.starts)))

    def _await(self, unit: Unit, room: _Room, *, promised: bool) -> None:
        """Free what a unit needs; it starts in a later round."""
        self._free(unit, room.freed, self._soon)
        self._take(room, self._soon)
        self._reserved |= {start.node for start in room.starts}
        if promised or room.freed:
            self._pending[unit.job] = self._pending.get(unit.job, 0) + 1

    def _take(self, room: _Room, *ledgers: Ledger) -> None:
        for task, node, gpus in room.starts:
            demand, job = self._snapshot.tasks.demand[task], self._snapshot.tasks.job[task]
            for ledger in ledgers:
                ledger.take(task, demand, node, gpus)
                self._count(ledger, job, demand)

    def _free(self, unit: Unit, freed: list[_Held], *ledgers: Ledger) -> None:
        snapshot = self._snapshot
        job = snapshot.job(unit.job)
        reason = Reclaimed(job=job.id, queue=job.queue, user=job.user)
        for held in freed:
            for ledger in ledgers:
                ledger.free(held.task, held.demand, held.node, held.gpus)
                self._count(ledger, held.job, held.demand, -1)
            kind = self._owners.kind(held.demand)
            self._owners.add(held.job, kind, -self._owners.amount(held.demand))
            self._by_node[held.node].remove(held)
            if held.planned:
                self._dropped.add(held.group)
                self._refused.setdefault(held.job, reason)
            else:
                lease = held.job, held.node
                self._stopped.setdefault(lease, (reason, []))[1].append(held.task)

    # --- room --------------------------------------------------------------------------------

    def _room(self, ledger: Ledger, unit: Unit, allowed: _Allowed) -> _Room | None:
        """Return where a unit fits with the fewest stops, then the fewest starts that are dropped.

        Task by task, each on the first of the nodes where it needs fewest.
        """
        room = _Room([], [])
        with ledger.trial():
            for task, demand in zip(unit.tasks, unit.demands, strict=True):
                used = {start.node for start in room.starts} if unit.distinct_nodes else set()
                place = self._place(ledger, unit, demand, used, room.freed, allowed)
                if place is None:
                    return None
                node, gpus, freed = place
                for held in freed:
                    ledger.free(held.task, held.demand, held.node, held.gpus)
                ledger.take(task, demand, node, gpus)
                room.starts.append(Start(task, node, gpus))
                room.freed.extend(freed)
        return room if self._under_ceiling(ledger, unit, room.freed) else None

    def _place(
        self,
        ledger: Ledger,
        unit: Unit,
        demand: int,
        used: set[int],
        freed: list[_Held],
        allowed: _Allowed,
    ) -> tuple[int, tuple[int, ...], list[_Held]] | None:
        """Return a node and GPUs for a task, and what has to be freed there."""
        best, least = None, (len(self._snapshot.tasks.state), 0)
        for node in self._nodes:
            closed = ledger is self._now and node in self._reserved
            if node in used or closed or ledger.exceeds_capacity(demand, node):
                continue
            gpus = ledger.best_gpus(demand, node)
            if gpus is not None:
                return node, gpus, []
            chosen = self._fewest(ledger, unit, demand, node, freed, allowed)
            if chosen:
                stops = sum(not held.planned for held in chosen)
                if (stops, len(chosen)) < least:
                    gpus = self._gpus_without(ledger, demand, node, chosen)
                    assert gpus is not None, "it fits without these"
                    best, least = (node, gpus, chosen), (stops, len(chosen))
        return best

    def _fewest(
        self,
        ledger: Ledger,
        unit: Unit,
        demand: int,
        node: int,
        freed: list[_Held],
        allowed: _Allowed,
    ) -> list[_Held]:
        """Return what to free on a node for a task, no part of which is superfluous; or nothing."""
        owners, tasks = self._owners, self._snapshot.tasks
        spare: dict[tuple[int, int], int] = {}
        for held in freed:
            key = owners.of_job[held.job], owners.kind(held.demand)
            spare[key] = spare.get(key, 0) - owners.amount(held.demand)
        options = [
            held
            for held in self._by_node[node]
            if held not in freed and self._may_lose(held, unit) and allowed(held)
        ]
        options.sort(
            key=lambda held: (
                not held.planned,
                -owners.excess(held.job, owners.kind(held.demand)),
                -np.nan_to_num(tasks.launched_at[held.task]),
                -held.task,
            )
        )
        chosen: list[_Held] = []
        for held in options:
            kind, amount = owners.kind(held.demand), owners.amount(held.demand)
            key = owners.of_job[held.job], kind
            if owners.spare(held.job, kind) + spare.get(key, 0) < amount:
                continue
            spare[key] = spare.get(key, 0) - amount
            chosen.append(held)
            if self._gpus_without(ledger, demand, node, chosen) is not None:
                return self._needed(ledger, demand, node, chosen)
        return []

    def _may_lose(self, held: _Held, unit: Unit) -> bool:
        """Return whether something is held by another owner, and of a kind to be reclaimed."""
        owners = self._owners
        if owners.of_job[held.job] == owners.of_job[unit.job] or not owners.amount(held.demand):
            return False
        return self._gpus or owners.kind(held.demand) != GPU_KIND

    def _needed(self, ledger: Ledger, demand: int, node: int, chosen: list[_Held]) -> list[_Held]:
        """Return what is chosen without what need not be freed; a slot that runs is kept first."""
        for held in sorted(chosen[:-1], key=lambda held: held.planned):
            others = [other for other in chosen if other != held]
            if self._gpus_without(ledger, demand, node, others) is not None:
                chosen = others
        return chosen

    def _gpus_without(
        self, ledger: Ledger, demand: int, node: int, freed: list[_Held]
    ) -> tuple[int, ...] | None:
        """Return the GPUs for a demand on a node once others hold nothing; None if too few."""
        with ledger.trial():
            for held in freed:
                ledger.free(held.task, held.demand, held.node, held.gpus)
            return ledger.best_gpus(demand, node)

    def _under_ceiling(self, ledger: Ledger, unit: Unit, freed: list[_Held]) -> bool:
        for held in freed:
            self._count(ledger, held.job, held.demand, -1)
        quotas = self._quotas(ledger)
        under = quotas.at_limit(quotas.row_of(unit.job), unit.amounts(self._snapshot)) is None
        for held in freed:
            self._count(ledger, held.job, held.demand)
        return under

    def _count(self, ledger: Ledger, job: int, demand: int, sign: int = 1) -> None:
        """Count what a run holds for its queue, beside a ledger."""
        quotas, amounts = self._quotas(ledger), amounts_of(self._snapshot.names, demand)
        quotas.add(quotas.row_of(job), amounts, sign)

    def _quotas(self, ledger: Ledger) -> Quotas:
        """Return what queues hold in a ledger, and their limits."""
        return self._quotas_now if ledger is self._now else self._quotas_soon

    # --- the plan ----------------------------------------------------------------------------

    def _result(self, jobs: list[int], memo: Floats) -> Plan:
        plan, before = self._plan, np.nan_to_num(memo)
        changed = {
            job: float(self._pending.get(job, 0))
            for job in jobs
            if before[job] != self._pending.get(job, 0)
        }
        if not (changed or self._dropped or self._starts or self._stopped):
            return plan
        kept = np.ones(plan.steps.groups, bool)
        kept[sorted(self._dropped)] = False
        refused = tuple(Refusal(reason=r, jobs=(job,)) for job, r in self._refused.items())
        return replace(
            plan,
            steps=plan.steps.only(kept) + Steps.of(self._starts),
            resizes=tuple(self._resize(*lease, *why) for lease, why in self._stopped.items()),
            memo={**plan.memo, PENDING: changed} if changed else plan.memo,
            refusals=OnDemand(lambda: (*refused, *plan.refusals)) if refused else plan.refusals,
        )

    def _resize(self, job: int, node: int, reason: Reclaimed, tasks: list[int]) -> Resize:
        snapshot = self._snapshot
        runs = sum(
            snapshot.tasks.state[task] in EXECUTING and snapshot.tasks.node[task] == node
            for task in snapshot.tasks_of(job)
        )
        return Resize(job, node, runs - len(tasks), reason, tuple(tasks))
