"""The cluster: GPUs on nodes in racks, and how fast data moves between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Locality(IntEnum):
    """How far a reader is from the nearest replica of what it reads; larger is farther."""

    NODE = 0
    RACK = 1
    CLUSTER = 2

    @property
    def label(self) -> str:
        """The name used in files and tables: `node`, `rack`, `cluster`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator; `memory_bytes` is what a task can use of it."""

    memory_bytes: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host; its GPUs are known by their index.

    `memory_bytes` of None is not counted: as much as anyone asks for. `custom` are amounts of other
    kinds in thousandths, by name.
    `incarnation` tells a node that came back from the one that went, where a world can.
    """

    id: str
    rack: str
    gpus: tuple[Gpu, ...]
    cpus: int = 4
    memory_bytes: int | None = None
    custom: tuple[tuple[str, int], ...] = ()
    incarnation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """What one transfer can expect: D, Br and Bs of the flow paper, section 3."""

    disk_bytes_per_s: float
    rack_bytes_per_s: float
    cluster_bytes_per_s: float
