"""Earliest deadline first: each job in turn takes as many of the free GPUs as it can use."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.planning.deadlines.jobs import Allocation, TrainingJob, by_deadline
from headgate.planning.deadlines.plan import SharePlan


class EarliestDeadline:
    """Gives each job, by deadline, the widest width of its curve that is free.

    The baseline of ElasticFlow's evaluation (ASPLOS 2023, section 6.1). All jobs are admitted. No
    deviation: like the authors' simulator, a job takes GPUs that make it no faster.
    """

    best_effort = False

    def __init__(self, *, gpus: int, slot_s: float = 0.0) -> None:
        """Divide so many GPUs; the widths of now do not depend on slots."""
        del slot_s
        self._gpus = gpus

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return the widths; no plan reaches beyond now."""
        order = by_deadline(jobs)
        widths, free = [0] * len(jobs), self._gpus
        for row in order:
            widths[row] = jobs[row].curve.widest(free)
            free -= widths[row]
        return Allocation.unplanned(jobs, widths, order, now_s)


class EarliestDeadlineAdmission:
    """Earliest deadline first, where an arrival is rejected if any job would then be late.

    The baseline with admission control of ElasticFlow's evaluation (section 6.3). Arrivals of one
    decision are tested one by one, as they came. Our deviation: widths are limited to useful ones.
    """

    best_effort = False

    def __init__(self, *, gpus: int, slot_s: float = 0.0) -> None:
        """Divide so many GPUs, in slots of `slot_s` seconds, 0 for none."""
        self._plan = SharePlan(gpus=gpus, slot_s=slot_s)

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return the widths of now, and the plan that they are part of."""
        plan, rank = self._plan, {row: place for place, row in enumerate(by_deadline(jobs))}
        plan.begin(jobs, now_s)
        order = [row for row in rank if jobs[row].admitted]
        arrivals = [row for row, job in enumerate(jobs) if job.admitted is None]
        for row in sorted(arrivals, key=lambda row: jobs[row].key):
            trial = sorted([*order, row], key=rank.__getitem__)
            if plan.fill(trial, widest=True) == 0:
                order = trial
        plan.fill(order, widest=True)
        given = dict.fromkeys(order)
        return plan.allocation([row in given for row in range(len(jobs))], order)
