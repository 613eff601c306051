"""What borrowers hold, of planned starts and of runs, and what has to end for a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from headgate.base.arrays import Ints
from headgate.planning.rounds.claims import held_place
from headgate.planning.rounds.hidden import HeldPlace
from headgate.planning.units.price import lost_gpu_s, uses_more
from headgate.planning.units.settled import settled_at
from headgate.planning.units.unit import Unit
from headgate.protocol import Plan, Start
from headgate.state import Snapshot
from headgate.state.ledger import Ledger
from headgate.state.moves import unit_of
from headgate.state.quota_rows import QuotaRows
from headgate.state.quotas import Amounts, Quotas, amounts_of


@dataclass(frozen=True, slots=True, eq=False)
class Borrowed:
    """What a run, or a group of planned starts, of a borrower holds."""

    tasks: tuple[int, ...]
    places: tuple[HeldPlace, ...]
    row: int  # of the quotas of its job
    amounts: Amounts
    cost: tuple[float, ...]  # compared with those of others
    group: int = -1  # of planned starts


@dataclass(slots=True)
class RoomMade:
    """Where a unit fits once others hold nothing more, and which queue takes that back."""

    starts: list[Start] = field(default_factory=list)
    freed: list[Borrowed] = field(default_factory=list)
    lenders: list[int] = field(default_factory=list)


class PlaceSearch:
    """A place for a run of a demand that others have to leave."""

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        claims: Sequence[int],
        demand: int,
        closed: Set[int],
    ) -> None:
        self._snapshot, self._ledger, self._claims = snapshot, ledger, claims
        self._demand, self._closed = demand, closed
        self._kinds = {kind for kind, amount in amounts_of(snapshot.names, demand) if amount}

    def free(
        self, quotas: Quotas, options: Sequence[Borrowed], found: RoomMade
    ) -> tuple[int, tuple[int, ...]] | None:
        """Free a place at the least cost; return it, None without one.

        Options are taken in their order on each node, until the run fits on one of them.
        """
        chosen: dict[int, list[Borrowed]] = {}
        after: dict[int, Quotas] = {}
        for option in options:
            if option in found.freed:
                continue
            for node in dict.fromkeys(place.node for place in option.places):
                if node in self._closed or self._ledger.exceeds_capacity(self._demand, node):
                    continue
                if self._lender(after.get(node, quotas), option) is None:
                    continue
                here = chosen.setdefault(node, [])
                here.append(option)
                after.setdefault(node, quotas.copy()).add(option.row, option.amounts, -1)
                gpus = self._without(node, here)
                if gpus is not None:
                    return node, self._take(quotas, node, self._needed(node, here), found)
        return None

    def _lender(self, quotas: Quotas, option: Borrowed) -> int | None:
        amounts = tuple(each for each in option.amounts if each[0] in self._kinds)
        return quotas.lender(option.row, self._claims, amounts)

    def _without(self, node: int, freed: Sequence[Borrowed]) -> tuple[int, ...] | None:
        """Return the GPUs of a node for the demand once others hold nothing; None if too few."""
        with self._ledger.trial():
            self._free_all(freed)
            return self._ledger.best_gpus(self._demand, node)

    def _free_all(self, freed: Sequence[Borrowed]) -> None:
        for holding in freed:
            for task, place in zip(holding.tasks, holding.places, strict=True):
                self._ledger.free(task, *place)

    def _needed(self, node: int, chosen: list[Borrowed]) -> list[Borrowed]:
        """Return what is chosen without what need not be freed, the dearest first."""
        for holding in chosen[::-1]:
            others = [other for other in chosen if other is not holding]
            if self._without(node, others) is not None:
                chosen = others
        return chosen

    def _take(
        self, quotas: Quotas, node: int, chosen: list[Borrowed], found: RoomMade
    ) -> tuple[int, ...]:
        """Free what is chosen; return the GPUs."""
        for holding in chosen:
            lender = self._lender(quotas, holding)
            found.freed.append(holding)
            found.lenders.append(self._claims[0] if lender is None else lender)
            quotas.add(holding.row, holding.amounts, -1)
        self._free_all(chosen)
        gpus = self._ledger.best_gpus(self._demand, node)
        assert gpus is not None, "it fits without these"
        return gpus


def planned_starts(snapshot: Snapshot, rows: QuotaRows, plan: Plan) -> list[Borrowed]:
    """Return the groups of starts of a plan that stop nothing."""
    starts: dict[int, list[Start]] = {}
    for group, start in zip(plan.starts.group.tolist(), plan.starts, strict=True):
        starts.setdefault(group, []).append(Start(*start))
    for group in plan.stops.group.tolist():
        starts.pop(group, None)
    demand = snapshot.tasks.demand
    return [
        _holding(
            snapshot,
            rows,
            [start.task for start in of_group],
            [HeldPlace(demand[task], node, gpus) for task, node, gpus in of_group],
            (0.0, -float(group)),
            group,
        )
        for group, of_group in starts.items()
    ][::-1]


def _holding(
    snapshot: Snapshot,
    rows: QuotaRows,
    tasks: Sequence[int],
    places: Sequence[HeldPlace],
    cost: tuple[float, ...],
    group: int = -1,
) -> Borrowed:
    demands = tuple(place.demand for place in places)
    unit = Unit(job=snapshot.tasks.job[tasks[0]], tasks=(*tasks,), demands=demands)
    row, amounts = rows.of_job(unit.job), unit.amounts(snapshot)
    return Borrowed(unit.tasks, (*places,), row, amounts, cost, group)


def borrowable_runs(snapshot: Snapshot, rows: QuotaRows, runs: Ints) -> Iterator[Borrowed]:
    """Yield what runs (of tasks, rows) hold, gangs as a whole, where all members may be stopped.

    Among equals those that use more than they hold cost least: they take it from others.
    """
    leases, tasks, some = set(snapshot.names.leases), snapshot.tasks, set(runs.tolist())
    settled = dict(zip(runs.tolist(), settled_at(snapshot, runs) <= snapshot.now, strict=True))
    for task in runs.tolist():
        members = [each for each in unit_of(snapshot, task) if tasks.grant[each] >= 0]
        if members[0] != task or not some.issuperset(members):
            continue
        places = [held_place(snapshot, each) for each in members]
        held = [place for place in places if place is not None]
        if len(held) < len(places):
            continue
        modest = float(not any(uses_more(snapshot, each) for each in members))
        if tasks.job[task] in leases:
            cost = 1.0, 0.0, modest, 0.0, -tasks.launched_at[task], -float(task)
        else:
            unsettled = float(not all(settled[each] for each in members))
            price = sum(lost_gpu_s(snapshot, each) for each in members)
            cost = 2.0, unsettled, modest, price, -tasks.launched_at[task], -float(task)
        yield _holding(snapshot, rows, members, held, cost)
