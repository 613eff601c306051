"""First in, first out: strict order of arrival, gangs whole, no locality.

The first waiting job blocks all later ones until all its tasks have started. Exception: jobs of a
queue that is at its `max_gpus` are skipped, so that a ceiling does not block other queues; likewise
those of a user who holds all that a queue allows each user. Nodes
are filled in the order in which they joined (first fit), smallest sufficient GPUs first. Tasks
without GPUs take their turns like all others.
"""

from __future__ import annotations

import math

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.planning.moves.migration import WHEN_CHEAPER, Migration, defragment
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.limits import behind_head
from headgate.planning.place.placement import fit
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
from headgate.planning.place.why import WhyWaits, being_stopped, gang_short
from headgate.planning.times.estimates import Estimates
from headgate.planning.units.unit import Unit, units_in_order
from headgate.protocol import Plan, Reason, Refusal
from headgate.protocol.reasons import UNDECIDED
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
        self._snapshot, self._placer = snapshot, placer
        self._scratch = Scratch(snapshot)
        self._serving = Serving(self._scratch, self._end_at, placer)
        self._fit = fit(self._scratch, placer)
        self._refusals: list[Refusal] = []
        self._head: Unit | None = None  # the first that does not fit
        self._full: dict[int, list[int]] = {}  # by row at its ceiling: the jobs that wait for it

    def _end_at(self, tasks: Ints) -> Floats:
        return Estimates(self._snapshot).end_at(tasks)  # few rounds ask, for moves

    def run(self, *, migrate: bool) -> Plan:
        self._serving.serve(self._turns(), fit=self._fit)
        for _, (head, *behind) in sorted(self._full.items()):
            if behind:
                self._refuse(behind_head(self._snapshot.job(head).id), *behind)
        moved = self._moves() if migrate else Migration()
        return Plan(
            steps=self._scratch.steps() + moved.steps,
            memo=moved.memo,
            node_memo=self._scratch.node_memos(),
            refusals=tuple(self._refusals),
        )

    def _turns(self) -> Turns:
        """Yield units in order of arrival until one does not fit."""
        rows = self._scratch.quotas.rows
        for job in self._snapshot.waiting_jobs():
            full = [row for row in rows.lines_of(job) if row in self._full]
            if full:
                self._full[full[0]].append(job)
                continue
            for unit in units_in_order(self._snapshot, job):
                answer = Answer.WAITS if unit is None else (yield Turn(unit))
                if answer is Answer.FULL and unit is not None:
                    self._full[self._serving.ceilings.line_of(unit)] = [job]
                    self._refuse(self._why(job, unit), job)
                    break
                if answer is Answer.WAITS:
                    self._head = unit
                    self._refuse(self._why(job, unit), job)
                    self._refuse(behind_head(self._snapshot.job(job).id))
                    return

    def _refuse(self, reason: Reason, *jobs: int) -> None:
        """Refuse jobs (rows), or all others that wait if none is named."""
        self._refusals.append(Refusal(reason=reason, jobs=jobs))

    def _why(self, job: int, unit: Unit | None) -> Reason:
        """Return why a unit of a job does not start, None for a gang that is being stopped."""
        if unit is None:
            return being_stopped(self._scratch, job)
        reason = WhyWaits(self._scratch, placer=self._placer).reason(unit)
        if reason is not None or len(unit.tasks) == 1:
            return reason or UNDECIDED
        return gang_short(self._scratch, job, self._fit.most(unit))

    def _moves(self) -> Migration:
        """Return the moves that make room for the unit that blocks all others, where they pay."""
        if self._head is None or not self._head.on_gpus(self._snapshot):
            return Migration()
        first = self._serving.placing.earliest(self._head, math.inf)
        wait_s = math.inf if first is None else first.at - self._snapshot.now
        return defragment(self._scratch, self._head, wait_s=wait_s)
