"""Tasks without a GPU (reduces, merges): placed on CPU slots near their inputs.

They compete for no GPU, so all policies that consider locality place them first, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Protocol

import numpy as np

from headgate.model import CPUS
from headgate.planning.links.job_traffic import communicates
from headgate.planning.packing.cluster import ClusterPacking
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.balancing import Balancing
from headgate.planning.place.placement import PlacedFit
from headgate.planning.place.why import being_stopped, gang_short, no_room
from headgate.planning.units.reading import read_s_by_node
from headgate.planning.units.unit import FirstFit, is_on_gpus, waiting_gang
from headgate.protocol import Refusal
from headgate.state import Scratch
from headgate.state.elastic import unit_size


class CpuOrder(Protocol):
    """Says whose turn it is among jobs with tasks that need no GPU."""

    def next(self) -> int | None:
        """Return the job (row) whose turn it is; None if all are done."""
        ...

    def took(self, job: int, cpus_milli: int) -> None:
        """Count what the job whose turn it was got."""
        ...

    def done(self, job: int) -> None:
        """Leave out the job whose turn it was."""
        ...


def place_cpu_tasks(
    scratch: Scratch, placer: Placer | None = None, order: CpuOrder | None = None
) -> tuple[Refusal, ...]:
    """Place WAITING tasks without a GPU, jobs in order of arrival, each on its cheapest node.

    With the placer by links, ties go to the node that GPU tasks to come miss least
    (`packing.cluster`); then to that with most free CPU slots, then to the first. Returns the
    refusals of jobs with tasks that fit no node. Gangs are placed by a placer, where given.
    With an `order`, jobs take turns as it says, for a task or a gang each.
    O(tasks x (nodes + replicas of a task's shards)).
    """
    if order is not None:
        return tuple(_CpuTasks(scratch, placer).in_turns(order))
    jobs = list(scratch.snapshot.waiting_cpu_jobs())
    return tuple(_CpuTasks(scratch, placer).refusals(jobs)) if jobs else ()


class _CpuTasks:
    """The nodes that are up, their racks and the sizes of shards, read once for all tasks."""

    def __init__(self, scratch: Scratch, placer: Placer | None) -> None:
        snapshot, self._placer = scratch.snapshot, placer
        self._scratch, self._snapshot = scratch, snapshot
        self._nodes = np.array(snapshot.live_nodes(), np.int64)
        self._rack = snapshot.nodes.rack.array().astype(np.int64)
        self._size_bytes = snapshot.shards.size_bytes.array()
        packs = placer is not None and placer.packs_tightly
        self._packing = ClusterPacking(scratch) if packs else None
        self._all_gpus = np.ones(len(snapshot.gpus.node), bool)
        balancer = None if placer is None else placer.balancer
        self._balancing = None if balancer is None else Balancing(scratch, balancer)

    def refusals(self, jobs: Sequence[int]) -> Iterator[Refusal]:
        """Place tasks of these jobs; yield a refusal for each job with a task that fits no node."""
        tasks = self._snapshot.tasks
        for job in jobs:
            if self._snapshot.jobs.gang[job]:
                if not is_on_gpus(self._snapshot, job):  # else the policy places it
                    yield from self._place_gang(job)
                elif not self._snapshot.jobs.waiting[job]:
                    yield Refusal(reason=being_stopped(self._scratch, job), jobs=(job,))
                continue
            for task in map(int, self._snapshot.waiting_of(job)):  # few of many may be placed
                if not tasks.gpus[task] and not self._place(task):
                    yield Refusal(reason=no_room(self._scratch, task), jobs=(job,))
                    break

    def in_turns(self, order: CpuOrder) -> Iterator[Refusal]:
        """Place tasks as jobs take turns; yield as `refusals` does."""
        snapshot, left = self._snapshot, dict[int, Iterator[int]]()
        while (job := order.next()) is not None:
            if snapshot.jobs.gang[job] and job not in left:
                before = len(self._scratch.starts)
                yield from self.refusals([job])
                started = [start.task for start in self._scratch.starts[before:]]
                order.took(job, sum(snapshot.demand(task).cpus_milli for task in started))
                left[job] = iter(())
                continue
            if job not in left:
                tasks = snapshot.waiting_of(job).tolist()
                left[job] = iter([task for task in tasks if not snapshot.tasks.gpus[task]])
            task = next(left[job], None)
            if task is not None and self._place(task):
                order.took(job, snapshot.demand(task).cpus_milli)
                continue
            order.done(job)
            if task is not None:
                yield Refusal(reason=no_room(self._scratch, task), jobs=(job,))

    def _place_gang(self, job: int) -> Iterator[Refusal]:
        """Place all tasks of a gang, or none and yield a refusal.

        Each on its cheapest node, else by first fit, with which the submission check judges it.
        """
        tasks, count = self._snapshot.waiting_of(job).tolist(), unit_size(self._snapshot, job)
        if self._placer is not None and not (
            self._placer.weighs_links and not communicates(self._snapshot.job(job))
        ):  # without links to weigh, it starts near its data
            yield from self._place_gang_by(self._placer, job)
            return
        fit = self._that_fit(job, tasks)
        if fit < count:
            yield Refusal(reason=gang_short(self._scratch, job, fit), jobs=(job,))
            return
        used: set[int] | None = set() if self._snapshot.job(job).distinct_nodes else None
        with self._scratch.trial() as trial:
            placed = sum(1 for _ in takewhile(lambda task: self._place(task, used), tasks))
            if placed == count:
                trial.keep()
                return
        unit = waiting_gang(self._snapshot, job)
        if unit is not None and FirstFit(self._scratch).place(unit):
            return
        yield Refusal(reason=gang_short(self._scratch, job, placed), jobs=(job,))

    def _that_fit(self, job: int, tasks: Sequence[int]) -> int:
        """Return how many tasks of a gang fit, if they are equal; else their number. O(nodes)."""
        demands = {self._snapshot.tasks.demand[task] for task in tasks}
        if len(demands) != 1:
            return len(tasks)
        most = 1 if self._snapshot.job(job).distinct_nodes else len(tasks)
        room = self._scratch.ledger.room(demands.pop())[self._nodes]
        return min(int(np.minimum(room, most).sum()), len(tasks))

    def _place_gang_by(self, placer: Placer, job: int) -> Iterator[Refusal]:
        """Place all tasks of a gang by a placer, or none and yield a refusal."""
        unit = waiting_gang(self._snapshot, job)
        if unit is None:
            yield Refusal(reason=being_stopped(self._scratch, job), jobs=(job,))
            return
        placing = PlacedFit(self._scratch, placer)
        if not placing.place(unit):
            reason = gang_short(self._scratch, job, placing.most(unit))
            yield Refusal(reason=reason, jobs=(job,))

    def _place(self, task: int, used: set[int] | None = None) -> bool:
        """Place a task on the cheapest node that it fits, or that a balancer picks.

        Return whether there is one. Not on one of those `used`, if given; the node is added to
        them.
        """
        demand, ledger = self._snapshot.tasks.demand[task], self._scratch.ledger
        has_room = ledger.nodes_with_room(demand)
        if used:
            has_room[sorted(used)] = False
        room = np.flatnonzero(has_room[self._nodes])
        if not len(room):
            return False
        if self._balancing is not None:
            node = self._balancing.pick(task, self._nodes[room])
            return self._scratch.place(task, node)
        free = ledger.nodes.free.kind(CPUS)[self._nodes]
        read_s = read_s_by_node(self._snapshot, task, self._rack, self._size_bytes)[
            self._nodes[room]
        ]
        cheapest = room[read_s == read_s.min()]
        if self._packing is not None and len(cheapest) > 1:
            loss, _ = self._packing.losses(demand, self._nodes[cheapest], self._all_gpus)
            cheapest = cheapest[loss == loss.min()]
        best = cheapest[free[cheapest].argmax()]
        node = int(self._nodes[best])
        if used is not None:
            used.add(node)
        return self._scratch.place(task, node)
