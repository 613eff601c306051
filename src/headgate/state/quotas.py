"""Quotas: what the queues of a tree hold, and what their limits let them hold beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.column import Array
from headgate.model import UNLIMITED, WHOLE, Queue
from headgate.model.queue import GPUS_KIND, QueueAmounts
from headgate.state.ledger import runs_in
from headgate.state.queues import REMOVED
from headgate.state.quota_rows import QuotaRows, quota_rows
from headgate.state.tables import FOR_RUN
from headgate.state.view import Names, View

GPUS = -1
"""The kind of GPUs, in thousandths, beside the kinds of `Names.resources`."""

HELD_BACK_S = 60.0
"""For how long a queue lends nothing after it has taken something back.

Else demand that comes and goes would stop the same runs again and again.
"""

Amounts = tuple[tuple[int, int], ...]
"""Amounts by kind of resource."""

UNLIMITED_MILLI = WHOLE << 40
"""Thousandths of GPUs of a queue without a limit: above any number of GPUs."""


class AtLimit(NamedTuple):
    """A queue, or a user's row in one, that may hold no more of a kind; None: it starts nothing.

    Or, with `keeps`, a queue that does not lend what it is guaranteed.
    """

    row: int
    kind: int | None
    keeps: bool = False


def amounts_of(names: Names, demand: int) -> Amounts:
    """Return what a run of a demand (row) takes of the quotas of its queue."""
    milli = names.demands[demand].gpus_milli
    return ((GPUS, milli), *names.needs[demand]) if milli else names.needs[demand]


def gpus_alone(milli: int) -> Amounts:
    """Return thousandths of GPUs as amounts."""
    return ((GPUS, milli),)


class Quotas:
    """What queues hold together with those below them, and their limits; tentative.

    Also what each user holds in those that limit that. It starts as a view says; `add` counts what
    is placed or stopped beside. Queues are rows, and so are their users where that counts: what a
    job holds is that of its row (`row_of`), and of all rows above that.
    """

    __slots__ = (
        "_above",
        "_kept",
        "_limits",
        "_order",
        "_stopped",
        "_total",
        "_view",
        "guaranteed",
        "held",
        "parent",
        "rows",
    )

    def __init__(self, view: View, also: Iterable[int] = ()) -> None:
        """Read the tree of a view, and what is held of the kinds `also`, limited or not.

        O(queues), and O(grants) where others than GPUs are limited.
        """
        self._view, self.rows = view, quota_rows(view)
        specs = self.rows.specs
        self.parent, self._above = self.rows.parent, self.rows.above
        self._order = sorted(range(len(self._above)), key=lambda row: len(self._above[row]))
        self._stopped = {row for row, spec in enumerate(specs) if spec.state == "stopped"}
        self._limits: dict[int, dict[int, int]] = {}  # kind -> queue -> most
        for row, spec in enumerate(specs):
            gpus = spec.most_gpus()
            if gpus is not None:
                self._limits.setdefault(GPUS, {})[row] = WHOLE * gpus
            self._limit(row, spec.most_of_others())
        for row, (queue, _) in enumerate(self.rows.users, len(specs)):
            self._limit(row, specs[queue].per_user)
        self.guaranteed = self._guarantees(specs)
        """What each queue is guaranteed, by kind of which one is guaranteed any, and by row."""
        self._kept: dict[int, dict[int, int]] = {}  # kind -> queue that does not lend -> guaranteed
        for row in range(len(specs)) if self.guaranteed else ():
            if not lends(view, row):
                self._keep(row)
        kinds = {GPUS: 0, **self._limits, **self.guaranteed, **dict.fromkeys(also, 0)}
        self._total = {kind: self._capacity(kind) for kind in self._kept}
        self.held = {kind: self._held(kind) for kind in kinds}
        """What each queue holds with those below it, by kind, and by row."""

    def _limit(self, row: int, amounts: QueueAmounts) -> None:
        """Note how much a row may hold."""
        for name, most in amounts:
            kind = self._kind(name)
            if kind is not None:
                self._limits.setdefault(kind, {})[row] = most

    def _kind(self, name: str) -> int | None:
        """Return the number of a kind; None if no node has any, and no task needs it."""
        resources = self._view.names.resources
        if name == GPUS_KIND:
            return GPUS
        return resources.index(name) if name in resources else None

    def _keep(self, row: int) -> None:
        """Note what a queue that does not lend is guaranteed, if all above it lend."""
        above = self._above[row][1:]
        if any(not lends(self._view, each) for each in above):
            return
        for kind, amounts in self.guaranteed.items():
            if amounts[row]:
                self._kept.setdefault(kind, {})[row] = amounts[row]

    def _guarantees(self, specs: Sequence[Queue]) -> dict[int, list[int]]:
        """Return what queues are guaranteed, at least what those below them are together."""
        own: dict[int, list[int]] = {}
        for row, spec in enumerate(specs):
            for name, amount in spec.guaranteed if spec.state != REMOVED else ():
                kind = self._kind(name)
                if kind is not None:
                    own.setdefault(kind, [0] * len(self.parent))[row] = amount
        for amounts in own.values():
            below = [0] * len(self.parent)
            for row in reversed(self._order):  # those above come last
                amounts[row] = max(amounts[row], below[row])
                if self.parent[row] >= 0:
                    below[self.parent[row]] += amounts[row]
        return own

    def _capacity(self, kind: int) -> int:
        """Return what the nodes that are up have of a kind."""
        if kind == GPUS:
            return WHOLE * self._view.gpu_count()
        return int(self._view.nodes.total.kind(kind).sum())

    def _keeper(self, queue: int, kind: int, amount: int, beside: Quotas | None) -> AtLimit | None:
        """Return a queue that lends nothing, whose guarantee another one would borrow with more."""
        kept = self._kept.get(kind)
        if not kept:
            return None
        used, own = self._with(kind, beside), self._above[queue]
        if any(row in own and used[row] + amount <= most for row, most in kept.items()):
            return None  # within its own guarantee, also where nodes are lost and all are too much
        top = sum(each for row, each in enumerate(used) if self.parent[row] < 0)
        left = {row: most - used[row] for row, most in kept.items() if row not in own}
        reserved = {row: each for row, each in left.items() if each > 0}
        if not reserved or top + amount + sum(reserved.values()) <= self._total[kind]:
            return None
        return AtLimit(next(iter(reserved)), kind, keeps=True)

    def _with(self, kind: int, beside: Quotas | None) -> list[int]:
        """Return what is held of a kind by queue, with what is held beside."""
        if beside is None:
            return self.held[kind]
        return [a + b for a, b in zip(self.held[kind], beside.held[kind], strict=True)]

    def above(self, queue: int) -> tuple[int, ...]:
        """Return a row and those above it, up to the top."""
        return self._above[queue]

    def row_of(self, job: int) -> int:
        """Return the row of a job (row): that of its queue, or of its user in that."""
        return self.rows.of_job(job)

    def claims(self, queue: int, amounts: Amounts) -> tuple[int, ...]:
        """Return the queues, from one upwards, within whose guarantees so much more is.

        Of all kinds of which they are guaranteed any, and which it needs, at least one.
        """
        if not self.guaranteed:
            return ()
        return tuple(row for row in self._above[queue] if self._is_within(row, amounts))

    def beyond_guarantee(self, queue: int, amounts: Amounts) -> AtLimit | None:
        """Return the first queue, from one upwards, that more would take beyond its guarantee.

        Of the kinds of which it is guaranteed any; None if there is none.
        """
        for row in self._above[queue] if self.guaranteed else ():
            for kind, amount in amounts:
                most = self.guaranteed[kind][row] if kind in self.guaranteed else 0
                if amount and most and self.held[kind][row] + amount > most:
                    return AtLimit(row, kind)
        return None

    def left(self, queue: int, kind: int) -> int:
        """Return what is left of the guarantee of a queue, or of the nearest one above with any.

        Of a kind of which it is known what is held; of all nodes where none has any.
        """
        for row in self._above[queue]:
            if self._has(row, kind):
                part = self.rows.specs[self.rows.queue_of(row)].elastic_limit
                return int(part * self.guaranteed[kind][row]) - self.held[kind][row]
        top = sum(each for row, each in enumerate(self.held[kind]) if self.parent[row] < 0)
        return self._capacity(kind) - top

    def beyond_elastic(self, queue: int, amounts: Amounts) -> bool:
        """Return whether surplus of elastic jobs would hold more than the `elastic_limit` allows.

        Of a queue or one above it: that part of what it is guaranteed, or else may hold.
        """
        for row in self._above[queue]:
            part = self.rows.specs[row].elastic_limit if row < self.rows.queues else 1.0
            for kind, amount in amounts if part < 1 else ():
                limits = self._limits.get(kind, {})
                most = self.guaranteed[kind][row] if self._has(row, kind) else limits.get(row)
                if amount and most is not None and self.held[kind][row] + amount > part * most:
                    return True
        return False

    def _is_within(self, row: int, amounts: Amounts) -> bool:
        is_any = False
        for kind, amount in amounts:
            most = self.guaranteed[kind][row] if kind in self.guaranteed and amount else 0
            if most and self.held[kind][row] + amount > most:
                return False
            is_any |= most > 0
        return is_any

    def lender(self, borrower: int, claims: Sequence[int], amounts: Amounts) -> int | None:
        """Return which queue of `claims` may take back what a run of a queue holds, or None.

        It is the sibling of one that holds more than it is guaranteed of some of these amounts; as
        do all below that, down to the borrower.
        """
        chain: list[int] = []
        for row in self._above[borrower]:
            chain.append(row)
            lender = next((each for each in claims if self.parent[each] == self.parent[row]), None)
            if lender == row:
                return None  # it is within the guarantee itself
            if lender is not None:
                kinds = [kind for kind, amount in amounts if amount and self._has(lender, kind)]
                more = [any(self._borrows(each, kind) for kind in kinds) for each in chain]
                return lender if all(more) else None
        return None

    def gives_way(self, queue: int, milli: int) -> Bools:
        """Return which queues' runs may be stopped for so many GPUs of a queue, `[queues]`.

        Those that hold more than they are guaranteed, as do all above them; for their own jobs, and
        those of others below the same queue, also within what that is guaranteed. So nothing is
        stopped that would be taken back. In thousandths of GPUs.
        """
        gives = np.ones(self.rows.queues, bool)
        for row in self._order if GPUS in self.guaranteed else ():
            if row >= self.rows.queues:
                continue
            above, most = self.parent[row], self.guaranteed[GPUS][row]
            own = row in self._above[queue] and (milli <= most or not most)
            gives[row] = own or ((above < 0 or gives[above]) and self._borrows(row, GPUS))
        return gives

    def _has(self, row: int, kind: int) -> bool:
        return kind in self.guaranteed and self.guaranteed[kind][row] > 0

    def _borrows(self, row: int, kind: int) -> bool:
        return self.held[kind][row] > self.guaranteed[kind][row]

    def _held(self, kind: int) -> list[int]:
        """Return what each queue holds of a kind with those below it."""
        if kind == GPUS:
            return self.rows.held_gpus_milli()
        return self.rows.totals(held_by_row(self.rows, kind).tolist())

    def at_limit(
        self, queue: int, amounts: Iterable[tuple[int, int]], beside: Quotas | None = None
    ) -> AtLimit | None:
        """Return the first queue, from one upwards, whose limit leaves no room for more; or None.

        What `beside` counts as held is held as well.
        """
        for row in self._above[queue] if self._stopped else ():
            if row in self._stopped:
                return AtLimit(row, None)
        for kind, amount in amounts if self._limits or self._kept else ():
            if amount <= 0:
                continue
            keeper = self._keeper(queue, kind, amount, beside) if self._kept else None
            if keeper is not None:
                return keeper
            limits = self._limits.get(kind)
            if limits is None:
                continue
            used, more = self.held[kind], beside and beside.held[kind]
            for row in self._above[queue]:
                if row not in limits:
                    continue
                if used[row] + amount + (more[row] if more else 0) > limits[row]:
                    return AtLimit(row, kind)
        return None

    def user_at_limit(self, row: int, amounts: Amounts) -> bool:
        """Return whether what a user may hold leaves no room for more in a row, before all else."""
        if self.rows.column is None:
            return False
        found = self.at_limit(row, amounts)
        return found is not None and found.row >= self.rows.queues

    def runs(self, queue: int, amounts: Iterable[tuple[int, int]]) -> int:
        """Return how many times these amounts fit the limits of a queue together; or UNLIMITED."""
        if any(row in self._stopped for row in self._above[queue]):
            return 0
        runs = UNLIMITED
        for kind, amount in amounts:
            limits, used = self._limits.get(kind, {}), self.held.get(kind)
            for row in self._above[queue] if amount and used else ():
                if row in limits and used is not None:
                    runs = min(runs, runs_in(max(0, limits[row] - used[row]), amount))
        return runs

    @property
    def beyond_gpus(self) -> bool:
        """Whether a queue has a limit of anything else than GPUs, or does not lend some.

        Or limits the GPUs of each user together with those in other queues.
        """
        others = any(kind != GPUS for kind in (*self._limits, *self._kept))
        return others or self.rows.join_queues

    def add(self, queue: int, amounts: Iterable[tuple[int, int]], sign: int = 1) -> None:
        """Count more as held by a queue and those above it; or, with -1, as given back."""
        for kind, amount in amounts:
            used = self.held.get(kind)
            if used is not None:
                for row in self._above[queue]:
                    used[row] += sign * amount

    def _lent_milli(self, queue: int, beside: Quotas | None) -> int:
        """Return how many thousandths of GPUs a queue may get beside guarantees that none lends."""
        used, kept = self._with(GPUS, beside), self._kept[GPUS]
        top = sum(each for row, each in enumerate(used) if self.parent[row] < 0)
        own = [row for row in kept if row in self._above[queue]]
        others = sum(max(kept[row] - used[row], 0) for row in kept if row not in own)
        guaranteed = max((kept[row] - used[row] for row in own), default=0)
        return max(0, self._total[GPUS] - top - others, guaranteed)

    def merge(self, other: Quotas) -> None:
        """Count also what another one of the same tree counts as held."""
        for kind, held in other.held.items():
            self.held[kind] = [a + b for a, b in zip(self.held[kind], held, strict=True)]

    def used(self, queue: int, kind: int = GPUS) -> int:
        """Return what a queue holds of a kind of which some queue has a limit, or of GPUs."""
        return self.held[kind][queue]

    def limit(self, queue: int, kind: int = GPUS) -> int:
        """Return the own limit of a queue; UNLIMITED_MILLI without one."""
        return self._limits.get(kind, {}).get(queue, UNLIMITED_MILLI)

    def room_milli(self, beside: Quotas | None = None) -> Array:
        """Return the thousandths of GPUs that each queue may hold more, `[queues]`; O(queues)."""
        room = np.full(len(self.parent), UNLIMITED_MILLI, np.int64)
        limits, used = self._limits.get(GPUS, {}), self.held[GPUS]
        more = beside.held[GPUS] if beside else [0] * len(used)
        if self._kept.get(GPUS):
            for row in self._order:
                room[row] = self._lent_milli(row, beside)
        elif not limits and not self._stopped:
            return room
        for row in self._order:
            for above in self._above[row][1:]:
                room[row] = min(room[row], room[above])
            if row in limits:
                room[row] = min(room[row], limits[row] - used[row] - more[row])
            if row in self._stopped:
                room[row] = 0
        return room

    def copy(self) -> Quotas:
        """Return an independent copy; O(queues)."""
        other = copy(self)
        other.held = {kind: used[:] for kind, used in self.held.items()}
        return other

    def without_use(self) -> Quotas:
        """Return the same tree, of which nothing is held, to count what is booked beside."""
        other = copy(self)
        other.held = {kind: [0] * len(used) for kind, used in self.held.items()}
        return other


def lends(view: View, queue: int) -> bool:
    """Return whether others may borrow of a queue (row) now: not after it has taken some back."""
    held_back = view.now < view.queues.taken_back_at[queue] + HELD_BACK_S
    return view.queue(queue).lend and not held_back


def held_back_until(view: View) -> float | None:
    """Return when the next queue lends again that has taken something back; None for none."""
    at = view.queues.taken_back_at.array() + HELD_BACK_S
    return float(at[at > view.now].min()) if (at > view.now).any() else None


def held_by_row(rows: QuotaRows, kind: int) -> Ints:
    """Return what the runs of each row's jobs hold of a kind of the nodes' resources, `[rows]`.

    O(grants).
    """
    grants, names, tasks = rows.view.grants, rows.view.names, rows.view.tasks
    some = np.flatnonzero((grants.task.array() >= 0) & (grants.purpose.array() == FOR_RUN))
    amount = np.array([dict(needs).get(kind, 0) for needs in names.needs], np.int64)
    jobs = tasks.job.array()[grants.task.array()[some]]
    held = np.zeros(len(rows.parent), np.int64)
    np.add.at(held, rows.by_job()[jobs], amount[grants.demand.array()[some]])
    return held
