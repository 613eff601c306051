"""The law suite of policies, for the greedy ones; and gsd with thresholds that never decline."""

from __future__ import annotations

from headgate.model import Job
from headgate.policies.offers.greedy import GreedyDelay, GreedyPreemption, GreedySharing
from headgate.ports import Policy
from headgate.protocol.reasons import PolicyRefuses, Reason
from headgate.testing.policy_laws import PolicyLaws
from headgate.testing.random_worlds import is_narrow


class GreedySharingOfSingleGpus(GreedySharing):
    """Accepts only jobs for which no GPUs are kept free."""

    def refuses(self, job: Job) -> Reason | None:
        return None if is_narrow(job) else PolicyRefuses(policy=self.name, what="multi-GPU units")


class TestGreedySharingOfSingleGpus(PolicyLaws):
    def make(self) -> Policy:
        return GreedySharingOfSingleGpus()


class TestGreedySharing(PolicyLaws):
    idles_by_choice = True  # GPUs are kept free for the first multi-GPU unit in line

    def make(self) -> Policy:
        return GreedySharing()


class GreedyPreemptionOfSingleGpus(GreedyPreemption):
    """Likewise."""

    def refuses(self, job: Job) -> Reason | None:
        return None if is_narrow(job) else PolicyRefuses(policy=self.name, what="multi-GPU units")


class TestGreedyPreemptionOfSingleGpus(PolicyLaws):
    def make(self) -> Policy:
        return GreedyPreemptionOfSingleGpus()


class TestGreedyPreemption(PolicyLaws):
    idles_by_choice = True

    def make(self) -> Policy:
        return GreedyPreemption()


class TestGreedyDelay(PolicyLaws):
    idles_by_choice = True  # a job may decline free GPUs

    def make(self) -> Policy:
        return GreedyDelay()


class TestGreedyDelayThatNeverDeclines(PolicyLaws):
    idles_by_choice = True

    def make(self) -> Policy:
        return GreedyDelay(threshold1=-2.0, threshold2=-1.0)
