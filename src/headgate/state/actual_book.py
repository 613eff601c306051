"""The actual book: the measured use of nodes and GPUs, beside what grants hold."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.protocol import GpuUse
from headgate.state.state import State


def record_report(
    state: State, row: int, cpus_milli: int, memory_bytes: int, gpus: Sequence[GpuUse]
) -> None:
    """Update the actual book of a node that is up: its measured use."""
    state.nodes.actual[row] = (cpus_milli, memory_bytes)  # in the order of BASE_KINDS
    state.nodes.reported_at[row] = state.now
    first, count = state.nodes.first_gpu[row], state.nodes.gpu_count[row]
    for index in range(count):
        used_bytes, milli = gpus[index] if index < len(gpus) else (None, None)
        state.gpus.actual_bytes[first + index] = -1 if used_bytes is None else used_bytes
        state.gpus.utilisation_milli[first + index] = -1 if milli is None else milli
