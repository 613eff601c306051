"""How a decision is made: the policy protocol, the door, and helpers that policies share."""

from headgate.decision.policy import Parameter, Policy, PolicyInfo, make_policy

__all__ = ["Parameter", "Policy", "PolicyInfo", "make_policy"]
