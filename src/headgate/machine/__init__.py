"""Every transition of the state, once: `apply(state, event) -> Effects`; and admission of plans."""

from headgate.machine.admission import admit
from headgate.machine.machine import CRASHES_MOST, Effects, apply
from headgate.machine.outstanding import outstanding

__all__ = ["CRASHES_MOST", "Effects", "admit", "apply", "outstanding"]
