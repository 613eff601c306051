"""Owners, the users of queues, and what each holds of its fair share.

GPUs are counted for tasks on GPUs, else CPUs: the two kinds are shared separately, whole ones as
`planning.shares.fair_shares` defines it. Amounts are in thousandths of one. What needs none of its
kind, such as memory alone, is within every share.
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import BASE_KINDS, CPUS, WHOLE
from headgate.model.queue import GPUS_KIND
from headgate.planning.shares.fair_shares import Hierarchy
from headgate.planning.shares.queue_tree import queue_tree
from headgate.planning.units.unit import Unit
from headgate.state import Snapshot, TaskState
from headgate.state.quota_rows import quota_rows

GPU_KIND, CPU_KIND = 0, 1

_HOLDS = (TaskState.STARTING, TaskState.RUNNING, TaskState.MOVING)
_NEEDS = (TaskState.WAITING, *_HOLDS, TaskState.STOPPING)
_NONE = np.zeros(0, np.int64)


class Owners:
    """What owners and their jobs hold, without runs that are being stopped, and their shares.

    `held` and `share`, `[kinds, owners]`; those of jobs, `[kinds, jobs]`, are by row. Starts of
    `planned` tasks count as made; `also` are tasks that need their demand beside those that wait.
    O(tasks + jobs x log).
    """

    def __init__(self, snapshot: Snapshot, planned: Ints, also: Ints = _NONE) -> None:
        self._snapshot, jobs = snapshot, len(snapshot.jobs.state)
        demands = snapshot.names.demands
        gpus = np.array([demand.gpus_milli for demand in demands], np.int64)
        cpus = np.array([demand.cpus_milli for demand in demands], np.int64)
        self._is_on_gpus = np.array([demand.gpus > 0 for demand in demands], bool)
        self._amount = np.stack([gpus, np.where(self._is_on_gpus, 0, cpus)])
        state = snapshot.tasks.state.array()
        needing, holding = (np.flatnonzero(np.isin(state, which)) for which in (_NEEDS, _HOLDS))
        need = self._by_job(np.concatenate([needing, also]))
        self.held_by_job = self._by_job(np.concatenate([holding, planned]))
        on_gpus = np.flatnonzero(np.isin(state, (*_HOLDS, TaskState.STOPPING)))
        on_gpus = on_gpus[snapshot.tasks.gpus.take(on_gpus) > 0]
        capacity = (
            WHOLE * snapshot.gpu_count(),
            int(snapshot.nodes.total.kind(CPUS).sum())
            - int(cpus[snapshot.tasks.demand.take(on_gpus)].sum()),
        )
        self.share_by_job = np.zeros((2, jobs), np.int64)
        self._rows = quota_rows(snapshot)
        queue = self._rows.by_job().astype(np.int64)
        user = snapshot.jobs.user.array().astype(np.int64)
        for kind in (GPU_KIND, CPU_KIND):
            rows = np.flatnonzero(need[kind])
            room = -(-need[kind, rows] // WHOLE)
            fair = self._hierarchy(rows, queue[rows], user[rows], room, kind).allocate(
                held=np.zeros(len(rows), np.int64),
                room=room,
                gpus=max(0, capacity[kind]) // WHOLE,
            )
            self.share_by_job[kind, rows] = WHOLE * fair
        pairs = queue * (int(user.max(initial=0)) + 1) + user
        owners, self.of_job = np.unique(pairs, return_inverse=True)
        self.held = self._by_owner(self.held_by_job, len(owners))
        self.share = self._by_owner(self.share_by_job, len(owners))

    def kind(self, demand: int) -> int:
        """Return the kind of which a demand (row) takes from a share."""
        return GPU_KIND if self._is_on_gpus[demand] else CPU_KIND

    def amount(self, demand: int) -> int:
        """Return how much of that kind it takes."""
        return int(self._amount[self.kind(demand), demand])

    def add(self, job: int, kind: int, amount: int) -> None:
        """Count so much more as held by a job, and by its owner."""
        self.held_by_job[kind, job] += amount
        self.held[kind, self.of_job[job]] += amount

    def is_entitled(self, job: int, kind: int, amount: int) -> bool:
        """Return whether a job's owner is within its share with so much more."""
        owner = self.of_job[job]
        within: bool = self.held[kind, owner] + amount <= self.share[kind, owner]
        return within or not amount

    def need(self, unit: Unit) -> tuple[int, int]:
        """Return the kind of which a unit takes from its owner's share, and how much."""
        kind = min(self.kind(demand) for demand in unit.demands)
        return kind, sum(self.amount(d) for d in unit.demands if self.kind(d) == kind)

    def is_below(self, unit: Unit) -> bool:
        """Return whether a unit's owner is below its share of what the unit needs."""
        kind, amount = self.need(unit)
        return not amount or self.spare(unit.job, kind) < 0

    def spare(self, job: int, kind: int) -> int:
        """Return how much a job's owner holds above its share, less than 0 below it."""
        owner = self.of_job[job]
        return int(self.held[kind, owner] - self.share[kind, owner])

    def excess(self, job: int, kind: int) -> int:
        """Return how much a job holds above its own share."""
        return int(self.held_by_job[kind, job] - self.share_by_job[kind, job])

    def _by_job(self, tasks: Ints) -> Ints:
        columns = self._snapshot.tasks
        job, demand = columns.job.take(tasks), columns.demand.take(tasks)
        jobs = len(self._snapshot.jobs.state)
        return np.stack(
            [np.bincount(job, amount[demand], jobs).astype(np.int64) for amount in self._amount]
        )

    def _by_owner(self, by_job: Ints, owners: int) -> Ints:
        return np.stack([np.bincount(self.of_job, row, owners).astype(np.int64) for row in by_job])

    def _hierarchy(self, rows: Ints, queue: Ints, user: Ints, room: Ints, kind: int) -> Hierarchy:
        wanted = np.bincount(queue, room, len(self._rows.parent)).astype(np.int64)
        tree = queue_tree(self._rows, wanted, GPUS_KIND if kind == GPU_KIND else BASE_KINDS[CPUS])
        return Hierarchy(
            queue=queue,
            user=user,
            priority=self._snapshot.jobs.priority.take(rows).astype(np.int64),
            tree=tree,
        )
