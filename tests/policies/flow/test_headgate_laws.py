"""The law suite of policies, for headgate."""

from __future__ import annotations

from headgate.policies.flow import TimelyFlow
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestTimelyFlow(PolicyLaws):
    idles_by_choice = True  # a task may wait for a GPU near its data

    def make(self) -> Policy:
        return TimelyFlow()


class TestTimelyFlowWithoutSlack(PolicyLaws):
    idles_by_choice = True

    def make(self) -> Policy:
        return TimelyFlow(slack=0.0)
