"""The law suite of policies, for fs: by default, and priced so that no task waits for data."""

from __future__ import annotations

from headgate.policies.flow import FlowSharing
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestFlowSharing(PolicyLaws):
    idles_by_choice = True  # a task may wait for a nearer GPU

    def make(self) -> Policy:
        return FlowSharing()


class TestFlowSharingThatWaitsForNoData(PolicyLaws):
    def make(self) -> Policy:
        return FlowSharing(alpha3=1000.0)
