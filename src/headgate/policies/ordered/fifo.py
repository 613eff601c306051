"""First in, first out: strict order of arrival, gangs whole, no locality.

The first waiting job blocks all later ones until all its tasks have started. Exception: jobs of a
queue that is at its `max_gpus` are skipped, so that a ceiling does not block other queues. Nodes
are filled in the order in which they joined (first fit), smallest sufficient GPUs first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from headgate.base.rng import Random
from headgate.model import WHOLE
from headgate.planning.moves.migration import WHEN_CHEAPER, Migration, defragment
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.limits import behind_head, queue_limit
from headgate.planning.place.placement import Fit, fit, placing
from headgate.planning.place.why import WhyWaits, being_stopped, gang_short
from headgate.planning.times.estimates import Estimates
from headgate.planning.units.unit import Unit
from headgate.protocol import Plan, Reason, Refusal
from headgate.protocol.reasons import UNDECIDED, QueueLimit
from headgate.state import Scratch, Snapshot


class FirstInFirstOut(PlacingPolicy):
    """The policy `fifo`."""

    name = "fifo"

    def __init__(self, *, migrate: str = "never") -> None:
        self.migrates = migrate == WHEN_CHEAPER

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Start jobs in order of arrival until one does not fit; O(tasks placed + nodes)."""
        del rng
        return _Round(snapshot, self.placer).run(migrate=self.migrates)


class _Round:
    """One round: one pass over the waiting jobs in order of arrival."""

    def __init__(self, snapshot: Snapshot, placer: Placer | None) -> None:
        self.snapshot = snapshot
        self.scratch = Scratch(snapshot)
        self.placer = placer
        self._fit: Fit | None = None
        self.refusals: list[Refusal] = []
        self._head: Unit | None = None  # the first that does not fit
        self.full_queues: dict[int, list[int]] = {}
        # By row of a demand: nodes still to be tried, and the current one. GPUs are only taken
        # during a round, so a node that lacks room is not tried again.
        self.candidates: dict[int, tuple[Iterator[int], list[int]]] = {}

    def run(self, *, migrate: bool) -> Plan:
        for job in self.snapshot.waiting_jobs():
            queue = self.snapshot.jobs.queue[job]
            if queue in self.full_queues:
                self.full_queues[queue].append(job)
                continue
            reason = self._start(job)
            if isinstance(reason, QueueLimit):
                self.full_queues[queue] = [job]
                self.refusals.append(Refusal(reason=reason, jobs=(job,)))
            elif reason is not None:
                self.refusals.append(Refusal(reason=reason, jobs=(job,)))
                self.refusals.append(Refusal(reason=behind_head(self.snapshot.job(job).id)))
                break
        for _, (head, *behind) in sorted(self.full_queues.items()):
            if behind:
                reason = behind_head(self.snapshot.job(head).id)
                self.refusals.append(Refusal(reason=reason, jobs=tuple(behind)))
        moved = self._moves() if migrate else Migration()
        return Plan(
            steps=self.scratch.steps() + moved.steps,
            memo=moved.memo,
            node_memo=self.scratch.node_memos(),
            refusals=tuple(self.refusals),
        )

    def _moves(self) -> Migration:
        """Return the moves that make room for the unit that blocks all others, where they pay."""
        if self._head is None or not self._head.gpus_milli(self.snapshot):
            return Migration()
        estimates = Estimates(self.snapshot)
        units = placing(self.scratch, estimates.end_at, self.placer)
        first = units.earliest(self._head, math.inf)
        wait_s = math.inf if first is None else first.at - self.snapshot.now
        return defragment(self.scratch, self._head, wait_s=wait_s)

    def _start(self, job: int) -> Reason | None:
        """Place a job's waiting tasks in order; return why the first one left waits, or None."""
        tasks: list[int] = self.snapshot.waiting_of(job).tolist()
        if not self.snapshot.jobs.gang[job]:
            return next((r for t in tasks if (r := self._place(t)) is not None), None)
        if len(tasks) < self.snapshot.jobs.task_count[job]:
            return being_stopped(self.scratch, job)
        limit = self._queue_limit(job, sum(self.snapshot.demand(t).gpus_milli for t in tasks))
        if limit is not None:
            return limit
        unit, placing = self._unit(tasks), self._placing()
        if placing.place(unit):
            return None
        self._head = unit
        return self._gang_short(unit, placing.most(unit))

    def _placing(self) -> Fit:
        """Return what places units; first fit is new for each unit, as it remembers what failed."""
        if self._fit is None or self.placer is None:
            self._fit = fit(self.scratch, self.placer)
        return self._fit

    def _place(self, task: int) -> Reason | None:
        tasks = self.snapshot.tasks
        row, demand = tasks.demand[task], self.snapshot.demand(task)
        limit = self._queue_limit(tasks.job[task], demand.gpus_milli)
        if limit is not None:
            return limit
        unit = self._unit([task])
        if self.placer is not None and (demand.gpus or self.placer.balancer is not None):
            if self._placing().place(unit):
                return None
            if demand.gpus:
                self._head = unit
                return WhyWaits(self.scratch, placer=self.placer).reason(unit) or UNDECIDED
        if row not in self.candidates:
            least = 0 if demand.in_part else demand.gpus
            free = self.snapshot.nodes.free_gpus.array()
            self.candidates[row] = (iter((free >= least).nonzero()[0].tolist()), [])
        rest, current = self.candidates[row]
        while True:
            if current and self.scratch.place(task, current[0]):
                return None
            current.clear()
            node = next(rest, None)
            if node is None:
                self._head = unit
                reason = WhyWaits(self.scratch).reason(unit)
                assert reason is not None, "one task fits by counting where it fits a node"
                return reason
            current.append(node)

    def _queue_limit(self, job: int, gpus_milli: int) -> QueueLimit | None:
        row = self.snapshot.jobs.queue[job]
        queue, used = self.snapshot.queue(row), self.scratch.used_milli(row)
        if queue.max_gpus is None or used + gpus_milli <= WHOLE * queue.max_gpus:
            return None
        return queue_limit(self.scratch, row)

    def _unit(self, tasks: list[int]) -> Unit:
        """Return tasks of a job that start together."""
        job = self.snapshot.tasks.job[tasks[0]]
        return Unit(
            job=job,
            tasks=tuple(tasks),
            demands=tuple(self.snapshot.tasks.demand.take(np.array(tasks)).tolist()),
            distinct_nodes=self.snapshot.job(job).distinct_nodes,
        )

    def _gang_short(self, unit: Unit, placed: int) -> Reason:
        """Return why a gang does not start of which first fit places some tasks."""
        reason = WhyWaits(self.scratch, placer=self.placer).reason(unit)
        return reason or gang_short(self.scratch, unit.job, placed)
