"""A plan that was made as if some runs were not there: which of its starts wait for their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headgate.base.errors import InvariantBroken
from headgate.planning.rounds.claims import TAKEN_BACK_FOR, Books
from headgate.planning.rounds.hidden import without_kept
from headgate.planning.rounds.reclaim import PENDING
from headgate.protocol import Group, Memo, Move, OnDemand, Plan, Refusal, Start, Steps
from headgate.protocol.order_reasons import GivesWay, SurplusEnds
from headgate.state import Snapshot
from headgate.state.elastic import is_surplus
from headgate.state.ledger import Ledger
from headgate.state.moves import stays
from headgate.state.quotas import Quotas, amounts_of

GIVES_WAY = GivesWay()


def books_of(snapshot: Snapshot) -> Books:
    """Return what is free now."""
    return Books(Ledger.tentative(snapshot), Quotas(snapshot))


def take(books: Books, snapshot: Snapshot, start: Start) -> bool:
    """Take a place for a task if it is free and its queue may hold it."""
    task, quotas = start.task, books.quotas
    row = quotas.row_of(snapshot.tasks.job[task])
    amounts = amounts_of(snapshot.names, snapshot.tasks.demand[task])
    if quotas.at_limit(row, amounts) is not None:
        return False
    if is_surplus(snapshot, task) and quotas.beyond_elastic(row, amounts):
        return False
    try:
        books.take(snapshot, (start,))
    except InvariantBroken:
        return False
    return True


class PlanBeside:
    """The plan of a policy that saw `logical`, a snapshot without some runs.

    `now` is what is free beside it while these run, `left` what is free beside it without them, and
    `delayed` the groups, by number, that wait for the ends of some. Raises InvariantBroken for a
    plan that is infeasible.
    """

    def __init__(self, snapshot: Snapshot, logical: Snapshot, plan: Plan) -> None:
        """Take what the plan holds, in the order of its groups."""
        self.snapshot, self.plan = snapshot, plan
        self.now = books_of(snapshot)
        self.left = books_of(
            logical if plan.hardened is None else without_kept(logical, plan.hardened)
        )
        self.delayed: set[int] = set()
        for number, group in enumerate(plan.steps):
            self._take_group(number, group)

    def _take_group(self, number: int, group: Group) -> None:
        """Take what a planned group needs; note it as delayed if hidden runs have to end first."""
        places = [*self._places(group)]
        moved = {step.task for step in group.steps if isinstance(step, Move)}
        for place in places:
            if place.task in moved:  # its queue holds this already
                demand = self.snapshot.tasks.demand[place.task]
                self.left.ledger.take(place.task, demand, place.node, place.gpus)
            else:
                self.left.take(self.snapshot, (place,))
        taken: list[Start] = []
        for place in places:
            if not take(self.now, self.snapshot, place):
                self.delayed.add(number)
                break
            taken.append(place)
        for place in taken if number in self.delayed else ():
            self.now.free(self.snapshot, place)

    def _places(self, group: Group) -> Iterator[Start]:
        for step in group.steps:
            if isinstance(step, Start):
                yield step
            elif isinstance(step, Move) and not stays(self.snapshot, *step):
                yield Start(*step)

    def with_steps(self, steps: list[Group]) -> Plan:
        """Return the plan without what is delayed, and with more steps."""
        plan = self.plan
        if not steps and not self.delayed:
            return plan
        kept = np.ones(plan.steps.groups, bool)
        kept[sorted(self.delayed)] = False
        return replace(
            plan,
            steps=plan.steps.only(kept) + Steps.of(steps),
            memo=self._memo(),
            refusals=OnDemand(self._refusals) if self.delayed else plan.refusals,
        )

    def _memo(self) -> Memo:
        """Return the memo of the plan, in which delayed starts have not been made yet."""
        memo, jobs = dict(self.plan.memo), self._late_jobs()
        for column in (TAKEN_BACK_FOR, PENDING):
            if column in memo:
                memo[column] = {row: v for row, v in memo[column].items() if row not in jobs}
        return memo

    def _late_jobs(self) -> tuple[int, ...]:
        """Return the jobs (rows) of which starts are delayed, ascending."""
        starts = self.plan.starts
        late = starts.task[np.isin(starts.group, sorted(self.delayed))]
        return tuple(np.unique(self.snapshot.tasks.job.take(late)).tolist())

    def _refusals(self) -> Iterator[Refusal]:
        yield Refusal(reason=SurplusEnds(), jobs=self._late_jobs())
        yield from self.plan.refusals
