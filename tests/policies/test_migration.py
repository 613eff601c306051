"""Policies that move runs to make room, in storms: all laws hold, and accounts bound the moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.sim.weather import ends_all, named, ride

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.planning.moves.migration import MOVED, MOVED_FOR
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan
from headgate.protocol.reasons import MovedFor
from headgate.state import Snapshot
from headgate.testing.fragmented import fragmented

SEEDS = (3, 12, 20, 23, 39)
"""Storms in which runs move under some policy."""
MOVING = [name for name, info in POLICIES.items() if "migrate" in {p.name for p in info.parameters}]
WITHOUT_RESERVATIONS = ("fifo", "fair-order")


class Audited(Policy):
    """Another policy, whose moves are compared with the reservations for which it makes them."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.most_saved_gpu_s = 0.0  # by moves of one round

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
        """Return the wait of a job's unit with the first reservation, times its GPUs; else inf."""
        if self.name in WITHOUT_RESERVATIONS:
            return math.inf
        first = next(each for each in plan.reservations if each.job == job)
        return (first.at - snapshot.now) * len(first.gpus)


def _units(snapshot: Snapshot, job: int) -> int:
    return 1 if snapshot.jobs.gang[job] else 1 + len(snapshot.tasks_of(job))


def moving(name: str) -> Policy:
    return make_policy(POLICIES, name, {"migrate": "when-cheaper"})


@pytest.mark.parametrize("name", MOVING)
def test_storm_in_which_runs_make_room_keeps_all_laws_and_moves_pay(name: str) -> None:
    """`ride` checks the state after every batch, and that a replay gives the same state."""
    migrations = 0
    for seed in SEEDS:
        audited = Audited(moving(name))
        with named(f"storm({seed}) under {name}"):
            state = (watch := ride(seed, audited, change=fragmented)).engine.state
            assert ends_all(watch.engine, held_back=True)
            lost = np.nan_to_num(state.memo(MOVED))
            for job in np.flatnonzero(lost).tolist():
                most = audited.most_saved_gpu_s * len(state.tasks_of(job))
                assert lost[job] <= most, "a run loses no more than one of its moves saves"
        migrations += int(state.jobs.migrations.array().sum())
    assert migrations > 0
