"""Moves in the simulated world: what they cost, and storms in which runs move at random."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.sim.weather import LateStops, ends_all, named, ride

from headgate.app import POLICIES
from headgate.model import RunId, Task
from headgate.ports import make_policy
from headgate.protocol import Admitted, Moved, MoveRequested
from headgate.sim.world import SimulatedWorld
from headgate.testing.random_moves import RandomMoves

Stage = Any  # of conftest.py
INNER = ("fifo", "headgate", "fsp", "gsp", "least-attained-service", "conservative-backfill")
SEEDS = (*range(cases(5)), 6, 8, 16)  # in the last ones, runs move in most storms


@pytest.mark.parametrize("kind", [SimulatedWorld, LateStops], ids=["immediate", "late"])
@pytest.mark.parametrize("name", INNER)
def test_storm_in_which_runs_move_at_random_keeps_all_laws(
    name: str, kind: type[SimulatedWorld]
) -> None:
    """`ride` checks the state after every batch, and that a replay gives the same state."""
    migrations = 0
    for seed in SEEDS:
        with named(f"storm({seed}) under {name}"):
            policy = RandomMoves(make_policy(POLICIES, name, {}))
            watch = ride(seed, policy, limits=seed % 2 == 1, kind=kind)
            assert ends_all(watch.engine, held_back=True)
        migrations += int(watch.engine.state.jobs.migrations.array().sum())
    assert migrations > 0


def test_moved_run_loses_what_it_has_not_saved_and_takes_time_to_resume(stage: Stage) -> None:
    move = Moved((Admitted(RunId("j", 0, 1), "a2", (0,)),), "requested by grace")
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.replica("s", 200, "a1"), stage.replica("s", 200, "a2"),
        stage.job("j", Task(reads=("s",), compute_s=30, checkpoint_s=10)),
        MoveRequested(at=25.0, move=move),
        resume_s=4.0,
    )  # fmt: skip
    # it read for 2 s and computed for 23, of which 20 are saved
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (25.0, "stops", "j/0@a1"), (25.0, "starts", "j/0@a2"),
        (25 + 4 + 2 + 10, "ends", "j/0@a2"),
    ]  # fmt: skip
    jobs = seen.engine.state.jobs
    assert (jobs.lost_gpu_s[0], jobs.migrations[0]) == (2 + 3, 1)
