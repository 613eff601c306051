"""The tasks that go into the flow, by kind: those of a kind differ in nothing but age.

Of each kind only the first ones are offered, as many as its job may place. Who has been offered
once stays until it waits no longer: beyond what its job may place, it only fills a pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.base.order import in_order, nth_of_equals
from headgate.base.rows import RowMap
from headgate.flow import Ints
from headgate.planning.census import Bools
from headgate.planning.shares import Floats
from headgate.planning.standing import Standing
from headgate.policies.flow.aggregated import Placed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The tasks of a `Standing`, one value each; `able` are those that might be placed now."""

    row: Ints
    job: Ints  # index into `Standing.jobs`
    kind: Ints  # row of the first task of its kind
    able: Bools


def candidates(now: Standing, kind: Ints, most: Ints, *, ahead: bool) -> Candidates:
    """Return who waits, and might be placed now, or, `ahead`, on any GPU that is up."""
    fits = now.task_class < len(now.class_bytes)
    able = fits & (most > 0)[now.task_job]
    if not (ahead or now.free.any()):
        able[:] = False
    return Candidates(row=now.task, job=now.task_job, kind=kind, able=able)


class Offers:
    """How many tasks of each kind are offered, what one reads, and which shards are read at all."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count, self._bytes = RowMap(0), RowMap(0)
        self._is_read = np.zeros(0, bool)  # by shard

    def new(self, tasks: Candidates, most: Ints, offered: Bools) -> Ints:
        """Return which tasks to offer besides those `offered`, as indices; `most` is by job."""
        able = np.flatnonzero(tasks.able & ~offered)
        room = most[tasks.job[able]] - self._count[tasks.kind[able]]
        able, room = able[room > 0], room[room > 0]
        return able[nth_of_equals(tasks.kind[able]) < room]

    def note(self, kind: Ints, read_bytes: Ints, shards: Ints) -> None:
        """Take note of what tasks of some kinds read, and of the shards that it is."""
        self._bytes[kind] = read_bytes
        new = int(shards.max(initial=-1)) + 1 - len(self._is_read)
        if new > 0:
            self._is_read = np.concatenate([self._is_read, np.zeros(new, bool)])
        self._is_read[shards] = True

    def read_among(self, shards: Ints) -> Ints:
        """Return which of some shards, ascending, a task read that is or was offered."""
        known = shards[: np.searchsorted(shards, len(self._is_read))]
        return known[self._is_read[known]]

    def count(self, kind: Ints, step: int) -> None:
        """Count tasks that are offered from now on, or no longer."""
        self._count.add(kind, step)

    def waiting_bytes(self, tasks: Candidates, group: Ints, groups: int) -> Floats:
        """Return what the able tasks of each group read together; `group` is by job."""
        able = np.flatnonzero(tasks.able)
        each = self._bytes[tasks.kind[able]]
        total = np.bincount(group[tasks.job[able]], each, minlength=groups)
        return total.astype(np.float64)


def first_come(placed: Placed, kind: Ints) -> Placed:
    """Let the first tasks of each kind run, since which of them do is all the same to the flow.

    `kind` is that of all tasks that wait.
    """
    if not len(placed.task):
        return placed
    kind = kind - kind.min()
    alike = np.bincount(kind)
    several = np.flatnonzero(alike[kind[placed.task]] > 1)
    if not len(several):
        return placed
    wanted = np.zeros(len(alike), bool)
    wanted[kind[placed.task[several]]] = True
    members = np.flatnonzero(wanted[kind])
    members = members[in_order(kind[members])]
    by_kind = several[in_order(kind[placed.task[several]])]
    sought = kind[placed.task[by_kind]]
    task = placed.task.copy()
    task[by_kind] = members[np.searchsorted(kind[members], sought) + nth_of_equals(sought)]
    order = np.argsort(task)
    return replace(placed, task=task).only(order)
