"""The law suite of policies, for those that decide offer by offer.

GPUs are kept free for the first multi-GPU unit in line; with jobs of single GPUs alone none are.
"""

from __future__ import annotations

from tests.policies.laws import OwnPolicy

from headgate.model import Job
from headgate.policies.offers.greedy import GreedyDelay, GreedyPreemption, GreedySharing
from headgate.policies.offers.yarn import Capacity, Fair
from headgate.ports import Policy
from headgate.protocol.reasons import PolicyRefuses, Reason
from headgate.testing.random_worlds import is_narrow


class _OfSingleGpus:
    """Accepts only jobs for which no GPUs are kept free."""

    def refuses(self, job: Job) -> Reason | None:
        return None if is_narrow(job) else PolicyRefuses(policy="narrow", what="multi-GPU units")


class GreedySharingOfSingleGpus(_OfSingleGpus, GreedySharing):
    """Likewise."""


class GreedyPreemptionOfSingleGpus(_OfSingleGpus, GreedyPreemption):
    """Likewise."""


class CapacityOfSingleGpus(_OfSingleGpus, Capacity):
    """Likewise."""


class TestGreedySharingOfSingleGpus(OwnPolicy):
    def make(self) -> Policy:
        return GreedySharingOfSingleGpus()


class TestGreedySharing(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return GreedySharing()


class TestGreedyPreemptionOfSingleGpus(OwnPolicy):
    def make(self) -> Policy:
        return GreedyPreemptionOfSingleGpus()


class TestGreedyPreemption(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return GreedyPreemption()


class TestGreedyDelay(OwnPolicy):
    idles_by_choice = True  # a job may decline free GPUs, too

    def make(self) -> Policy:
        return GreedyDelay()


class TestGreedyDelayThatNeverDeclines(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return GreedyDelay(threshold1=-2.0, threshold2=-1.0)


class TestCapacityOfSingleGpus(OwnPolicy):
    def make(self) -> Policy:
        return CapacityOfSingleGpus()


class TestCapacity(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return Capacity()


class TestFair(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return Fair()
