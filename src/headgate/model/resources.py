"""Resources: the capacity of nodes and the demand of runs, as integers, so that sums are exact.

The amounts of a node are a vector over named kinds: `cpus` and custom kinds in thousandths,
`memory` in bytes. GPUs are devices: a run holds whole ones, or a part of one: a share in
thousandths, and some of its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.model.cluster import Node
from headgate.model.gpu_models import is_model
from headgate.model.labels import selects

WHOLE = 1000
"""Thousandths in one CPU, one unit of a custom kind, one GPU."""

CPUS, MEMORY = 0, 1
BASE_KINDS = ("cpus", "memory")
"""The kinds that every node has, by number; custom kinds follow in order of first use."""

UNLIMITED = 1 << 62
"""Bytes of memory of a node whose memory is unlimited."""


def amount_of(milli: int) -> int | float:
    """Return an amount in thousandths as people write it: `2`, or `0.25`."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one run holds of its node; equal for tasks with the same needs.

    The run holds each of its `gpus` GPUs whole (`gpu_milli` = WHOLE): then the GPU must have at
    least `gpu_memory_bytes`, and the run holds all of its memory. Or it holds a part, `gpu_milli`
    thousandths: then it holds `gpu_memory_bytes` of the GPU's memory, or, where that is 0, the same
    share of it. `custom` are (name, thousandths), by name.

    Its GPUs are of one of `gpu_models` (`is_model`), its node is one of `nodes` and none of
    `exclude`; without any, all are. The labels of its node are as `selector` says (`selects`).
    """

    cpus_milli: int = 0
    memory_bytes: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    gpus: int = 0
    gpu_milli: int = WHOLE
    gpu_memory_bytes: int = 0
    gpu_models: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    selector: tuple[str, ...] = ()

    @classmethod
    def of(cls, *, gpus: int = 1, cpus: float | None = None, **others: Any) -> Demand:
        """Return the demand of a task with these GPUs and CPUs, and other fields.

        Without `cpus` (None), it holds one CPU if it has no GPU, else none.
        """
        held = float(not gpus) if cpus is None else cpus
        return cls(gpus=gpus, cpus_milli=round(WHOLE * held), **others)

    @property
    def restricted(self) -> bool:
        """Whether it is for certain models of GPUs, certain nodes or labels, only."""
        return bool(self.gpu_models or self.selector) or self.for_nodes

    @property
    def for_nodes(self) -> bool:
        """Whether it names nodes that it is for, or excludes some."""
        return bool(self.nodes or self.exclude)

    def accepts_model(self, model: str) -> bool:
        """Return whether it may hold GPUs of a model."""
        return not self.gpu_models or any(is_model(asked, model) for asked in self.gpu_models)

    def accepts_name(self, node: str) -> bool:
        """Return whether it may run on a node of this name."""
        return (not self.nodes or node in self.nodes) and node not in self.exclude

    def accepts_node(self, node: Node) -> bool:
        """Return whether it may run on a node, whatever that has."""
        return self.accepts_name(node.id) and selects(self.selector, node.labels)

    @property
    def gpus_milli(self) -> int:
        """Sum of the shares of all its GPUs, in thousandths."""
        return self.gpus * self.gpu_milli

    @property
    def in_part(self) -> bool:
        """Whether it holds part of a GPU; other runs may hold the rest."""
        return self.gpus > 0 and self.gpu_milli < WHOLE

    def part_bytes(self, memory_bytes: Any) -> Any:
        """Return the bytes that it holds of a shared GPU that has `memory_bytes`, or of several.

        Rounded down, so that shares that add up to one GPU always fit together.
        """
        return self.gpu_memory_bytes or memory_bytes * self.gpu_milli // WHOLE
