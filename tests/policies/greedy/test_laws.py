"""The law suite of policies, for the greedy ones; and gsd with thresholds that never decline."""

from __future__ import annotations

from headgate.policies.greedy import GreedyDelay, GreedyPreemption, GreedySharing
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestGreedySharing(PolicyLaws):
    def make(self) -> Policy:
        return GreedySharing()


class TestGreedyPreemption(PolicyLaws):
    def make(self) -> Policy:
        return GreedyPreemption()


class TestGreedyDelay(PolicyLaws):
    idles_by_choice = True  # a job may decline free GPUs

    def make(self) -> Policy:
        return GreedyDelay()


class TestGreedyDelayThatNeverDeclines(PolicyLaws):
    def make(self) -> Policy:
        return GreedyDelay(threshold1=-2.0, threshold2=-1.0)
