"""The cluster: GPUs on nodes in racks, and the bandwidths between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headgate.model.cluster_topology import NodeShape


class Locality(IntEnum):
    """Distance of a reader from the nearest replica of the shard it reads; larger is farther."""

    NODE = 0
    RACK = 1
    CLUSTER = 2

    @property
    def label(self) -> str:
        """The name used in files and tables: `node`, `rack`, `cluster`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator; `memory_bytes` is the memory that a task can use."""

    memory_bytes: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host; its GPUs are identified by their index.

    `rack` is the path of its rack, such as `a1/r2`, where racks have switches above them. `shape`
    is how its GPUs are connected, if that is known. `memory_bytes` of None is unlimited. `custom`
    are amounts of further kinds of resource, in thousandths, by name. `incarnation` distinguishes a
    node that returns from the one that was lost, in worlds that have one. In a simulation `speed`
    divides the computing times of tasks; real nodes have 1. `labels` are as of `as_labels`.
    """

    id: str
    rack: str
    gpus: tuple[Gpu, ...]
    cpus: int = 4
    memory_bytes: int | None = None
    custom: tuple[tuple[str, int], ...] = ()
    incarnation: str = ""
    shape: NodeShape | None = None
    speed: float = 1.0
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """The expected bandwidth of one transfer: D, Br and Bs of the flow paper, section 3."""

    disk_bytes_per_s: float
    rack_bytes_per_s: float
    cluster_bytes_per_s: float
