"""The plan of a decision: the minimum share of each job until its deadline, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from headgate.model.speed import SpeedCurve
from headgate.planning._native import WidthPlan
from headgate.planning.deadlines.jobs import Allocation, TrainingJob

LATE_S = 1e-6
"""An end so much after a deadline is in time: times are sums of floats."""


class LeftoverRule(IntEnum):
    """Which job gets the next level of free GPUs."""

    ADDED = 0
    """Jobs without GPUs first, then the most GPU time added per GPU, as ElasticFlow is coded."""
    SAVED = 1
    """The most GPU time saved later per GPU given now."""


class SharePlan:
    """Minimum shares of jobs on equal GPUs, over time.

    The compiled `WidthPlan` does the work; this keeps the curves that it has seen, as tables. Times
    are rounded up to slots of `slot_s` seconds from a decision on, 0 for none.
    """

    def __init__(self, *, gpus: int, slot_s: float) -> None:
        """Plan on so many GPUs."""
        self._plan = WidthPlan(gpus=gpus, slot_s=slot_s)
        self._numbers: dict[tuple[SpeedCurve, int], int] = {}
        self._rows: dict[int, int] = {}  # of the last plan, by key
        self._deadline_s: Sequence[float] = ()

    def begin(
        self, jobs: Sequence[TrainingJob], now_s: float, deadline_s: Sequence[float] | None = None
    ) -> None:
        """Forget the last plan, and name the jobs of the next one, by their deadlines or others."""
        self._deadline_s = deadline_s or [job.deadline_s for job in jobs]
        self._plan.begin(
            now_s,
            np.array([self._number(job) for job in jobs], np.int64),
            np.array([job.left for job in jobs], np.float64),
            np.array(self._deadline_s, np.float64),
            np.array([self._rows.get(job.key, -1) for job in jobs], np.int64),
        )
        self._rows = {job.key: row for row, job in enumerate(jobs)}

    def fill(self, order: Sequence[int], *, widest: bool = False) -> int:
        """Plan the minimum share of each of these rows in turn; return how many end too late.

        If `widest`, each gets all that it can use of what is free at any time.
        """
        return self._plan.fill(np.array(order, np.int64), widest)

    def resume(self, order: Sequence[int]) -> int:
        """Plan for these rows what the last plan had for them; return how many end too late.

        Rows for which that is not enough get their minimum share of the rest.
        """
        return self._plan.resume(np.array(order, np.int64))

    def mark(self) -> None:
        """Note the current plan."""
        self._plan.mark()

    def undo(self) -> None:
        """Return to the plan that was noted."""
        self._plan.undo()

    def add(self, row: int, *, late: bool = False) -> bool:
        """Plan the minimum share of one more row, in time or `late` too; return whether it has one.

        The shares planned before do not change.
        """
        return self._plan.add(row, late)

    def late(self) -> set[int]:
        """Return the rows whose shares end too late."""
        ends = zip(self._plan.promises(), self._deadline_s, strict=True)
        return {row for row, (end_s, deadline_s) in enumerate(ends) if end_s > deadline_s + LATE_S}

    def change_s(self) -> float:
        """Return when a planned width changes next."""
        return self._plan.next_change()

    def spread(self, order: Sequence[int], rule: LeftoverRule) -> list[int]:
        """Give away what is free now to these rows; return them by what more would gain them."""
        found: list[int] = self._plan.spread(np.array(order, np.int64), int(rule)).tolist()
        return found

    def allocation(
        self, admitted: Sequence[bool], order: Sequence[int], change_s: float | None = None
    ) -> Allocation:
        """Return the plan as the result of a decision; it changes by itself at `change_s`."""
        plan = self._plan
        return Allocation(
            widths=plan.widths().tolist(),
            admitted=admitted,
            finish_s=plan.finishes(),
            end_s=plan.ends(),
            promised_s=plan.promises(),
            order=order,
            change_s=plan.next_change() if change_s is None else change_s,
        )

    def _number(self, job: TrainingJob) -> int:
        key = (job.curve, job.useful)
        if key not in self._numbers:
            curve = job.curve.up_to(job.useful)
            self._numbers[key] = self._plan.add_curve(
                np.array(curve.widths, np.int64), np.array(curve.rates, np.float64)
            )
        return self._numbers[key]
