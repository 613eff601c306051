"""Every transition of the state, once: `apply(state, event) -> Effects`."""

from headgate.machine.machine import CRASHES_MOST, Effects, apply
from headgate.machine.outstanding import outstanding

__all__ = ["CRASHES_MOST", "Effects", "apply", "outstanding"]
