"""`new-capacity`: each queue in order of arrival within its capacity; CPU jobs borrow beyond it.

The capacity of a queue is what it is guaranteed, of the kinds of which that is any. A unit starts
if what its queue's jobs need at least, with it, stays within that (the logical state: surplus of
elastic jobs is not counted, `planning.rounds.surplus`). Beyond it, units without GPUs take what
other queues leave idle, which these take back (`planning.rounds.take_back`); units with GPUs wait
for their queue. Within a queue, the first unit that does not start blocks all later ones.

Source: Hu, Zhang, Peng, Chen, Qi, "Construction and optimisation of heterogeneous distributed deep
learning platforms", 2023, NewCapacity (spec 5, section 5). Deviations: a job may have GPUs in any
queue, and borrow of any; a unit with GPUs that is above its queue's capacity by itself borrows as
well, since it would never start.
"""

from __future__ import annotations

import numpy as np

from headgate.base.rng import Random
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.limits import behind_head, beyond_capacity, queue_limit
from headgate.planning.place.placement import fit, never
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
from headgate.planning.place.why import WhyWaits, being_stopped
from headgate.planning.units.unit import Unit, units_in_order
from headgate.protocol import Plan, Reason, Refusal
from headgate.protocol.reasons import UNDECIDED
from headgate.state import Scratch, Snapshot
from headgate.state.quotas import Amounts, Quotas


class NewCapacity(PlacingPolicy):
    """The policy `new-capacity`."""

    name = "new-capacity"
    equal_surplus = True

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Start what each queue's capacity allows, in order of arrival; O(tasks placed x nodes)."""
        del rng
        return _Round(snapshot.unexplained(), self).run()


class _Round:
    """One round: one pass over the waiting jobs in order of arrival."""

    def __init__(self, snapshot: Snapshot, policy: NewCapacity) -> None:
        self._snapshot, self._placer = snapshot, policy.placer
        self._scratch = Scratch(snapshot)
        self._serving = Serving(self._scratch, never, policy.placer)
        self._quotas = Quotas(snapshot)
        self._idle = self._quotas.without_use()
        # By row of quotas, of a queue or a user in it: the jobs from the first that waits.
        self._blocked: dict[int, list[int]] = {}
        self._refusals: list[Refusal] = []

    def run(self) -> Plan:
        self._serving.serve(self._turns(), fit=fit(self._scratch, self._placer))
        for head, *behind in self._blocked.values():
            if behind:
                reason = behind_head(self._snapshot.job(head).id)
                self._refusals.append(Refusal(reason=reason, jobs=(*behind,)))
        return Plan(
            steps=self._scratch.steps(),
            node_memo=self._scratch.node_memos(),
            refusals=tuple(self._refusals),
        )

    def _turns(self) -> Turns:
        jobs = np.array([*self._snapshot.waiting_jobs()], np.int64)
        order = jobs[np.argsort(-self._snapshot.jobs.priority.take(jobs), kind="stable")]
        for job in order.tolist():
            lines = self._quotas.rows.lines_of(job)
            line = next((line for line in lines if line in self._blocked), None)
            if line is not None:
                self._blocked[line].append(job)
                continue
            for unit in units_in_order(self._snapshot, job):
                reason: Reason | None = None
                line = lines[0]
                if unit is None:
                    reason = being_stopped(self._scratch, job)
                else:
                    amounts = unit.amounts(self._snapshot)
                    reason = self._beyond(unit, amounts)
                    if reason is None:
                        answer = yield Turn(unit)
                        if answer is Answer.STARTED:
                            self._quotas.add(self._quotas.row_of(job), amounts)
                            continue
                        reason = self._why(unit, amounts, full=answer is Answer.FULL)
                        if answer is Answer.FULL:  # of a user's limit, others do not wait
                            line = self._serving.ceilings.line_of(unit)
                self._blocked[line] = [job]
                self._refusals.append(Refusal(reason=reason or UNDECIDED, jobs=(job,)))
                break

    def _beyond(self, unit: Unit, amounts: Amounts) -> Reason | None:
        """Return why a unit waits for the capacity of its queue; None if it may start."""
        if not unit.on_gpus(self._snapshot):
            return None
        row = self._quotas.row_of(unit.job)
        found = self._quotas.beyond_guarantee(row, amounts)
        if found is None or self._idle.beyond_guarantee(row, amounts) is not None:
            return None
        return beyond_capacity(self._snapshot, self._quotas, found)

    def _why(self, unit: Unit, amounts: Amounts, *, full: bool) -> Reason | None:
        if full:
            row = self._quotas.row_of(unit.job)
            return queue_limit(self._snapshot, self._quotas, row, amounts)
        return WhyWaits(self._scratch, placer=self._placer).reason(unit)
