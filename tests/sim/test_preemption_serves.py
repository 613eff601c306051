"""Runs are stopped for a job only if it then starts: no run is lost for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from tests.cases import cases
from tests.sim.crowded import crowded_world

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.ports import make_policy
from headgate.protocol import (
    Command,
    Event,
    PlanAdmitted,
)


class Watch:
    """What became of each stop: by the end of its instant, a task of its job has started.

    Or one of the unit that is hardened, or of a job whose run was stopped in the same plan, and
    which precedes it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.results: Counter[str] = Counter()
        self.in_vain: list[tuple[float, str]] = []
        self._at = -1.0
        self._for: set[str] = set()
        self._begun: set[str] = set()
        self._others: set[str] = set()

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        for event in batch:
            if event.at != self._at:
                self.end()
                self._at = event.at
            if isinstance(event, PlanAdmitted):
                self._see(event)

    def _see(self, plan: PlanAdmitted) -> None:
        self._begun |= {start.run.job for start in plan.starts}
        served = self._for & self._begun
        self.results["served"] += len(served)
        self._for -= served
        if plan.stops:
            self._begun.clear()
        for stop in plan.stops:
            assert stop.job, "each stop says for whom"
            self._for.add(stop.job)
            self._others |= {run.job for run in stop.runs}
        if plan.hardened is not None:
            self._others.add(plan.hardened.job)

    def end(self) -> None:
        """Count what is left of an instant."""
        for job in sorted(self._for):
            if self._begun & self._others:
                self.results["others"] += 1
            else:
                self.in_vain.append((self._at, job))
        for each in (self._for, self._begun, self._others):
            each.clear()


@pytest.mark.parametrize(
    ("policy", "least"),
    [("headgate", 10), ("srtf", 100), ("least-attained-service", 80), ("gsp", 15)],
)
def test_a_run_is_stopped_only_for_a_job_that_starts_then(policy: str, least: int) -> None:
    results: Counter[str] = Counter()
    for seed in range(cases(40)):
        engine = Engine()
        world = crowded_world(seed, make_policy(POLICIES, policy))
        watch = Watch(engine)
        drive(engine, world, observe=(watch,))
        watch.end()
        assert not watch.in_vain, f"seed {seed}: nothing starts for {watch.in_vain}"
        results += watch.results
    assert results["served"] >= least
    assert results["others"] <= 0.05 * results["served"]
