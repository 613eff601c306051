"""Whose runs are cut short: those of jobs far above their share, for jobs below theirs.

A job that holds more than `(1 + slack)` times its share may be cut back to it, never to zero
running tasks. Runs that are being stopped already count as gone, and the GPUs that they are about
to free as given to jobs below their share: no run is stopped for a GPU that is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.planning.shares import NO_CEILING, Ints
from headgate.policies.greedy.deal import Deal
from headgate.protocol import Group, Steps, Stop
from headgate.protocol.reasons import PreemptedFor
from headgate.state import Snapshot, TaskState


def victims(snapshot: Snapshot, deal: Deal, slack: float) -> Steps:
    """Return the runs to be stopped once a deal stands, in the order in which they are chosen.

    GPUs go on paper one at a time to the job below its share that holds least; for each, the run
    that is stopped is the one that has lasted least of those whose GPU the job can use.
    O((jobs below their share + victims) x GPUs).
    """
    return Steps.of(_Cut(snapshot, deal, slack).run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    task: int  # row
    job: int
    size: int  # class of its GPU


class _Cut:
    """GPUs on their way to jobs below their share; jobs as indices into `Standing.jobs`."""

    def __init__(self, snapshot: Snapshot, deal: Deal, slack: float) -> None:
        self._names = [snapshot.job(row).id for row in deal.now.jobs.tolist()]
        self._queue = deal.now.queue
        self._waiting = deal.waiting.copy()
        self._keeps = deal.held.copy()  # GPUs, once all that stops has stopped
        self._room = _room(snapshot, deal)  # GPUs by queue
        self._coming: list[int] = []  # classes of GPUs about to be free, ascending
        self._runs: list[_Run] = []  # shortest first
        running = deal.now.held.copy()
        self._sort_out(snapshot, deal, running)
        over = self._keeps > (1 + slack) * deal.target
        most = np.minimum(self._keeps - deal.target, running - 1)
        self._cut = np.where(over, np.maximum(most, 0), 0)
        self._missing = deal.target - self._keeps

    def _sort_out(self, snapshot: Snapshot, deal: Deal, running: Ints) -> None:
        """Tell what is being stopped from what may be; take the former off what is kept."""
        tasks, index = snapshot.tasks, {row: j for j, row in enumerate(deal.now.jobs.tolist())}
        holder = snapshot.gpus.task.array()
        for gpu in np.flatnonzero(holder >= 0).tolist():
            task = int(holder[gpu])
            row = tasks.job[task]
            job = index.get(row)
            size = int(np.searchsorted(deal.now.class_bytes, snapshot.gpus.memory_bytes[gpu]))
            if tasks.state[task] == TaskState.STOPPING:
                self._coming.append(size)
                self._room[snapshot.jobs.queue[row]] += 1
                if job is not None:
                    self._keeps[job] -= 1
                    running[job] -= 1
            elif job is not None:
                self._runs.append(_Run(task=task, job=job, size=size))
        self._coming.sort()
        # Time run counts from when the GPU was taken, as lost GPU seconds do.
        self._runs.sort(key=lambda r: (snapshot.now - tasks.launched_at[r.task], -r.task))

    def run(self) -> list[Group]:
        """Return the runs to be stopped, each for the job that is to have its GPU."""
        victims: list[Group] = []
        needy = [j for j in range(len(self._keeps)) if self._needs(j)]
        while needy:
            job = min(needy, key=lambda j: (self._keeps[j], j))
            size = int(np.flatnonzero(self._waiting[job])[0])
            if not self._take_coming(job, size):
                run = self._shortest(job, size)
                if run is None:
                    needy.remove(job)
                    continue
                self._runs.remove(run)
                self._cut[run.job] -= 1
                self._room[self._queue[run.job]] += 1
                reason = PreemptedFor(job=self._names[job])
                victims.append(Group((Stop(run.task),), reason))
            self._room[self._queue[job]] -= 1
            self._keeps[job] += 1
            self._missing[job] -= 1
            self._waiting[job, size] -= 1
            if not self._needs(job):
                needy.remove(job)
        return victims

    def _needs(self, job: int) -> bool:
        return bool(self._missing[job] > 0 and self._waiting[job].any())

    def _take_coming(self, job: int, size: int) -> bool:
        """Give a job the smallest GPU on its way that fits; say whether there is one."""
        fitting = next((s for s in self._coming if s >= size), None)
        if fitting is None or self._room[self._queue[job]] <= 0:
            return False
        self._coming.remove(fitting)
        return True

    def _shortest(self, job: int, size: int) -> _Run | None:
        """Return the run to be stopped for a job: one of its own queue, if that is full."""
        queue = self._queue[job]
        for run in self._runs:
            room = self._room[queue] + (self._queue[run.job] == queue)
            if self._cut[run.job] > 0 and run.size >= size and room > 0:
                return run
        return None


def _room(snapshot: Snapshot, deal: Deal) -> Ints:
    """Return how many more GPUs each queue may hold once a deal stands."""
    limits = [q.max_gpus for q in snapshot.queues.spec.array()]
    room = np.array([NO_CEILING if m is None else m for m in limits], np.int64)
    won = np.bincount(deal.now.queue, deal.held - deal.now.held, len(limits)).astype(np.int64)
    left: Ints = room - snapshot.gpus_of_queues() - won
    return left
