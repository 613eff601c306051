"""Scaling: the kinds of node that a provider can make, and the limits on how many."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model.cluster import Gpu, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of node that a provider makes on order.

    The cost is in the unit of `Scaling.max_cost_per_h`; a node is expected `ready_after_s` seconds
    after its order. `most` limits the nodes of this shape; None is no limit.
    """

    name: str
    gpus: tuple[Gpu, ...] = ()
    cpus: int = 4
    memory_bytes: int | None = None
    custom: tuple[tuple[str, int], ...] = ()
    speed: float = 1.0
    cost_per_h: float = 0.0
    ready_after_s: float = 0.0
    most: int | None = None
    labels: tuple[str, ...] = ()

    def node(self, name: str, rack: str) -> Node:
        """Return the node of this shape with a name, in a rack."""
        return Node(
            id=name,
            rack=rack,
            gpus=self.gpus,
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
            custom=self.custom,
            speed=self.speed,
            labels=self.labels,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The catalogue of shapes, in the order of the file, and the limits on the cluster's nodes.

    A node that has been idle for `idle_after_s` seconds may be removed while more than `floor`
    nodes remain. `utilisation` is the part of the nodes that should be in use. None is no limit.
    """

    shapes: tuple[Shape, ...]
    floor: int = 0
    max_nodes: int | None = None
    max_cost_per_h: float | None = None
    idle_after_s: float = 300.0
    utilisation: float = 0.8
