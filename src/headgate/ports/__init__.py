"""The interfaces of the core: the protocols `Policy` and `World`, and how policies are made."""

from headgate.ports.capabilities import capabilities
from headgate.ports.placing import PLACE, PLACE_NAMES, PLACES
from headgate.ports.policy import (
    Parameter,
    Policy,
    PolicyInfo,
    Value,
    choose_policy,
    make_policy,
    read_live_policy,
    read_policy,
    value_text,
    with_current_names,
)
from headgate.ports.world import World

__all__ = [
    "PLACE",
    "PLACES",
    "PLACE_NAMES",
    "Parameter",
    "Policy",
    "PolicyInfo",
    "Value",
    "World",
    "capabilities",
    "choose_policy",
    "make_policy",
    "read_live_policy",
    "read_policy",
    "value_text",
    "with_current_names",
]
