"""The law suite of policies for those of Headgate: on fewer states, in `make fuzz` on more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.cases import cases

from headgate.app import POLICIES
from headgate.ports import Policy, make_policy
from headgate.testing.policy_laws import PolicyLaws


class OwnPolicy(PolicyLaws):
    """The laws for a policy of a name, with some parameters."""

    worlds = cases(75)
    policy = ""
    parameters: Mapping[str, Any] = MappingProxyType({})

    def make(self) -> Policy:
        return make_policy(POLICIES, self.policy, self.parameters)
