"""Policies that serve jobs in an order, in storms: every job that fits ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.sim.weather import can_never_end, world_of

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.policies.ordered import INFOS
from headgate.ports import make_policy
from headgate.protocol import Command, Event, StopTask
from headgate.protocol.reasons import PolicyBroke
from headgate.state import JobState, check
from headgate.testing.storms import Storm, storm

MOST_BATCHES = 5000
IN_FLIGHT = (JobState.QUEUED, JobState.ACTIVE)


@dataclass
class Watch:
    """Counts batches and stops, and checks the state after every batch."""

    engine: Engine = field(default_factory=Engine)
    batches: int = 0
    stops: int = 0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del batch
        check(self.engine.state)
        reasons = [refusal.reason for refusal in self.engine.state.refusals]
        assert not [r for r in reasons if isinstance(r, PolicyBroke)]
        self.batches += 1
        assert self.batches < MOST_BATCHES, "it does not end"
        self.stops += sum(isinstance(each, StopTask) for each in commands)


def run_storm(weather: Storm, name: str) -> Watch:
    watch = Watch()
    parameters = {"threshold_gpu_s": 5.0} if name == "least-attained-service" else {}
    world = world_of(weather, make_policy(POLICIES, name, parameters))
    drive(watch.engine, world, observe=(watch,))
    return watch


@pytest.mark.parametrize("name", INFOS)
def test_every_job_ends_in_a_storm_or_needs_a_node_that_never_returned(name: str) -> None:
    for seed in range(60):
        engine = run_storm(storm(seed), name).engine
        states = engine.state.jobs.state.array().tolist()
        blocked = any(can_never_end(engine, r) for r, s in enumerate(states) if s in IN_FLIGHT)
        for row, at in enumerate(states):
            assert at != JobState.STOPPING, seed
            # Behind a job that can never start, others may wait without limit.
            assert at not in IN_FLIGHT or blocked or can_never_end(engine, row), seed


@pytest.mark.parametrize("name", INFOS)
def test_every_job_finishes_in_a_calm_storm(name: str) -> None:
    stops = 0
    for seed in range(60):
        watch = run_storm(storm(seed, calm=True), name)
        stops += watch.stops
        states = set(watch.engine.state.jobs.state.array().tolist())
        assert states <= {JobState.FINISHED}, seed
    assert bool(stops) == (name in {"least-attained-service", "srtf"})
