"""The topology of a cluster as plain values, for files, events and the journal.

Places are named: nodes by their ids, what is above them by paths such as `agg1/rack3`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLevel:
    """A level between a node and its GPUs, such as sockets or PCIe switches.

    `groups` are GPU indices; each is within one group of the level above. Its link to that has
    `bytes_per_s`.
    """

    name: str
    bytes_per_s: float
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What is below a node: levels of groups of its GPUs, from the top, and the GPUs' links.

    GPUs in no group are directly below the node.
    """

    levels: tuple[GroupLevel, ...] = ()
    gpu_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTree:
    """A tree down to the nodes: vertices in any order, with the parent's number, -1 at the root.

    `levels` are indexes of `level_names`, whose last is that of the nodes: a vertex of that level
    is a node. `bytes_per_s` is the bandwidth of the link to the parent, in each direction (any for
    the root). `shape` is the number of a node's shape in `shapes`, -1 without one.
    """

    level_names: tuple[str, ...]
    names: tuple[str, ...]
    parents: tuple[int, ...]
    levels: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    shapes: tuple[NodeShape, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ids of the nodes, in the order of the vertices."""
        last = len(self.level_names) - 1
        return tuple(n for n, level in zip(self.names, self.levels, strict=True) if level == last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMesh:
    """A linear array, mesh or torus of nodes, in row-major order; bandwidth by dimension."""

    sides: tuple[int, ...]
    wrap: tuple[bool, ...]
    bytes_per_s: tuple[float, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFatTree:
    """A fat tree of switches with `ports` ports; the first of its leaves are the nodes.

    `bytes_per_s` are those of the links core-aggregation, aggregation-edge, edge-node.
    """

    ports: int
    bytes_per_s: tuple[float, float, float]
    nodes: tuple[str, ...]


ClusterTopology = ClusterTree | ClusterMesh | ClusterFatTree
