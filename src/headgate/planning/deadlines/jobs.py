"""Elastic training jobs with deadlines, and what an allocator decides about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.model.speed import SpeedCurve


@dataclass(slots=True, kw_only=True, eq=False)
class TrainingJob:
    """An unfinished job as an allocator sees it; times are seconds on one clock.

    `key` names it and ascends in order of arrival. `left` is its remaining work (units of its
    curve), above 0. `useful` is the widest width worth having, `requested` the one that the user
    requested. `admitted` is None before the first decision about it, and never changes from True.
    """

    key: int
    curve: SpeedCurve
    left: float
    deadline_s: float
    useful: int
    requested: int = 1
    width: int = 0
    attained_gpu_s: float = 0.0
    admitted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a decision gives: a value for each job, in the order of the jobs given.

    `widths` are numbers of GPUs, 0 for a job that waits. `finish_s` is when a job is planned to be
    done if nothing else happens, infinite without a plan, `end_s` the same rounded up to whole
    slots, and `promised_s` when it would be done with its minimum share. `change_s` is when the
    plan changes a width next, infinite for never. `order` names rows in the order in which GPUs are
    chosen for jobs of equal width.
    """

    widths: Sequence[int]
    admitted: Sequence[bool]
    finish_s: Sequence[float]
    end_s: Sequence[float]
    promised_s: Sequence[float]
    order: Sequence[int]
    change_s: float = math.inf

    @classmethod
    def unplanned(
        cls,
        jobs: Sequence[TrainingJob],
        widths: Sequence[int],
        order: Sequence[int],
        now_s: float,
        change_s: float = math.inf,
    ) -> Allocation:
        """Return widths that jobs, all admitted, have as long as they run."""
        finish_s = [
            now_s + job.left / job.curve.rate(width) if width else math.inf
            for job, width in zip(jobs, widths, strict=True)
        ]
        return cls(
            widths=widths,
            admitted=[True] * len(jobs),
            finish_s=finish_s,
            end_s=finish_s,
            promised_s=finish_s,
            order=order,
            change_s=change_s,
        )


class Allocator(Protocol):
    """A rule that divides equal GPUs among elastic jobs; it has no clock and draws nothing."""

    @property
    def best_effort(self) -> bool:
        """Whether jobs that were not admitted may get GPUs later; if not they are gone."""
        ...

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return who gets how many GPUs from now on, and which arrivals are admitted."""
        ...


def by_deadline(jobs: Sequence[TrainingJob]) -> list[int]:
    """Return the rows of jobs by deadline, equal ones in order of arrival."""
    return sorted(range(len(jobs)), key=lambda row: (jobs[row].deadline_s, jobs[row].key))
