"""The rows of quotas: queues, and the users of those that limit what each of them holds.

Rows of queues are those of the state. Behind them are rows of a user in a queue: one in each queue
with jobs of the user of which that queue, or one above it, limits what each user holds, and one in
each queue above that does so itself. They are numbered again for each view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import Queue
from headgate.model.queue import GPUS_KIND
from headgate.state.life import ENDED
from headgate.state.view import View


@dataclass(frozen=True, kw_only=True, eq=False)
class QuotaRows:
    """The rows of one view: what each is part of, and in which the jobs are."""

    view: View
    specs: Sequence[Queue]
    parent: list[int]
    """The row of the queue above each, -1 at the top; of a user's row, that of its queue."""
    above: list[tuple[int, ...]]
    """Each row and those that hold what it holds, from it upwards."""
    limited: frozenset[int]
    """The queues (rows) that limit what each user holds."""
    users: list[tuple[int, int]]
    """The queue and the user (rows) of each row behind those of queues."""
    column: Ints | None
    """The row of each job, `[jobs]`; None where no queue limits what each user holds."""

    @property
    def queues(self) -> int:
        """The number of rows of queues, which come first."""
        return len(self.specs)

    def of_job(self, job: int) -> int:
        """Return the row of a job (row) that has not ended: of its queue, or of its user there."""
        if self.column is None:
            row: int = self.view.jobs.queue[job]
            return row
        return int(self.column[job])

    def of_jobs(self, jobs: Ints) -> Ints:
        """Return the rows of jobs (rows)."""
        if self.column is None:
            rows: Ints = self.view.jobs.queue.take(jobs).astype(np.int64)
            return rows
        return self.column[jobs]

    def by_job(self) -> Ints:
        """Return the row of each job, `[jobs]`."""
        rows: Ints = self.view.jobs.queue.array() if self.column is None else self.column
        return rows

    def queue_of(self, row: int) -> int:
        """Return the queue (row) of a row."""
        return row if row < self.queues else self.users[row - self.queues][0]

    def user_of(self, row: int) -> str | None:
        """Return the user whose row it is, None for that of a queue."""
        if row < self.queues:
            return None
        return self.view.names.users[self.users[row - self.queues][1]]

    def lines_of(self, job: int) -> tuple[int, ...]:
        """Return the rows in whose lines a job waits: that of its queue, and those of its user."""
        queue: int = self.view.jobs.queue[job]
        if self.column is None:
            return (queue,)
        return queue, *(row for row in self.above[self.of_job(job)] if row >= self.queues)

    @cached_property
    def join_queues(self) -> bool:
        """Whether some user's limit is that of several queues together, so that no tree has it."""
        divided = {*self.parent[: self.queues]}
        return any(queue in divided for queue, _ in self.users)

    def divides_as(self, other: QuotaRows) -> bool:
        """Return whether those of another view divide the same queues into users; O(queues)."""
        return self.limited == other.limited

    def ids(self) -> Ints:
        """Return a number of each row, `[rows]`, that it keeps in later views."""
        queue, who = np.array([*((row, 0) for row in range(self.queues)), *self.users], np.int64).T
        who[self.queues :] += 1
        ids: Ints = (queue + who) * (queue + who + 1) // 2 + who  # Cantor's pairing function
        return ids

    def own_gpus_milli(self) -> Ints:
        """Return the thousandths of GPUs that the jobs of each row hold, `[rows]`."""
        if self.column is None:
            held: Ints = self.view.queues.held_gpus_milli.array().astype(np.int64)
            return held
        own = np.zeros(len(self.parent), np.int64)
        np.add.at(own, self.column, self.view.jobs.held_gpus_milli.array())
        return own

    def held_gpus_milli(self) -> list[int]:
        """Return the thousandths of GPUs that each row holds, with all that is part of it."""
        return self.totals(self.own_gpus_milli().tolist())

    def totals(self, own: Sequence[int]) -> list[int]:
        """Return what each row has, with all that is part of it, given what each has itself."""
        total = [0] * len(self.parent)
        for row, amount in enumerate(own):
            for above in self.above[row] if amount else ():
                total[above] += amount
        return total

    def most_of_users(self, kind: str) -> list[int | None]:
        """Return how much of a kind each user's row may hold, None without a limit; in thousandths.

        Of GPUs less what the user holds elsewhere below a queue that limits both together.
        """
        held = (
            self.held_gpus_milli() if self.users and kind == GPUS_KIND else [0] * len(self.parent)
        )
        limits = [dict(self.specs[queue].per_user).get(kind) for queue, _ in self.users]
        found: list[int | None] = []
        for row in range(self.queues, len(self.parent)):
            least: int | None = None
            for above in self.above[row]:
                most = limits[above - self.queues] if above >= self.queues else None
                if most is not None:
                    left = max(0, most - (held[above] - held[row]))
                    least = left if least is None else min(least, left)
            found.append(least)
        return found


def quota_rows(view: View) -> QuotaRows:
    """Return the rows of a view; O(queues), and O(jobs x log) where users are limited."""
    count, by_name = len(view.queues.spec), view.names.queue_rows
    specs = [view.queue(row) for row in range(count)]
    parent = [by_name[spec.parent] if spec.parent else -1 for spec in specs]
    above = [_up(parent, row) for row in range(count)]
    limited = frozenset(row for row, spec in enumerate(specs) if spec.per_user)
    rows = QuotaRows(
        view=view, specs=specs, parent=parent, above=above, limited=limited, users=[], column=None
    )
    return _with_users(rows) if limited else rows


def _with_users(rows: QuotaRows) -> QuotaRows:
    view, limited, count = rows.view, rows.limited, rows.queues
    parent, above = [*rows.parent], [*rows.above]
    queue, user = view.jobs.queue.array(), view.jobs.user.array().astype(np.int64)
    divides = np.array([not limited.isdisjoint(chain) for chain in above])
    jobs = np.flatnonzero(divides[queue] & ~np.isin(view.jobs.state.array(), ENDED))
    most = int(user.max(initial=0)) + 1
    pairs, index = np.unique(queue[jobs] * most + user[jobs], return_inverse=True)
    column = queue.astype(np.int64)
    column[jobs] = count + index
    users = [divmod(pair, most) for pair in pairs.tolist()]
    numbers = {pair: number for number, pair in enumerate(users, count)}
    for of, who in tuple(users):
        for each in above[of][1:]:
            if each in limited and (each, who) not in numbers:
                numbers[each, who] = count + len(users)
                users.append((each, who))
    for of, who in users:
        parent.append(of)
        chain = [(numbers.get((each, who)), each) for each in above[of]]
        above.append(tuple(row for both in chain for row in both if row is not None))
    return replace(rows, parent=parent, above=above, users=users, column=column)


def _up(parent: Sequence[int], row: int) -> tuple[int, ...]:
    """Return a queue and those above it."""
    found = []
    while row >= 0:
        found.append(row)
        row = parent[row]
    return (*found,)
