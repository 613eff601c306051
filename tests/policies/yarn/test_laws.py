"""The law suite of policies, for capacity and fair: neither declines a GPU."""

from __future__ import annotations

from headgate.policies.yarn import Capacity, Fair
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestCapacity(PolicyLaws):
    def make(self) -> Policy:
        return Capacity()


class TestFair(PolicyLaws):
    def make(self) -> Policy:
        return Fair()
