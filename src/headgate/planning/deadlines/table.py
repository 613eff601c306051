"""The allocators by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headgate.planning.deadlines.edf import EarliestDeadline, EarliestDeadlineAdmission
from headgate.planning.deadlines.elasticflow import ElasticFlow
from headgate.planning.deadlines.headgate import KeptPromises
from headgate.planning.deadlines.jobs import Allocator
from headgate.planning.deadlines.tiresias import TiresiasQueues


class MakesAllocator(Protocol):
    """Makes an allocator for a number of equal GPUs, and slots of a length (s, 0 for none)."""

    def __call__(self, *, gpus: int, slot_s: float = 0.0) -> Allocator:
        """Return a new one, without any history."""
        ...


ALLOCATORS: Mapping[str, MakesAllocator] = {
    "edf": EarliestDeadline,
    "edf-admission": EarliestDeadlineAdmission,
    "tiresias": TiresiasQueues,
    "elasticflow": ElasticFlow,
    "headgate": KeptPromises,
}
