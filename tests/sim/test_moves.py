"""Moves in the simulated world: what they cost, and storms in which runs move at random."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.weather import LateStops, ends_all, named, ride

from headgate.app import POLICIES
from headgate.ports import make_policy
from headgate.protocol import StopKind
from headgate.sim.world import SimulatedWorld
from headgate.testing.random_moves import RandomMoves

INNER = ("fifo", "headgate", "fsp", "gsp", "least-attained-service", "conservative-backfill")
SEEDS = 8


@pytest.mark.parametrize("kind", [SimulatedWorld, LateStops], ids=["immediate", "late"])
@pytest.mark.parametrize("name", INNER)
def test_storm_in_which_runs_move_at_random_keeps_all_laws(
    name: str, kind: type[SimulatedWorld]
) -> None:
    """`ride` checks the state after every batch, and that a replay gives the same state."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        with named(f"storm({seed}) under {name}"):
            policy = RandomMoves(make_policy(POLICIES, name, {}))
            watch = ride(seed, policy, limits=seed % 2 == 1, kind=kind)
            assert ends_all(watch.engine, held_back=True)
        state = watch.engine.state
        moved = {
            (task, stop.attempt)
            for task, stops in state.stops.items()
            for stop in stops
            if stop.cause.kind is StopKind.MOVED
        }
        seen["moved"] += len(moved)
        seen["migrated"] += int(state.jobs.migrations.array().sum())
    assert 0 < seen["migrated"] <= seen["moved"]
    assert name != "fifo" or kind is SimulatedWorld or seen["migrated"] < seen["moved"]
