"""How much of all GPUs is free now."""

from __future__ import annotations

from headgate.model import WHOLE
from headgate.state import Scratch
from headgate.state.tables import GPU_IN_PART


def free_milli(scratch: Scratch) -> int:
    """Return the thousandths of GPUs that no run holds; O(nodes) if no task is on part of a GPU."""
    return WHOLE * int(scratch.ledger.nodes.free_gpus.array().sum()) + parts_milli(scratch)


def any_free(scratch: Scratch) -> bool:
    """Return whether any share of a GPU is free, or memory for tasks that hold no share."""
    if free_milli(scratch):
        return True
    if not any(demand.gpus and not demand.gpu_milli for demand in scratch.snapshot.names.demands):
        return False
    ledger = scratch.ledger
    return bool((ledger.open_gpus() & (ledger.gpus.free_bytes.array() > 0)).any())


def parts_milli(scratch: Scratch) -> int:
    """Return the thousandths left of GPUs that are held in part."""
    if not any(demand.in_part for demand in scratch.snapshot.names.demands):
        return 0
    gpus, is_open = scratch.ledger.gpus, scratch.ledger.open_gpus()
    return int(gpus.free_milli.array()[is_open & (gpus.task.array() == GPU_IN_PART)].sum())
