"""The runs that an order of jobs may preempt, as arrays."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.state import Snapshot
from headgate.state.life import EXECUTING


class Runs:
    """What jobs hold in whole GPUs and is not being stopped: each task, but a gang as one.

    In the order of their jobs; `rank` is the index of the job of each, `[runs]`. The GPUs (rows) of
    the runs from a to b are `gpus[first[a]:first[b]]`; `of_gpu`, `[GPU rows]`, is -1 where none is.
    """

    def __init__(self, snapshot: Snapshot, jobs: Ints) -> None:
        """Read the runs of jobs (rows, in order); O(GPUs x log + jobs)."""
        holder = snapshot.gpus.task.array()
        held = np.flatnonzero(holder >= 0)
        task = holder[held].astype(np.int64)
        job = snapshot.tasks.job.take(task)
        ranks = np.full(len(snapshot.jobs.state), -1, np.int64)
        ranks[jobs] = np.arange(len(jobs))
        rank = ranks[job]
        some = np.flatnonzero((rank >= 0) & np.isin(snapshot.tasks.state.take(task), EXECUTING))
        some = some[np.lexsort((task[some], rank[some]))]
        self.gpus, self._task, rank = held[some], task[some], rank[some]
        gang = snapshot.jobs.gang.take(job[some].astype(np.int64)) > 0
        begins = np.diff(np.where(gang, -2 - rank, self._task), prepend=-1) != 0
        first = np.flatnonzero(begins)
        self.first: Ints = np.append(first, len(some))
        self.rank: Ints = rank[first]
        self.of_gpu = np.full(len(holder), -1, np.int64)
        self.of_gpu[self.gpus] = np.cumsum(begins) - 1

    @property
    def first_task(self) -> Ints:
        """The first task (row) of each run."""
        return self._task[self.first[:-1]]

    def __len__(self) -> int:
        return len(self.rank)

    def gpus_of(self, run: int) -> Ints:
        """Return the GPUs (rows) of one run."""
        return self.gpus[self.first[run] : self.first[run + 1]]

    def tasks_of(self, run: int) -> tuple[int, ...]:
        """Return the tasks (rows) of one run on GPUs, ascending."""
        return tuple(dict.fromkeys(self._task[self.first[run] : self.first[run + 1]].tolist()))
