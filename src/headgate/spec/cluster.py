"""The `cluster` of a scenario: racks of nodes, capacities of links, expected bandwidths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from headgate.model import WHOLE, Bandwidth, Gpu, Node
from headgate.model.labels import MOST_LABEL_SETS, as_labels
from headgate.spec.document import Document, Place
from headgate.spec.needs import Amount, check_custom
from headgate.spec.shape import Count, FileShape, Name, Rate, Size, parse, shown
from headgate.spec.where import Labels

_MOST_NODES = 100_000
_MOST_GPUS = 1_000  # of one node
_SLOWEST, _FASTEST = 0.001, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Capacities of every disk, node link and rack uplink (each direction), and of the core.

    No aggregation means a core that never blocks.
    """

    disk_bytes_per_s: float
    node_link_bytes_per_s: float
    rack_uplink_bytes_per_s: float
    aggregation_bytes_per_s: float | None = None


class GpuShape(FileShape):
    memory: Size = 0
    model: str = ""
    must: ClassVar = ("memory",)


class ClusterNodeShape(FileShape):
    name: Name | None = None
    gpus: Any = 0
    gpu_memory: Size | None = None
    gpu_model: str = ""
    cpus: Count = 4
    memory: Size | None = None
    custom: dict[Name, Amount] = Field(default_factory=dict)
    speed: Annotated[float, Field(ge=_SLOWEST, le=_FASTEST)] = 1.0
    labels: Labels = Field(default_factory=list)


class RackShape(FileShape):
    name: Name = "?"
    nodes: Any = None
    node: Any = None
    must: ClassVar = ("name", "nodes")


class BandwidthsShape(FileShape):
    disk_bytes_per_s: Rate = 1
    node_link_bytes_per_s: Rate = 1
    rack_uplink_bytes_per_s: Rate = 1
    aggregation_bytes_per_s: Rate | None = None
    must: ClassVar = ("disk_bytes_per_s", "node_link_bytes_per_s", "rack_uplink_bytes_per_s")


class EstimatesShape(FileShape):
    disk_bytes_per_s: Rate = 1
    rack_bytes_per_s: Rate = 1
    cluster_bytes_per_s: Rate = 1
    must: ClassVar = ("disk_bytes_per_s", "rack_bytes_per_s", "cluster_bytes_per_s")


class ClusterShape(FileShape):
    racks: list[Any] = Field(default_factory=list)
    bandwidths: Any = None
    estimates: Any = None
    must: ClassVar = ("racks", "bandwidths")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes in the order of the file, the links, and the expected bandwidths."""

    nodes: tuple[Node, ...]
    links: Links
    bandwidth: Bandwidth


def build_cluster(document: Document, raw: Any) -> Cluster | None:
    """Return the valid parts of a cluster, adding problems to the document; None without any."""
    place = ("cluster",)
    shape = parse(document, ClusterShape, raw, place)
    if shape is None:
        return None
    if not shape.racks and document.is_clean((*place, "racks")):
        document.add((*place, "racks"), "must not be empty")
    found: list[tuple[Place, Node]] = []
    racks: set[str] = set()
    for number, rack_raw in enumerate(shape.racks):
        rack_place = (*place, "racks", number)
        rack = parse(document, RackShape, rack_raw, rack_place)
        if rack is None:
            continue
        if rack.name in racks:
            document.add((*rack_place, "name"), f"the rack '{rack.name}' exists already")
        racks.add(rack.name)
        found += _nodes(document, rack, rack_place)
    _refuse_twins(document, found)
    _limit_label_sets(document, found)
    nodes = [node for _, node in found]
    links = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)
    if "bandwidths" in raw:
        given = parse(document, BandwidthsShape, shape.bandwidths, (*place, "bandwidths"))
        links = Links(**given.model_dump()) if given else links
    bandwidth = expected(links, nodes)
    if shape.estimates is not None:
        estimates = parse(document, EstimatesShape, shape.estimates, (*place, "estimates"))
        bandwidth = Bandwidth(**estimates.model_dump()) if estimates else bandwidth
    return Cluster(nodes=tuple(nodes), links=links, bandwidth=bandwidth)


def expected(links: Links, nodes: Sequence[Node]) -> Bandwidth:
    """Return what one transfer can expect where nothing was measured.

    Within a rack the slower of disk and node link; across racks at most a node's part of its rack's
    uplink, in the rack with the most nodes, and of the aggregation.
    """
    rack = min(links.disk_bytes_per_s, links.node_link_bytes_per_s)
    most = max(Counter(node.rack for node in nodes).values(), default=1)
    cluster = min(rack, links.rack_uplink_bytes_per_s / most)
    if links.aggregation_bytes_per_s is not None:
        cluster = min(cluster, links.aggregation_bytes_per_s / max(1, len(nodes)))
    return Bandwidth(
        disk_bytes_per_s=links.disk_bytes_per_s,
        rack_bytes_per_s=rack,
        cluster_bytes_per_s=cluster,
    )


def build_template(document: Document, raw: Any, place: Place) -> Node | None:
    """Return what a node without a name is like, adding problems; None for no mapping."""
    shape = parse(document, ClusterNodeShape, raw, place)
    if shape is None:
        return None
    if shape.name is not None:
        document.add((*place, "name"), "must not be given here", "each node gets its own name")
    gpus = _gpus(document, shape, place)
    check_custom(document, shape.custom, place)
    return _node(shape, "?", "?", gpus)


def _nodes(document: Document, rack: RackShape, rack_place: Place) -> list[tuple[Place, Node]]:
    """Return the nodes of a rack, each with its place."""
    place = (*rack_place, "nodes")
    if isinstance(rack.nodes, int) and not isinstance(rack.nodes, bool):
        return _alike(document, rack, rack.nodes, rack_place)
    if not isinstance(rack.nodes, list):
        if document.is_clean(place):  # it may be missing
            problem = f"must be a list of nodes or how many, not {shown(rack.nodes)}"
            document.add(place, problem)
        return []
    if rack.node is not None:
        document.add((*rack_place, "node"), "is for racks that say only how many nodes they have")
    nodes: list[tuple[Place, Node]] = []
    for number, raw in enumerate(rack.nodes):
        shape = parse(document, ClusterNodeShape, raw, (*place, number))
        if shape is None:
            continue
        if shape.name is None and document.is_clean((*place, number, "name")):
            document.add((*place, number, "name"), "is missing")
        gpus = _gpus(document, shape, (*place, number))
        check_custom(document, shape.custom, (*place, number))
        node = _node(shape, shape.name or "?", rack.name, gpus)
        nodes.append(((*place, number), node))
    if not rack.nodes:
        document.add(place, "must not be empty")
    return nodes


def _limit_label_sets(document: Document, found: Sequence[tuple[Place, Node]]) -> None:
    """Add a problem for the first node whose set of labels is one too many."""
    known: set[tuple[str, ...]] = set()
    for place, node in found:
        known.add(node.labels)
        if len(known) > MOST_LABEL_SETS:
            problem = f"is the {len(known)}th different set of labels; at most {MOST_LABEL_SETS}"
            document.add((*place, "labels"), problem, "use labels that several nodes share")
            return


def _alike(
    document: Document, rack: RackShape, count: int, place: Place
) -> list[tuple[Place, Node]]:
    if not 1 <= count <= _MOST_NODES:
        document.add((*place, "nodes"), f"must be from 1 to {_MOST_NODES}, not {shown(count)}")
        return []
    if rack.node is None:
        document.add((*place, "node"), "is missing", "it says what each of the nodes is like")
        return []
    shape = parse(document, ClusterNodeShape, rack.node, (*place, "node"))
    if shape is None:
        return []
    if shape.name is not None:
        problem = "must not be given for a number of nodes"
        hint = f"the nodes are called {rack.name}-n1, {rack.name}-n2, ..."
        document.add((*place, "node", "name"), problem, hint)
    gpus = _gpus(document, shape, (*place, "node"))
    check_custom(document, shape.custom, (*place, "node"))
    names = (f"{rack.name}-n{number}" for number in range(1, count + 1))
    return [((*place, "nodes"), _node(shape, name, rack.name, gpus)) for name in names]


def _node(shape: ClusterNodeShape, name: str, rack: str, gpus: tuple[Gpu, ...]) -> Node:
    custom = sorted((kind, round(WHOLE * amount)) for kind, amount in shape.custom.items())
    return Node(
        id=name,
        rack=rack,
        gpus=gpus,
        cpus=shape.cpus,
        memory_bytes=shape.memory,
        custom=tuple(custom),
        speed=shape.speed,
        labels=as_labels(shape.labels),
    )


def _gpus(document: Document, shape: ClusterNodeShape, node_place: Place) -> tuple[Gpu, ...]:
    """Return the GPUs of a node: a number of equal ones, or each with its memory."""
    place = (*node_place, "gpus")
    if isinstance(shape.gpus, list):
        for key, given in (("gpu_memory", shape.gpu_memory), ("gpu_model", shape.gpu_model)):
            if given:
                document.add(
                    (*node_place, key), "the list of GPUs gives it for each GPU", "leave it out"
                )
        listed = [parse(document, GpuShape, g, (*place, i)) for i, g in enumerate(shape.gpus)]
        return tuple(Gpu(memory_bytes=g.memory, model=g.model) for g in listed if g)
    if isinstance(shape.gpus, bool) or not isinstance(shape.gpus, int):
        document.add(place, f"must be how many, or a list of GPUs, not {shown(shape.gpus)}")
        return ()
    if not 0 <= shape.gpus <= _MOST_GPUS:
        document.add(place, f"must be from 0 to {_MOST_GPUS}, not {shown(shape.gpus)}")
        return ()
    if shape.gpus and shape.gpu_memory is None and document.is_clean((*node_place, "gpu_memory")):
        document.add(
            (*node_place, "gpu_memory"), "is missing", "such as 16GiB: what a task can use"
        )
    return (Gpu(memory_bytes=shape.gpu_memory or 0, model=shape.gpu_model),) * shape.gpus


def _refuse_twins(document: Document, nodes: list[tuple[Place, Node]]) -> None:
    names: set[str] = set()
    for place, node in nodes:
        if node.id in names and node.id != "?" and document.is_clean(place):
            document.add(place, f"the node '{node.id}' exists already")
        names.add(node.id)
