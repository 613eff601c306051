"""Resources: what nodes have and runs hold, as whole numbers, so that sums are exact.

The amounts of a node are a vector over named kinds: `cpus` and custom kinds in thousandths,
`memory` in bytes. GPUs are devices: a run holds whole ones, or a part of one: a share of it in
thousandths, and memory of it.
"""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = 1000
"""Thousandths in one CPU, one unit of a custom kind, one GPU."""

CPUS, MEMORY = 0, 1
BASE_KINDS = ("cpus", "memory")
"""The kinds that every node has, by their numbers; custom ones follow as they come up."""

UNLIMITED = 1 << 62
"""Bytes of memory of a node whose memory is not counted."""


def amount_of(milli: int) -> int | float:
    """Return an amount in thousandths as people write it: `2`, or `0.25`."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one run holds of its node; equal for tasks that need the same.

    Each of its `gpus` GPUs it holds whole (`gpu_milli` = WHOLE), with all of their memory, of which
    there must be `gpu_memory_bytes`; or in part, so many thousandths: then it holds
    `gpu_memory_bytes` of its memory, or where that is 0 the same share of it. `custom` are
    (name, thousandths), by name.
    """

    cpus_milli: int = 0
    memory_bytes: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    gpus: int = 0
    gpu_milli: int = WHOLE
    gpu_memory_bytes: int = 0

    @property
    def gpus_milli(self) -> int:
        """All that it holds of GPUs, in thousandths."""
        return self.gpus * self.gpu_milli

    @property
    def in_part(self) -> bool:
        """Whether it holds part of a GPU, of which others may hold the rest."""
        return self.gpus > 0 and self.gpu_milli < WHOLE

    def part_bytes(self, memory_bytes: int) -> int:
        """Return the bytes that it holds of a GPU with so much memory, held in part.

        Rounded down, so that shares of one GPU always have room together.
        """
        return self.gpu_memory_bytes or memory_bytes * self.gpu_milli // WHOLE
