"""The law suite of policies, for fsp and fsu."""

from __future__ import annotations

from headgate.policies.flow import PreemptiveFlowSharing, UnfairFlow
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestPreemptiveFlowSharing(PolicyLaws):
    idles_by_choice = True  # a GPU meant for a task that lacks another resource stays free

    def make(self) -> Policy:
        return PreemptiveFlowSharing()


class TestPreemptiveFlowSharingWithoutSlack(PolicyLaws):
    worlds = 600  # in which few jobs are above their share
    idles_by_choice = True

    def make(self) -> Policy:
        return PreemptiveFlowSharing(slack=0.0)

    def test_the_states_lead_to_preemptions(self) -> None:
        assert sum(len(plan.stops) for _, _, plan in self.rounds()) > 2


class TestUnfairFlow(PolicyLaws):
    def make(self) -> Policy:
        return UnfairFlow()
