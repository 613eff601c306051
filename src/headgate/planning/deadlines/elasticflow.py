"""ElasticFlow: minimum satisfactory shares, admission, and what is left by marginal return."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.planning.deadlines.jobs import Allocation, TrainingJob, by_deadline
from headgate.planning.deadlines.plan import LeftoverRule, SharePlan


class ElasticFlow:
    """Admits what can end in time beside all that was admitted, and shares out the rest.

    Gu et al., ASPLOS 2023, sections 4.1 and 4.2, as the authors' simulator has it. Each job by
    deadline gets the least width, doubled from 1, that is enough between now and its deadline; it
    gets it as late as possible, and one level less before. Arrivals of one decision are admitted
    together or not at all. What is free now goes one level at a time, jobs without GPUs first, then
    to the job of which the plan's GPU time grows most per GPU. Deviation of that code from the
    paper, kept here: the paper gives them where GPU time shrinks most. Our deviation: GPU time is
    exact, where the code counts the last stretch of a plan until the next change of the free GPUs.
    """

    best_effort = False

    def __init__(self, *, gpus: int, slot_s: float = 0.0) -> None:
        """Divide so many GPUs, in slots of `slot_s` seconds, 0 for none."""
        self._plan = SharePlan(gpus=gpus, slot_s=slot_s)

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return the widths of now, and the plan that they are part of."""
        plan = self._plan
        plan.begin(jobs, now_s)
        rows = by_deadline(jobs)
        asked = [row for row in rows if jobs[row].admitted is not False]
        order = [row for row in asked if jobs[row].admitted]
        refused = plan.fill(asked) > 0
        if refused and len(order) < len(asked):
            plan.fill(order)
        elif not refused:
            order = asked
        order = plan.spread(order, LeftoverRule.ADDED)
        given = [False] * len(jobs)
        for row in order:
            given[row] = True
        return plan.allocation(given, order)
