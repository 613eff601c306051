"""The law suite of policies, for fifo."""

from __future__ import annotations

from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Policy
from headgate.testing.policy_laws import PolicyLaws


class TestFifo(PolicyLaws):
    idles_by_choice = True  # the first job blocks later ones that would fit

    def make(self) -> Policy:
        return FirstInFirstOut()
