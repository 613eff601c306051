"""The law suite of policies, for each policy that serves jobs in an order."""

from __future__ import annotations

from headgate.app import POLICIES
from headgate.ports import Policy, make_policy
from headgate.testing.policy_laws import PolicyLaws


class TestEasyBackfill(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for the reservation

    def make(self) -> Policy:
        return make_policy(POLICIES, "easy-backfill")


class TestConservativeBackfill(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for reservations

    def make(self) -> Policy:
        return make_policy(POLICIES, "conservative-backfill")


class TestLeastAttainedService(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for a unit for which runs are stopped
    preempts_whole_jobs = True

    def make(self) -> Policy:
        return make_policy(POLICIES, "least-attained-service", {"threshold_gpu_s": 3.0})


class TestShortestRemaining(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for a unit for which runs are stopped
    preempts_whole_jobs = True

    def make(self) -> Policy:
        return make_policy(POLICIES, "srtf")


class TestFairOrder(PolicyLaws):
    idles_by_choice = True  # the first job that does not fit blocks the others

    def make(self) -> Policy:
        return make_policy(POLICIES, "fair-order")


class TestFairEasyBackfill(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for the reservation

    def make(self) -> Policy:
        return make_policy(POLICIES, "fair-easy-backfill")


class TestFairConservativeBackfill(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for reservations

    def make(self) -> Policy:
        return make_policy(POLICIES, "fair-conservative-backfill")


def test_every_policy_that_serves_an_order_is_under_the_laws() -> None:
    """Each combination of parts has a name (`test_named_by_parts`), and each name a class here."""
    classes = [each for each in PolicyLaws.__subclasses__() if each.__module__ == __name__]
    assert {each().make().name for each in classes} == {
        name for name, info in POLICIES.items() if info.parts and name != "fifo"
    }
