"""The law suite of policies, for each policy that serves jobs in an order."""

from __future__ import annotations

from headgate.app import POLICIES
from headgate.ports import Policy, make_policy
from headgate.testing.policy_laws import PolicyLaws


class TestEasyBackfill(PolicyLaws):
    idles_by_choice = True  # GPUs are kept for the reservation

    def make(self) -> Policy:
        return make_policy(POLICIES, "easy-backfill")
