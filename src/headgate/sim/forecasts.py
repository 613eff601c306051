"""How far forecasts come true: random questions to a simulation, and how it answers them."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.base.rng import stream
from headgate.base.units import SAME_INSTANT_S
from headgate.engine import Engine
from headgate.foresight.forecast import Forecast, forecast
from headgate.ports import Policy, capabilities
from headgate.protocol import Command, Event, PlanAdmitted
from headgate.state import JobState
from headgate.state.life import PENDING

_SOON_S = 1.0  # a wait up to it is no test of a forecast
_NEAR_S, _NEAR = 2.0, 0.2  # a start is near the forecast up to this, or this part of the wait


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A forecast for some tasks of a job, and when it was made."""

    at: float
    tasks: frozenset[int]  # ordinals
    answer: Forecast


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a question: the wait from then on, and the answer's error."""

    wait_s: float
    error_s: float | None  # None without an answer
    covered: bool
    width_s: float  # of the interval, `inf` if it is open
    same_node: bool

    @property
    def near(self) -> bool:
        """Whether the point forecast was near the start."""
        return self.error_s is not None and self.error_s <= max(_NEAR_S, _NEAR * self.wait_s)


class ForecastCheck:
    """Asks after a share of the rounds when a random pending job starts next, and notes the start.

    A job is pending that has a task which has not begun. What it asks changes nothing.
    """

    def __init__(self, policy: Policy, *, share: float, seed: int) -> None:
        """Ask the policy of a simulation after each round with the probability `share`, seeded."""
        self._policy = policy if capabilities(policy).warm_copy else copy.deepcopy(policy)
        self._share = share
        self._rng = stream(seed, "forecasts")
        self._open: dict[str, list[_Question]] = {}  # by job
        self._outcomes: list[_Outcome] = []

    def observe(self, engine: Engine, batch: Sequence[Event], commands: Sequence[Command]) -> None:
        """Take note of the starts of a batch of events, and ask if it contains a round."""
        del commands
        for event in batch:
            if isinstance(event, PlanAdmitted):
                for run, node, _ in event.starts:
                    if run.job in self._open:
                        self._settle(run.job, run.ordinal, node, event.at)
                if self._rng.random() < self._share:
                    self._ask(engine, event.at)

    def _settle(self, job: str, ordinal: int, node: str, at: float) -> None:
        left = []
        for question in self._open.pop(job):
            if ordinal not in question.tasks:
                left.append(question)
                continue
            answer = question.answer
            earliest = math.inf if answer.earliest is None else answer.earliest
            latest = math.inf if answer.latest is None else answer.latest
            outcome = _Outcome(
                wait_s=at - question.at,
                error_s=None if answer.at is None else abs(answer.at - at),
                covered=earliest - SAME_INSTANT_S <= at <= latest + SAME_INSTANT_S,
                width_s=max(latest - earliest, 0.0) if earliest < math.inf else math.inf,
                same_node=answer.node == node,
            )
            self._outcomes.append(outcome)
        if left:
            self._open[job] = left

    def _ask(self, engine: Engine, now: float) -> None:
        snapshot = engine.snapshot()
        tasks = np.flatnonzero(np.isin(snapshot.tasks.state.array(), PENDING))
        job_of = snapshot.tasks.job.take(tasks)
        ending = snapshot.jobs.state.take(job_of) == JobState.STOPPING
        tasks, job_of = tasks[~ending], job_of[~ending]
        jobs = np.unique(job_of)
        if not len(jobs):
            return
        job = int(jobs[self._rng.randrange(len(jobs))])
        rows = tasks[job_of == job].tolist()
        question = _Question(
            at=now,
            tasks=frozenset(snapshot.ordinal(row) for row in rows),
            answer=forecast(snapshot, self._policy, rows, now),
        )
        self._open.setdefault(snapshot.job(job).id, []).append(question)

    def figures(self) -> dict[str, Any]:
        """Return how the answers came out, of the jobs that have started since.

        Shares and errors are of those that waited for more than 1 s; all but `within`, of which
        answers that are missing are a part, are of those with an answer. None where there are none,
        or the median interval is open.
        """
        waited = [each for each in self._outcomes if each.wait_s > _SOON_S]
        answered = [each for each in waited if each.error_s is not None]
        errors_s = [each.error_s for each in answered if each.error_s is not None]
        width_s = statistics.median([each.width_s for each in answered]) if answered else math.inf
        return {
            "asked": len(self._outcomes),
            "answered": sum(each.error_s is not None for each in self._outcomes),
            "coverage_80": _share([each.covered for each in answered]),
            "waits_over_1_s": len(waited),
            "within": _share([each.near for each in waited]),
            "median_width_s": width_s if math.isfinite(width_s) else None,
            "median_abs_error_s": statistics.median(errors_s) if errors_s else None,
            "same_node": _share([each.same_node for each in answered]),
        }


def _share(of: Sequence[bool]) -> float | None:
    return math.fsum(of) / len(of) if of else None
