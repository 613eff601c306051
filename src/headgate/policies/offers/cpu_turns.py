"""Whose turn it is among jobs without GPUs, under `capacity` and `fair`: as with free GPUs.

The next task or gang is of the queue that holds fewest CPUs relative to its weight, in it of the
user who holds fewest, of that user of the job that is first: under `capacity` by arrival, under
`fair` the one that holds fewest; under both, higher priority goes first. Ties go to the earliest
job. CPUs of runs with GPUs do not count: they come with these.
"""

from __future__ import annotations

import heapq

import numpy as np

from headgate.model import CPUS
from headgate.state import Snapshot
from headgate.state.life import HOLDING
from headgate.state.quotas import Quotas

_Rank = tuple[int, float, int]
"""The order of a user's jobs, the lowest first: -priority, CPUs held under `fair`, row."""


class CpuTurns:
    """The jobs (rows) with waiting tasks that need no GPU, and what CPUs jobs hold already."""

    def __init__(self, snapshot: Snapshot, *, evenly: bool) -> None:
        """Read what is held; O(tasks)."""
        self._snapshot, self._evenly, self._quotas = snapshot, evenly, Quotas(snapshot)
        cpus = np.array([each.cpus_milli for each in snapshot.names.demands], np.int64)
        tasks = snapshot.tasks
        runs = np.flatnonzero(np.isin(tasks.state.array(), HOLDING) & (tasks.gpus.array() == 0))
        held = np.bincount(
            tasks.job.take(runs), cpus[tasks.demand.take(runs)], len(snapshot.jobs.state)
        )
        self._of_job: list[float] = held.tolist()
        self._of_queue = [0.0] * len(snapshot.queues.spec)
        self._of_user: dict[tuple[int, int], float] = {}
        for job in np.flatnonzero(held).tolist():
            self._count(job, self._of_job[job])
        none = [0] * len(snapshot.queues.spec)
        self._guaranteed = self._quotas.guaranteed.get(CPUS, none)  # thousandths
        self._waiting: dict[tuple[int, int], list[_Rank]] = {}  # heaps, by queue and user
        for job in snapshot.waiting_cpu_jobs():
            user = snapshot.jobs.queue[job], snapshot.jobs.user[job]
            self._waiting.setdefault(user, []).append(self._rank(job))
        for ranks in self._waiting.values():
            heapq.heapify(ranks)

    def next(self) -> int | None:
        """Return the job whose turn it is; None if all are done. O(users)."""
        user = min(self._waiting, key=self._user_rank, default=None)
        return None if user is None else self._waiting[user][0][-1]

    def took(self, job: int, cpus_milli: int) -> None:
        """Count thousandths of CPUs that the job whose turn it was got."""
        self._of_job[job] += cpus_milli
        self._count(job, cpus_milli)
        heapq.heapreplace(self._waiting[self._user_of(job)], self._rank(job))

    def done(self, job: int) -> None:
        """Leave out the job whose turn it was: nothing of it waits, or what does fits no node."""
        user = self._user_of(job)
        heapq.heappop(self._waiting[user])
        if not self._waiting[user]:
            del self._waiting[user]

    def _user_of(self, job: int) -> tuple[int, int]:
        return self._snapshot.jobs.queue[job], self._snapshot.jobs.user[job]

    def _count(self, job: int, cpus_milli: float) -> None:
        user = self._user_of(job)
        self._of_user[user] = self._of_user.get(user, 0.0) + cpus_milli
        for row in self._quotas.above(user[0]):
            self._of_queue[row] += cpus_milli

    def _user_rank(self, user: tuple[int, int]) -> tuple[object, ...]:
        """Return the place of a user, least first: by queues from the top, then its own CPUs."""
        ranks: list[tuple[float, float]] = []
        for row in reversed(self._quotas.above(user[0])):
            held, guaranteed = self._of_queue[row], self._guaranteed[row]
            below = held < guaranteed
            over = guaranteed if below else self._snapshot.queue(row).weight
            ranks.append((0.0 if below else 1.0, held / over))
        return ranks, self._of_user.get(user, 0.0), self._waiting[user][0][-1]

    def _rank(self, job: int) -> _Rank:
        own = self._of_job[job] if self._evenly else 0.0
        return -self._snapshot.jobs.priority[job], own, job
