"""The greedy round: free GPUs are offered one at a time to the job that holds fewest.

Jobs below their share come first. When none of them has a task that fits a free GPU, or all of them
have declined, the other jobs share the remaining GPUs evenly. Jobs whose queue is at its ceiling
get no offer. A job to which a GPU is offered first places a multi-GPU unit, by first fit or a
placer.
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model import WHOLE
from headgate.planning.place.choose import Placer
from headgate.planning.place.feasible_starts import place_elsewhere
from headgate.planning.place.line import Line
from headgate.planning.place.multi_gpu import MultiGpuUnits
from headgate.planning.shares.standing import Standing
from headgate.planning.shares.task_counts import any_of_class
from headgate.policies.offers.candidates import ANY, Candidate, Candidates, FreeGpus
from headgate.policies.offers.delay import SkipCounters
from headgate.protocol import Refusal
from headgate.state import Scratch
from headgate.state.quotas import Quotas, gpus_alone


class GreedyRound:
    """One round; jobs are indices into `Standing.jobs`. O(placements x (jobs + nodes))."""

    def __init__(
        self,
        scratch: Scratch,
        standing: Standing,
        target: Ints,
        free_gpus: FreeGpus,
        counters: SkipCounters | None = None,
        placer: Placer | None = None,
    ) -> None:
        """Start from the GPUs held now; without `counters` no job declines."""
        self.standing, self.target = standing, target
        self.held = standing.held.copy()
        self.waiting = standing.waiting.copy()  # [jobs, types] tasks on one whole GPU
        self.multi_gpu = MultiGpuUnits(scratch, standing, placer)
        self.line = Line(scratch, standing, self.multi_gpu)
        self.free_gpus = free_gpus
        self.declined: list[int] = []
        table = scratch.snapshot.jobs
        self._held_milli = table.held_gpus_milli.array()[standing.jobs].astype(np.int64)
        self.quotas = Quotas(scratch.snapshot)
        """What queues hold, with the GPUs that jobs were given in this round."""
        self._kept = self.quotas.without_use()  # room for the first in line
        self._open_jobs = np.zeros(len(standing.jobs), bool)  # with units that may fit
        self._open_jobs[standing.multi_gpu_jobs] = True
        self._scratch, self._counters = scratch, counters
        self._candidates: dict[int, Candidates] = {}
        self._lacking: list[int] = []  # tasks whose node lacks CPUs or another resource
        self._bounds = np.searchsorted(standing.task_job, np.arange(len(standing.jobs) + 1))

    def run(self) -> list[Refusal]:
        """Offer GPUs until no job takes one; the placements are in the scratch.

        Returns the refusals of tasks that got a GPU, but fit no node with the rest of their demand:
        another task gets that GPU.
        """
        for first in self.line.in_order(self._open_jobs & (self.held < self.target)):
            self._offer_unit(first)
        while (job := self._next()) is not None:
            if self._open_jobs[job]:
                self._offer_unit(job)
            else:
                self._offer(job)
        before, chosen = len(self._scratch.starts), {*self._lacking}
        chosen |= {start.task for start in self._scratch.starts}
        others = (task for task in self.standing.task.tolist() if task not in chosen)
        refusals = place_elsewhere(self._scratch, self._lacking, others)
        self.line.end()
        for start in self._scratch.starts[before:]:
            index = np.searchsorted(self.standing.task, start.task)
            job = int(self.standing.task_job[index])
            if start.task not in chosen:
                self.waiting[job, self.standing.task_type[index]] -= 1
                self._count(job, WHOLE)
            if self._counters is not None:
                self._counters.reset(job)
        return refusals

    def offered(self) -> list[int]:
        """Return the tasks (rows) that got a GPU, also those whose node lacked the rest."""
        return [*self._lacking, *(start.task for start in self._scratch.starts)]

    def fitting(self) -> Bools:
        """Return which jobs [jobs] have a waiting task that fits a free GPU."""
        served = self.standing.types_on(self.free_gpus.count.sum(axis=0))
        return any_of_class(self.waiting[:, served])

    def under_ceiling(self) -> Bools:
        """Return which jobs [jobs] are in a queue that may hold one more GPU."""
        room: Bools = (self.room_milli() >= WHOLE)[self.standing.queue]
        return room

    def room_milli(self) -> Ints:
        """Return the thousandths of GPUs that each queue may hold more, `[queues]`."""
        return self.quotas.room_milli(self._kept)

    def _next(self) -> int | None:
        """Return the job that is next offered the free GPUs, None if there is none."""
        able = self.fitting() & self.under_ceiling()
        able[self.declined] = False
        able |= self._open_jobs
        below = able & (self.held < self.target)
        among = np.flatnonzero(below if below.any() else able)
        return int(among[self.held[among].argmin()]) if len(among) else None

    def _offer_unit(self, job: int) -> None:
        """Place a multi-GPU unit of a job; if none fits, it gets no such offer any more."""
        before, kept, queue = len(self._scratch.starts), self.line.kept, self.standing.queue[job]
        milli = self.line.offer(
            job, int(self.room_milli()[queue]), below_share=self.held[job] < self.target[job]
        )
        if self.line.kept is not kept:
            self.free_gpus.count[self.line.kept] = 0
            self._kept.add(queue, gpus_alone(self.line.kept_milli))
        if milli is None:  # resources are only taken: none will fit in this round
            self._open_jobs[job] = False
            return
        starts = self._scratch.starts[before:]
        for node in dict.fromkeys(start.node for start in starts if start.gpus):
            self.free_gpus.limit_to(self._scratch.ledger, node)
        self._count(job, milli)
        if self._counters is not None:
            self._counters.reset(job)

    def _count(self, job: int, milli: int) -> None:
        """Count thousandths of GPUs as held by a job."""
        self._held_milli[job] += milli
        self.held[job] = -(-self._held_milli[job] // WHOLE)
        self.quotas.add(int(self.standing.queue[job]), gpus_alone(milli))

    def _offer(self, job: int) -> None:
        candidates = self.candidates(job)
        gap = int(self.target[job] - self.held[job])
        accepted = ANY
        if self._counters is not None and gap > 0:
            accepted = self._counters.accepted(job, gap)
        candidate = candidates.best(accepted)
        if candidate is not None:
            self._take(job, candidates, candidate)
            return
        self.declined.append(job)
        if self._counters is not None:
            self._counters.skip(job, gap)

    def _take(self, job: int, candidates: Candidates, candidate: Candidate) -> None:
        candidates.take(candidate)
        placed = self._scratch.place(candidate.task, candidate.node)
        if not placed:
            self._lacking.append(candidate.task)
        task_type = int(
            self.standing.task_type[np.searchsorted(self.standing.task, candidate.task)]
        )
        self.waiting[job, task_type] -= 1
        self._count(job, WHOLE)
        if placed and self._counters is not None:
            self._counters.reset(job)

    def tasks_of(self, job: int) -> slice:
        """Return which of `Standing.task` are of a job."""
        return slice(*self._bounds[job : job + 2].tolist())

    def candidates(self, job: int) -> Candidates:
        """Return the candidates of a job, built on first use."""
        if job not in self._candidates:
            groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
            here = self.tasks_of(job)
            for task, task_type in zip(
                self.standing.task[here].tolist(),
                self.standing.task_type[here].tolist(),
                strict=True,
            ):
                if task_type < len(self.standing.accepts):
                    reads = self._scratch.snapshot.reads(task)
                    groups.setdefault((task_type, reads), []).append(task)
            self._candidates[job] = Candidates(self.free_gpus, groups)
        return self._candidates[job]
