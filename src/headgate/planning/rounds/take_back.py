"""What queues are guaranteed comes back to them, from those that borrow it.

A unit *claims* what it needs if its queue, or one above that, is within its guarantee with it.
Units with claims come before all others under policies whose shares know no guarantees; the others
start them by their own rules, but none waits by the choice of a policy, except to read its inputs
nearer to them. Where one does not fit, what it needs is taken back: of starts that
the policy plans for borrowers, which are then not made, else of runs of borrowers. These are queues
that hold more than they are guaranteed, up to a sibling of the queue that claims; each keeps what
it is guaranteed itself. What costs least goes first: slots of leases, then the runs that lose the
least work since their last checkpoints; those that were stopped lately come last.

What runs are stopped for is kept for the unit until it starts: the policy does not see it. After
that the queue lends nothing for `state.quotas.HELD_BACK_S`, so that demand which comes and goes
does not stop the same runs again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Floats
from headgate.base.errors import InvariantBroken
from headgate.planning.place.limits import not_lent
from headgate.planning.rounds.borrowed import (
    Borrowed,
    PlaceSearch,
    RoomMade,
    borrowable_runs,
    planned_starts,
)
from headgate.planning.rounds.claims import (
    TAKEN_BACK_FOR,
    Books,
    ClaimRules,
    FirstClaims,
    UnitOfQueue,
    claiming,
    has_room,
    is_claim,
    open_place,
    reads_inputs,
)
from headgate.planning.rounds.hidden import hide, without_kept
from headgate.planning.units.settled import holds_kept, least_end_at
from headgate.planning.units.unit import Unit
from headgate.ports import Policy, capabilities
from headgate.protocol import Group, OnDemand, Plan, Refusal, Start, Steps, Stop
from headgate.protocol.queue_reasons import ComesBack, TakenBack
from headgate.state import Snapshot
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING
from headgate.state.moves import unit_of
from headgate.state.queues import any_guaranteed
from headgate.state.quotas import GPUS, Quotas, held_back_until


def with_guarantees(policy: Policy, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
    """Return the plan of `decide`, with what queues take back of those that borrow of them.

    A plan of its own starts units first that come before all others. O(queues) if none is
    guaranteed anything, or nothing waits.
    """
    if not snapshot.waiting_tasks or not any_guaranteed(snapshot):
        return decide(snapshot)
    able = capabilities(policy)
    rules = ClaimRules(
        every=not able.has_guarantees,
        in_order=math.isinf(able.patience_s)
        and not (able.has_guarantees or able.preempts_by_order),
    )
    if snapshot.hardened is not None and is_claim(snapshot, snapshot.hardened):
        snapshot = replace(snapshot, hardened=None)
    before = FirstClaims(snapshot, able.placer, rules)
    if before.scratch.starts:
        return before.plan()
    plan = decide(hide(snapshot, before.kept))
    with suppress(InvariantBroken):  # a faulty plan, which admission rejects
        plan = _taken_back(snapshot, plan, rules)
    again_at = held_back_until(snapshot)
    if again_at is None or (plan.again_at is not None and plan.again_at <= again_at):
        return plan
    return replace(plan, again_at=again_at)


def _taken_back(snapshot: Snapshot, plan: Plan, rules: ClaimRules) -> Plan:
    """Return a plan with what is taken back.

    If need be of places that are kept for a unit of another queue, which waits for new ones then.
    """
    if plan.hardened is not None and is_claim(snapshot, plan.hardened):
        plan = replace(plan, hardened=None)  # it needs no patience
    if plan.hardened is None:
        return _TakeBack(replace(snapshot, hardened=None), plan, rules).plan()
    seen = replace(without_kept(snapshot, plan.hardened), hardened=plan.hardened)
    taken = _TakeBack(seen, plan, rules)
    found = taken.plan()
    queue = snapshot.jobs.queue[snapshot.names.job_rows[plan.hardened.job]]
    if all(snapshot.jobs.queue[unit.job] == queue for unit in taken.failed):
        return found
    given_up = replace(plan, hardened=None)
    other = _TakeBack(replace(snapshot, hardened=None), given_up, rules)
    without = other.plan()
    return without if len(other.failed) < len(taken.failed) else found


class _TakeBack:
    """One round, after a plan of the policy."""

    def __init__(self, snapshot: Snapshot, plan: Plan, rules: ClaimRules) -> None:
        self._snapshot, self._rules = snapshot, rules
        self._before, self._plan = plan.steps, _without_moves(plan)
        self.failed: list[Unit] = []
        """Units with claims that nothing makes room for."""
        stops = self._plan.stops.task.tolist()
        stops += [task for resize in self._plan.resizes for task in resize.first]
        self._stops = {task for stop in stops for task in unit_of(snapshot, stop)}
        self._now = Books(Ledger.tentative(snapshot), Quotas(snapshot))
        self._soon = Books.of(snapshot, sorted(self._stops))
        starts = [Start(*start) for start in self._plan.starts]
        for books in (self._now, self._soon):
            books.take(snapshot, starts)
        self._rows = self._now.quotas.rows
        self._planned = planned_starts(snapshot, self._rows, self._plan)
        self._runs: list[Borrowed] | None = None
        self._awaited: set[int] = set()  # nodes where units have what is free
        self._dropped: dict[int, int] = {}  # groups, and the queues that take back
        self._again = False  # whether units start in the next round, before others
        self._stopped: list[Group] = []
        self._pending: dict[int, int] = {}  # by job
        self._least_end_at = np.inf

    def plan(self) -> Plan:
        """Return the plan with what is taken back."""
        snapshot, done = self._snapshot, set(self._plan.starts.task.tolist())
        memo = np.nan_to_num(snapshot.memo(TAKEN_BACK_FOR))
        failed: set[UnitOfQueue] = set()
        claims = claiming(snapshot, self._soon.quotas, done, failed, in_order=self._rules.in_order)
        for unit in claims:
            done.update(unit.tasks)
            shape = unit.shape, self._rows.of_job(unit.job)
            promised = memo[unit.job] > self._pending.get(unit.job, 0)
            if not self._serve(unit, promised=promised):
                failed.add(shape)
                self.failed.append(unit)
        return self._result(memo)

    def _serve(self, unit: Unit, *, promised: bool) -> bool:
        """Take back what a unit needs, if need be; return whether it will have room.

        It starts in a later round, before those of others.
        """
        snapshot = self._snapshot
        for options in ([], self._planned):
            found = self._find(self._now, unit, options, closed=self._awaited)
            if found is not None:
                self._free(found, unit, self._now, self._soon)
                for books in (self._now, self._soon):
                    books.take(snapshot, found.starts)
                if found.freed or promised or not reads_inputs(snapshot, unit):
                    self._again |= not promised
                    self._pending[unit.job] = self._pending.get(unit.job, 0) + 1
                return True  # else it waits by the choice of the policy
        for more in (False, True):
            options = self._planned + (self._borrowed() if more else [])
            found = self._find(self._soon, unit, options)
            if found is not None:
                self._free(found, unit, self._soon)
                self._soon.take(snapshot, found.starts)
                self._awaited |= {start.node for start in found.starts}
                if promised or found.freed:
                    self._pending[unit.job] = self._pending.get(unit.job, 0) + 1
                return True
        return False

    def _free(self, found: RoomMade, unit: Unit, *all_books: Books) -> None:
        """Drop planned starts, and stop runs, for a unit."""
        snapshot = self._snapshot
        for holding, lender in zip(found.freed, found.lenders, strict=True):
            for books in all_books:
                for task, place in zip(holding.tasks, holding.places, strict=True):
                    books.ledger.free(task, *place)
                books.quotas.add(holding.row, holding.amounts, -1)
            if holding.group >= 0:
                self._planned.remove(holding)
                self._dropped[holding.group] = lender
                continue
            assert self._runs is not None, "it is one of them"
            self._runs.remove(holding)
            reason = TakenBack(job=snapshot.job(unit.job).id, queue=snapshot.queue(lender).name)
            self._stopped.append(Group(tuple(map(Stop, holding.tasks)), reason))

    # --- room ----------------------------------------------------------------------------------

    def _find(
        self,
        books: Books,
        unit: Unit,
        options: Sequence[Borrowed],
        closed: Set[int] = frozenset(),
    ) -> RoomMade | None:
        """Return where a unit fits once some of the options, which cost least, hold nothing."""
        snapshot, found, quotas = self._snapshot, RoomMade(), books.quotas.copy()
        unit = unit.largest_first(snapshot)
        claims = quotas.claims(quotas.row_of(unit.job), unit.amounts(snapshot))
        with books.ledger.trial():
            for task, demand in zip(unit.tasks, unit.demands, strict=True):
                used = {start.node for start in found.starts} if unit.distinct_nodes else set()
                place = open_place(snapshot, books.ledger, demand, used | closed)
                if place is None:
                    search = PlaceSearch(snapshot, books.ledger, claims, demand, used | closed)
                    place = search.free(quotas, options, found)
                if place is None:
                    return None
                books.ledger.take(task, demand, *place)
                found.starts.append(Start(task, *place))
        return found if has_room(snapshot, quotas, unit) else None

    def _borrowed(self) -> list[Borrowed]:
        """Return the runs that may be stopped, those that cost least first."""
        if self._runs is None:
            snapshot = self._snapshot
            rows = np.flatnonzero(np.isin(snapshot.tasks.state.array(), EXECUTING))
            rows = rows[~np.isin(rows, [*self._stops])]
            rows = rows[snapshot.tasks.target.take(rows) < 0]
            ends_at = least_end_at(snapshot, rows)
            self._least_end_at = float(ends_at[ends_at > snapshot.now].min(initial=np.inf))
            rows = rows[(ends_at <= snapshot.now) & ~holds_kept(snapshot, rows)]
            runs = borrowable_runs(snapshot, self._rows, rows)
            self._runs = sorted(runs, key=lambda holding: holding.cost)
        return self._runs

    # --- the plan --------------------------------------------------------------------------------

    def _result(self, memo: Floats) -> Plan:
        plan, jobs = self._plan, {*np.flatnonzero(memo).tolist(), *self._pending}
        changed = {
            job: float(self._pending.get(job, 0))
            for job in sorted(jobs)
            if memo[job] != self._pending.get(job, 0)
        }
        at = self._snapshot.now if self._again else self._least_end_at
        if at < (np.inf if plan.again_at is None else plan.again_at):
            plan = replace(plan, again_at=at)
        if not (changed or self._dropped or self._stopped or self._pending):
            return replace(plan, steps=self._before)
        kept = np.ones(plan.steps.groups, bool)
        kept[sorted(self._dropped)] = False
        return replace(
            plan,
            steps=plan.steps.only(kept) + Steps.of(self._stopped),
            memo={**plan.memo, TAKEN_BACK_FOR: changed} if changed else plan.memo,
            refusals=OnDemand(self._refusals),
        )

    def _refusals(self) -> Iterator[Refusal]:
        """Yield why units wait for what comes back, and others for what is not lent any more."""
        snapshot, named = self._snapshot, set[int]()
        for job in sorted(self._pending):
            named.add(job)
            queue = snapshot.queue(snapshot.jobs.queue[job]).name
            yield Refusal(reason=ComesBack(queue=queue), jobs=(job,))
        starts = self._plan.starts
        for group, lender in sorted(self._dropped.items()):
            tasks = starts.task[starts.group == group]
            for job in np.unique(snapshot.tasks.job.take(tasks)).tolist():
                if job not in named:
                    named.add(job)
                    yield Refusal(reason=not_lent(snapshot, lender, GPUS), jobs=(job,))
        for refusal in self._plan.refusals:
            jobs = tuple(row for row in refusal.jobs if row not in named)
            if jobs or not refusal.jobs:
                yield replace(refusal, jobs=jobs)


def _without_moves(plan: Plan) -> Plan:
    """Return a plan without the groups that move runs."""
    if not len(plan.moves):
        return plan
    kept = np.ones(plan.steps.groups, bool)
    kept[plan.moves.group] = False
    return replace(plan, steps=plan.steps.only(kept))
