"""The actual book: the measured use of nodes and GPUs, beside what grants hold."""

from __future__ import annotations

from headgate.model import WHOLE
from headgate.protocol import NodeReported, Outside
from headgate.state.state import State
from headgate.state.view import View


def record_report(state: State, row: int, event: NodeReported) -> bool:
    """Update the actual book of a node that is up; return whether other runs may fit it now.

    Its measured use, and of that what processes outside Headgate use.
    """
    state.nodes.actual[row] = (event.cpus_milli, event.memory_bytes)  # in the order of BASE_KINDS
    state.nodes.reported_at[row] = state.now
    first, count = state.nodes.first_gpu[row], state.nodes.gpu_count[row]
    for index in range(count):
        used_bytes, milli = event.gpus[index] if index < len(event.gpus) else (None, None)
        state.gpus.actual_bytes[first + index] = -1 if used_bytes is None else used_bytes
        state.gpus.utilisation_milli[first + index] = -1 if milli is None else milli
    return state.ledger.set_outside(row, event.outside)


def outside_fault(view: View, row: int, outside: Outside) -> str:
    """Return why what is reported as used outside Headgate of a node cannot be, "" if it can."""
    spec = view.node(row)
    if not 0 <= outside.cpus_milli <= WHOLE * spec.cpus:
        return f"{outside.cpus_milli / WHOLE:g} of its {spec.cpus} CPUs"
    if not 0 <= outside.memory_bytes <= (spec.memory_bytes or 0):
        return f"{outside.memory_bytes} of its {spec.memory_bytes or 0} bytes of memory"
    for gpu, used_bytes, _ in outside.gpus:
        if not 0 <= gpu < len(spec.gpus):
            return f"memory of GPU {gpu}, which it does not have"
        if not 0 <= used_bytes <= spec.gpus[gpu].memory_bytes:
            return f"{used_bytes} of the {spec.gpus[gpu].memory_bytes} bytes of GPU {gpu}"
    return ""
