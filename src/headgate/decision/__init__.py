"""How a decision is made: the policy protocol, the door, and helpers that policies share."""

from headgate.base import not_built

try:
    import headgate.decision._native  # noqa: F401  # before all that needs it
except ImportError as missing:
    raise not_built("headgate.decision", missing) from missing

from headgate.decision.policy import Parameter, Policy, PolicyInfo, make_policy, read_policy

__all__ = ["Parameter", "Policy", "PolicyInfo", "make_policy", "read_policy"]
