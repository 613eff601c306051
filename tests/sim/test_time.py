"""Time never decreases, under any policy: every batch is one instant, none before the last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.sim.weather import world_of

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.ports.policy import make_policy
from headgate.protocol import Command, Event
from headgate.testing.storms import storm

# In 400003 a slow plan of `headgate` requests a round at a time that has passed.
SEEDS = (*range(25), 400003)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_time_never_decreases_in_a_storm(name: str) -> None:
    policy = make_policy(POLICIES, name)
    for seed in SEEDS:
        weather = storm(seed, accepts=lambda job: policy.refuses(job) is None)
        world = world_of(weather, policy)
        times: list[float] = []

        def see(
            batch: tuple[Event, ...],
            commands: Sequence[Command],
            seed: int = seed,
            times: list[float] = times,
        ) -> None:
            del commands
            assert {event.at for event in batch} == {batch[0].at}, (name, seed)
            times.append(batch[0].at)

        drive(Engine(), world, observe=(see,))
        assert times == sorted(times), (name, seed)
