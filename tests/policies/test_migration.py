"""Policies that move runs to make room, in storms: all laws hold, and accounts bound the moves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.weather import ends_all, named, ride

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.planning.migration import MIGRATE, MOVED, MOVED_FOR
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan
from headgate.protocol.reasons import MovedFor
from headgate.state import Snapshot
from headgate.testing.fragmented import fragmented

SEEDS = 24
MOVING = [
    name for name, info in POLICIES.items() if MIGRATE.name in {p.name for p in info.parameters}
]
RESERVING = [name for name in MOVING if name not in ("fifo", "fair-order")]


class Audited(Policy):
    """Another policy, whose moves are compared with the reservations for which it makes them."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.most_saved_gpu_s = 0.0  # by moves of one round
        self.reservations = True

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Return the plan of the other policy."""
        plan = self._policy.decide(snapshot, rng)
        for job, spent in plan.memo.get(MOVED_FOR, {}).items():
            saved = self._saved_gpu_s(snapshot, plan, job)
            self.most_saved_gpu_s = max(self.most_saved_gpu_s, saved)
            assert spent < saved * _units(snapshot, job), "all moves for a job pay together"
        moving = {
            reason.job for reason in plan.steps.reasons.values() if isinstance(reason, MovedFor)
        }
        assert len(moving) == len(plan.memo.get(MOVED_FOR, {})) <= 1, "for one at a time, accounted"
        return plan

    def _saved_gpu_s(self, snapshot: Snapshot, plan: Plan, job: int) -> float:
        """Return the wait of the unit of a job with the first reservation, times its GPUs."""
        first = next(each for each in plan.reservations if each.job == job)
        return (first.at - snapshot.now) * len(first.gpus)


def _units(snapshot: Snapshot, job: int) -> int:
    return 1 if snapshot.jobs.gang[job] else 1 + len(snapshot.tasks_of(job))


def moving(name: str) -> Policy:
    return make_policy(POLICIES, name, {"migrate": "when-cheaper"})


@pytest.mark.parametrize("name", MOVING)
def test_storm_in_which_runs_make_room_keeps_all_laws(name: str) -> None:
    """`ride` checks the state after every batch, and that a replay gives the same state."""
    migrations = 0
    for seed in range(SEEDS):
        with named(f"storm({seed}) under {name}"):
            watch = ride(seed, moving(name), change=fragmented)
            assert ends_all(watch.engine, held_back=True)
        migrations += int(watch.engine.state.jobs.migrations.array().sum())
    assert migrations > 0


@pytest.mark.parametrize("name", RESERVING)
def test_no_moves_cost_more_than_the_waits_that_they_save(name: str) -> None:
    moved = 0.0
    for seed in range(SEEDS):
        audited = Audited(moving(name))
        with named(f"storm({seed}) under {name}"):
            state = ride(seed, audited, change=fragmented).engine.state
            lost = np.nan_to_num(state.memo(MOVED))
            for job in np.flatnonzero(lost).tolist():
                assert lost[job] <= audited.most_saved_gpu_s * len(state.tasks_of(job))
        moved += float(lost.sum())
    assert moved > 0
