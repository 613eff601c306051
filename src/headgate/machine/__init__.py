"""Every transition of the state, once: `apply(state, event) -> Effects`; and admission of plans."""

from headgate.machine.admission import admit
from headgate.machine.machine import Effects, apply
from headgate.machine.outstanding import outstanding
from headgate.machine.run_ends import CRASHES_MOST

__all__ = ["CRASHES_MOST", "Effects", "admit", "apply", "outstanding"]
