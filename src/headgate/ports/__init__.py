"""The interfaces of the core: the protocols `Policy` and `World`, and how policies are made."""

from headgate.ports.policy import Parameter, Policy, PolicyInfo, make_policy, read_policy
from headgate.ports.world import World, decide

__all__ = ["Parameter", "Policy", "PolicyInfo", "World", "decide", "make_policy", "read_policy"]
