"""The law suite of policies, for capacity and fair: neither declines a GPU."""

from __future__ import annotations

from headgate.model import Job
from headgate.policies.offers.yarn import Capacity, Fair
from headgate.ports import Policy
from headgate.protocol.reasons import PolicyRefuses, Reason
from headgate.testing.policy_laws import PolicyLaws
from headgate.testing.random_worlds import is_narrow


class CapacityOfSingleGpus(Capacity):
    """Accepts only jobs for which no GPUs are kept free."""

    def refuses(self, job: Job) -> Reason | None:
        return None if is_narrow(job) else PolicyRefuses(policy=self.name, what="multi-GPU units")


class TestCapacityOfSingleGpus(PolicyLaws):
    def make(self) -> Policy:
        return CapacityOfSingleGpus()


class TestCapacity(PolicyLaws):
    idles_by_choice = True  # GPUs are kept free for the first multi-GPU unit in line

    def make(self) -> Policy:
        return Capacity()


class TestFair(PolicyLaws):
    idles_by_choice = True

    def make(self) -> Policy:
        return Fair()
