"""Patience: a unit that later jobs overtake for too long hardens, and comes before all else.

Reservations follow estimates: where runs overstay, a reservation moves with them, and what is
backfilled meanwhile overstays as well. So no unit waits by estimates alone. A unit whose owner is
below its share (under orders without shares, each that waits) and that a later job overtakes, on
what would suit it, loses patience, and hardens: its places are fixed, those that runs are
expected to leave first, and nothing else starts there, whatever estimates say. So it starts at the
latest when the runs that are there have ended; or sooner, elsewhere. One unit is hardened at a
time; of those without patience the one that was overtaken for longest is next.

Where estimates are right, reservations suffice, and keep what is announced. So a policy that can
reserves next for a unit that has lost patience; it hardens when that start has passed, and not
on what is reserved for others' announced starts. Each delays it by `patience_s` at most.

GPUs that are kept for a unit are idle until the last of them is free. As with a purchase that ends
a rent, a unit waits about as long as that costs: it has patience for the time that its GPUs are
expected to be idle, in the mean, and for its own run time, with high probability both; for
`SHORTEST_S` at least, and for the policy's `patience_s` at most. Where it is unknown when runs end,
that is all it has.

The policy decides as before, but sees what is free of the places that are kept as GPUs that
other programs use, and what the unit needs of nodes beside as held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.planning.place.choose import Placer
from headgate.planning.place.limits import places_kept
from headgate.planning.place.placement import fit
from headgate.planning.rounds.hidden import without_kept
from headgate.planning.rounds.kept_places import SURE, KeptPlaces, delayed, units_of
from headgate.planning.shares.announced import IMPATIENT_SINCE
from headgate.planning.shares.owners import Owners
from headgate.planning.times.reservations import LATE_S, RESERVED_AT, SUPERSEDED, UNKNOWN_AT
from headgate.planning.units.unit import Unit, is_multi_gpu
from headgate.ports import Policy, capabilities
from headgate.ports.capabilities import Capabilities
from headgate.protocol import NO_STEPS, Hardened, KeptPlace, Memo, OnDemand, Plan, Refusal
from headgate.protocol.reserved_at import Cause
from headgate.state import Scratch, Snapshot

OVERTAKEN_SINCE = "overtaken_since"
"""Column of the memo by job: since when later jobs overtake its unit, -1 once it has started."""

RELIED_ON = "relied_on"
"""Column of the memo by job: until when its unit relies on reservations, -1 for not at all.

The earliest start that they have promised to it, or that of others which is in its way.
"""

SHORTEST_S = 60.0
_TRIED = 8  # units for which places are looked for in a round, those overtaken for longest


def with_patience(policy: Policy, snapshot: Snapshot, rng: Random) -> Plan:
    """Return the plan of a policy that leaves hardened units what they need.

    If the first of them fits now, the plan starts it alone, and the policy decides next.
    O(waiting jobs) beside the policy's round, and O(GPUs x log) while a unit is hardened.
    """
    able = capabilities(policy)
    if math.isinf(able.patience_s):
        return policy.decide(snapshot, rng)
    if snapshot.hardened is not None and snapshot.hardened.policy not in ("", policy.name):
        snapshot = replace(snapshot, hardened=None)
    seen = snapshot
    if snapshot.hardened is not None:
        start = _start(snapshot, snapshot.hardened, able.placer)
        if start is not None:
            return start
        seen = without_kept(snapshot, snapshot.hardened)
    plan = policy.decide(seen, rng)
    return _Patience(snapshot, plan, able).plan(policy.name)


# --- the places ---------------------------------------------------------------------------------


def _start(snapshot: Snapshot, hardened: Hardened, placer: Placer | None) -> Plan | None:
    """Return the plan that starts a hardened unit, on its places or elsewhere, if it fits now."""
    job = snapshot.names.job_rows[hardened.job]
    first, scratch = snapshot.tasks_of(job)[hardened.places[0].ordinal], Scratch(snapshot)
    unit = next((unit for unit in units_of(snapshot, job) if first in unit.tasks), None)
    if unit is None or not scratch.may_hold(job, unit.amounts(snapshot)):
        return None
    if not _on_places(scratch, unit, hardened) and (
        not fit(scratch, placer).place(unit) or _delays_others(scratch, unit, placer)
    ):
        return None
    return Plan(
        steps=scratch.steps(),
        memo={each: {job: -1.0} for each in (OVERTAKEN_SINCE, RELIED_ON, IMPATIENT_SINCE)},
        node_memo=scratch.node_memos(),
        again_at=snapshot.now,
        refusals=snapshot.refusals,
    )


def _delays_others(scratch: Scratch, unit: Unit, placer: Placer | None) -> bool:
    """Return whether announced starts would be later if a unit started elsewhere, as placed."""
    snapshot = scratch.snapshot
    freed = replace(snapshot, hardened=None)  # what is kept for it
    waiting = np.flatnonzero(snapshot.jobs.waiting.array() > 0)
    others = waiting[waiting != unit.job]
    before = KeptPlaces(snapshot, NO_STEPS.starts, placer).announced(others)
    if not before:
        return False
    first, places = snapshot.nodes.first_gpu, KeptPlaces(freed, NO_STEPS.starts, placer)
    gpus = [first[node] + gpu for _, node, indices in scratch.starts for gpu in indices]
    ends_at = snapshot.now + places.estimates.together_s(unit.tasks)
    after = places.announced(others, np.array(gpus, np.int64), ends_at)
    return bool(delayed(before, after))


def _on_places(scratch: Scratch, unit: Unit, hardened: Hardened) -> bool:
    """Place the tasks of a unit where they are kept places, the others where they fit."""
    snapshot = scratch.snapshot
    places = {
        snapshot.tasks_of(unit.job)[ordinal]: (snapshot.names.node_rows[node], gpus)
        for ordinal, node, gpus in hardened.places
    }
    with scratch.trial() as trial:
        taken = {node for node, _ in places.values()} if unit.distinct_nodes else set()
        for task in sorted(unit.tasks, key=lambda task: task not in places):
            if task in places:
                placed = scratch.place(task, *places[task])
            else:
                room = scratch.ledger.nodes_with_room(snapshot.tasks.demand[task])
                nodes = [node for node in np.flatnonzero(room).tolist() if node not in taken]
                on = next((node for node in nodes if scratch.place(task, node)), None)
                placed = on is not None
                if unit.distinct_nodes and on is not None:
                    taken.add(on)
            if not placed:
                return False
        trial.keep()
    return True


# --- who hardens --------------------------------------------------------------------------------


class _Patience:
    """What a plan of a policy means for those that it leaves waiting."""

    def __init__(self, snapshot: Snapshot, plan: Plan, able: Capabilities) -> None:
        self._snapshot, self._plan, self._able = snapshot, plan, able
        self._places = KeptPlaces(snapshot, plan.starts, able.placer)
        self._superseded: dict[int, float] = {}
        self._started = plan.starts.task
        self._before = _known(snapshot.memo(OVERTAKEN_SINCE))
        self._since = self._before.copy()
        self._relied_before = _known(snapshot.memo(RELIED_ON))
        self._relied = self._relied_before.copy()
        self._impatient_before = _known(snapshot.memo(IMPATIENT_SINCE))
        self._impatient = self._impatient_before.copy()
        self._reserved = {each.job: each.at for each in plan.reservations}
        known, new = snapshot.memo(RESERVED_AT), plan.memo.get(RESERVED_AT, {})
        for job, at in self._reserved.items():  # others are only what is expected
            is_announced = job in new or not math.isnan(known[job])
            if is_announced and at < UNKNOWN_AT and not 0 <= self._relied[job] <= at:
                self._relied[job] = min(at, snapshot.now + able.patience_s)

    def plan(self, policy: str) -> Plan:
        """Return the plan with the unit whose places are kept, and when the next one may harden."""
        waiting = self._waiting = self._left_waiting()
        others = np.ones(len(self._since), bool)
        others[waiting] = False
        self._since[others] = self._relied[others] = self._impatient[others] = -1.0
        self._overtake(waiting)
        first, next_at, memo = self._kept(waiting), None, self._plan.memo
        if first is None and not self._plan.stops:  # what runs leave is for whom they are stopped
            first, next_at = self._harden(waiting, policy)
            if first is not None:  # what the plan announces does not count with its places
                memo = {name: rows for name, rows in memo.items() if name != RESERVED_AT}
        again_at = min(
            (at for at in (self._plan.again_at, next_at) if at is not None), default=None
        )
        if self._superseded:
            memo = {**memo, SUPERSEDED: {**memo.get(SUPERSEDED, {}), **self._superseded}}
        memo = {
            **memo,
            **_changes(OVERTAKEN_SINCE, self._before, self._since),
            **_changes(RELIED_ON, self._relied_before, self._relied),
            **_changes(IMPATIENT_SINCE, self._impatient_before, self._impatient),
        }
        plan = replace(self._plan, memo=memo, again_at=again_at, hardened=first)
        if first is None:
            return plan
        return replace(plan, refusals=OnDemand(lambda: self._refusals(first)))

    def _left_waiting(self) -> Ints:
        """Return the jobs that wait for GPUs, else for CPUs, and of which no such task starts."""
        columns, tasks = self._snapshot.jobs, self._snapshot.tasks
        on_gpus = columns.waiting.array() > 0
        waits = on_gpus | (columns.waiting_cpu.array() > 0)
        job = tasks.job.take(self._started).astype(np.int64)
        counts = (tasks.gpus.take(self._started) > 0) | ~on_gpus[job]
        waits[job[counts]] = False
        return np.flatnonzero(waits)

    def _refusals(self, first: Hardened) -> Iterator[Refusal]:
        """Yield why the others wait as the policy says, and for what the hardened unit does."""
        job = self._snapshot.names.job_rows[first.job]
        yield Refusal(reason=places_kept(self._snapshot, first), jobs=(job,))
        for refusal in self._plan.refusals:
            jobs = tuple(row for row in refusal.jobs if row != job)
            if jobs or not refusal.jobs:
                yield replace(refusal, jobs=jobs)

    def _overtake(self, waiting: Ints) -> None:
        """Note which jobs a later one overtakes, that takes what suits their first waiting task.

        A GPU that suits it, or without a GPU, CPUs, memory or custom kinds if it needs any.
        """
        snapshot, starts = self._snapshot, self._plan.starts
        if not len(starts):
            return
        by = snapshot.tasks.job.take(starts.task).astype(np.int64)
        some = waiting[(waiting < by.max()) & (self._since[waiting] < 0)]
        if not len(some):
            return
        first = snapshot.nodes.first_gpu
        gpu = np.array([first[node] + gpus[0] if gpus else -1 for _, node, gpus in starts])
        demand = snapshot.tasks.demand.take(self._leads(some)).astype(np.int64)
        ledger = Scratch(snapshot).ledger
        for each in np.unique(demand).tolist():
            takes_it = (gpu < 0) & bool(snapshot.names.needs[each])
            takes_it[gpu >= 0] = ledger.suits(each)[gpu[gpu >= 0]]
            latest = by[takes_it].max(initial=-1)
            self._since[some[(demand == each) & (some < latest)]] = snapshot.now

    def _leads(self, jobs: Ints) -> Ints:
        """Return the first waiting task of each job (rows), on GPUs if one is."""
        snapshot = self._snapshot
        lead = snapshot.jobs.first_task.take(jobs).astype(np.int64)
        whole = (snapshot.jobs.gang.take(jobs) > 0) | (snapshot.jobs.task_count.take(jobs) == 1)
        on_gpus = snapshot.jobs.waiting.take(jobs) > 0
        several = ~whole | (on_gpus & (snapshot.tasks.gpus.take(lead) == 0))
        for n in np.flatnonzero(several).tolist():
            tasks = snapshot.waiting_of(int(jobs[n])).astype(np.int64)
            lead[n] = tasks[(snapshot.tasks.gpus.take(tasks) > 0).argmax()]
        return lead

    def _kept(self, waiting: Ints) -> Hardened | None:
        """Return the unit that is hardened already, if it waits yet."""
        known = self._snapshot.hardened
        if known is None or self._snapshot.names.job_rows[known.job] not in waiting:
            return None
        return known

    def _harden(self, waiting: Ints, policy: str) -> tuple[Hardened | None, float | None]:
        """Return the unit that hardens now, else None and when the next one may."""
        snapshot, now = self._snapshot, self._snapshot.now
        jobs = waiting[self._since[waiting] >= 0]
        jobs = jobs[np.argsort(self._since[jobs], kind="stable")]
        if not len(jobs):
            return None, None
        hardens_at = np.maximum(
            self._since[jobs] + self._least_patience_s(jobs), self._announced_until(jobs)
        )
        impatient = jobs[hardens_at <= now].tolist()
        next_at = hardens_at[hardens_at > now].min(initial=math.inf)
        owners = Owners(snapshot, self._started) if impatient and self._able.by_share else None
        for job in impatient[:_TRIED]:
            unit = self._unit(job)
            if unit is None:
                continue
            below_share = owners is None or owners.is_below(unit)
            if not below_share or not Scratch(snapshot).may_hold(job, unit.amounts(snapshot)):
                self._since[job], self._impatient[job] = now, -1.0
                continue
            idle_s = self._places.find(unit, {}).idle_s
            hardens_at = self._since[job] + min(self._able.patience_s, idle_s)
            if hardens_at <= now:
                if self._asks(job, unit):
                    return None, now
                places = self._places_for(job, unit)
                if places:
                    job_id = snapshot.job(job).id
                    return Hardened(job=job_id, since=now, places=places, policy=policy), now
                hardens_at = self._relied[job]
            next_at = min(next_at, hardens_at) if hardens_at > now else next_at
        return None, float(next_at) if next_at < math.inf else None

    def _asks(self, job: int, unit: Unit) -> bool:
        """Return whether the policy reserves for the unit of a job (row) next, before it hardens.

        The unit relies on that for the policy's patience at most.
        """
        if self._impatient[job] < 0:
            self._impatient[job] = self._snapshot.now
            able = self._able.reserves_for_impatient and _is_multi_gpu(self._snapshot, unit)
            if able and self._relied[job] < 0:
                self._relied[job] = self._snapshot.now + self._able.patience_s
                return True
        return False

    def _places_for(self, job: int, unit: Unit) -> tuple[KeptPlace, ...]:
        """Return the places that are kept for a unit from now on, none if it waits yet.

        It waits, for the policy's patience once more at most, for others whose announced starts are
        on these GPUs. After that, those that it delays are superseded.
        """
        others = self._waiting[self._waiting != job]
        announced = self._places.announced(others)
        found = self._places.find(unit, announced)
        in_the_way = [
            each.announced_at
            for each in announced.values()
            if len(np.intersect1d(each.reservation.gpus, found.gpus))
        ]
        if not in_the_way or not found.places:
            return found.places
        own_at = self._snapshot.memo(RESERVED_AT)[job]
        until = float(np.fmax(self._impatient[job], own_at)) + self._able.patience_s
        if self._snapshot.now < until:
            self._relied[job] = min(until, max(in_the_way) + LATE_S)
            return ()
        ends_at = self._snapshot.now + found.left_s + self._places.estimates.together_s(unit.tasks)
        for other in delayed(announced, self._places.announced(others, found.gpus, ends_at)):
            self._superseded[other] = float(Cause.HARDENED)
        return found.places

    def _announced_until(self, jobs: Ints) -> Floats:
        """Return until when jobs (rows) rely on reservations, -inf for those that do not.

        A unit does until the earliest start has passed that was ever expected of it, for the
        policy's patience at most. Under an order without shares, those do without limit that come
        after units with reservations: their turn comes.
        """
        at = self._relied[jobs]
        until = np.where(at < 0, -math.inf, at)
        if self._reserved and not self._able.by_share:
            until[(at < 0) & ~np.isin(jobs, [*self._reserved])] = math.inf
        return until

    def _least_patience_s(self, jobs: Ints) -> Floats:
        """Return how long each job is overtaken at least before its unit hardens, in seconds."""
        # As declared, where it is: learnt times may follow the errors of others.
        run_s: Floats = self._snapshot.jobs.estimated_s.take(jobs)
        learnt = np.flatnonzero(np.isnan(run_s))
        if len(learnt):
            run_s[learnt] = self._places.estimates.run_s(self._leads(jobs[learnt]), SURE)
        return np.minimum(np.fmax(run_s, SHORTEST_S), self._able.patience_s)

    def _unit(self, job: int) -> Unit | None:
        """Return the first unit of a job that waits and does not start."""
        return next(units_of(self._snapshot, job), None)


def _is_multi_gpu(snapshot: Snapshot, unit: Unit) -> bool:
    """Return whether policies of the flow reserve for a unit."""
    if not unit.on_gpus(snapshot):
        return False
    return len(unit.tasks) > 1 or is_multi_gpu(snapshot.names.demands[unit.demands[0]])


def _known(column: Floats) -> Floats:
    """Return a column of the memo, -1 where it has no value."""
    return np.where(np.isnan(column), -1.0, column)


def _changes(name: str, before: Floats, after: Floats) -> Memo:
    """Return the changed rows of a column of the memo, nothing without any."""
    changed = np.flatnonzero(after != before)
    if not len(changed):
        return {}
    return {name: dict(zip(changed.tolist(), after[changed].tolist(), strict=True))}
