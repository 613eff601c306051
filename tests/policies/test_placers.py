"""Placers under the law suite and in storms, under every kind of order."""

from __future__ import annotations

import pytest
from tests.policies.test_storms import HELD_BACK
from tests.sim.weather import ends_all, named, ride

from headgate.app import POLICIES
from headgate.planning.placers.setting import PLACES
from headgate.ports import Policy, make_policy
from headgate.testing.policy_laws import PolicyLaws

SETTINGS = [
    {"place": "best-fit-subtree"},
    {"place": "closed-minimum", "otherwise": "wait"},
    {"place": "closed-minimum", "otherwise": "enlarge", "reserve": "needed"},
    {"place": "closed-minimum"},
    {"place": "sequential"},
    {"place": "block"},
    {"place": "cyclic"},
    {"place": "block-cyclic", "block_size": 3.0},
]


class Placing(PolicyLaws):
    """The laws for one policy and placer."""

    worlds = 60
    idles_by_choice = True  # a job may wait for a closed set, or hold up later ones
    policy = ""
    setting: dict[str, float | str]

    def make(self) -> Policy:
        return make_policy(POLICIES, self.policy, self.setting)


class TestFifoClosedMinimum(Placing):
    policy, setting = "fifo", SETTINGS[1]


class TestFifoCyclic(Placing):
    policy, setting = "fifo", SETTINGS[6]


class TestEasyBackfillBestFit(Placing):
    policy, setting = "easy-backfill", SETTINGS[0]


class TestConservativeBackfillClosedMinimum(Placing):
    policy, setting = "conservative-backfill", SETTINGS[1]


class TestLeastAttainedServiceClosedMinimum(Placing):
    preempts_whole_jobs = True
    policy, setting = "least-attained-service", SETTINGS[2]


class TestHeadgateClosedMinimum(Placing):
    policy, setting = "headgate", SETTINGS[1]


class TestHeadgateBlockCyclic(Placing):
    policy, setting = "headgate", SETTINGS[7]


class TestFlowSharingBestFit(Placing):
    policy, setting = "fs", SETTINGS[0]


del Placing  # it is no policy by itself


@pytest.mark.parametrize(
    "setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting.values()))
)
@pytest.mark.parametrize(
    "order", ["fifo", "conservative-backfill", "least-attained-service", "headgate"]
)
def test_every_job_ends_in_a_storm(order: str, setting: dict[str, float | str]) -> None:
    for seed in range(3):
        policy = make_policy(POLICIES, order, setting)
        with named(f"storm({seed}) under {order} {setting}"):
            watch = ride(seed, policy, calm=seed % 3 == 2, limits=seed % 2 == 1)
            assert ends_all(watch.engine, held_back=order in HELD_BACK)


def test_every_placer_is_tried() -> None:
    assert {setting["place"] for setting in SETTINGS} == {*PLACES} - {"first-fit"}
