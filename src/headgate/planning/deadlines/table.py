"""The allocators by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headgate.planning.deadlines.edf import EarliestDeadline
from headgate.planning.deadlines.elasticflow import ElasticFlow
from headgate.planning.deadlines.headgate import KeptPromises
from headgate.planning.deadlines.jobs import Allocator


class MakesAllocator(Protocol):
    """Makes an allocator for a number of equal GPUs, and slots of a length (s, 0 for none)."""

    def __call__(self, *, gpus: int, slot_s: float = 0.0) -> Allocator:
        """Return a new one, without any history."""
        ...


ALLOCATORS: Mapping[str, MakesAllocator] = {
    "edf": EarliestDeadline,
    "elasticflow": ElasticFlow,
    "headgate": KeptPromises,
}
