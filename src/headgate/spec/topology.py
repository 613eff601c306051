"""Topology files: how a cluster's nodes and GPUs are connected, described and checked.

A tree is written level by level (`tree`) or switch by switch (`switches`); `mesh` is a linear
array, mesh or torus, `fat_tree` a fat tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError
from headgate.model import Node
from headgate.model.topology import ClusterFatTree, ClusterMesh, ClusterTopology, ClusterTree
from headgate.spec.document import Document, Place, read_document
from headgate.spec.shape import parse, shown
from headgate.spec.topology_shapes import (
    FatTreeShape,
    MeshShape,
    TopologyShape,
    node_names,
    rates,
)
from headgate.spec.topology_tree import TreeBuilder

_KINDS = ("tree", "switches", "mesh", "fat_tree")
_OF_TREES = ("levels", "bandwidths", "gpus", "nodes")


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of topology files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TopologyShape.model_json_schema(),
        "title": "Headgate topology file",
        "oneOf": [{"required": [kind]} for kind in _KINDS],
    }


def load_topology(source: Path | str, *, nodes: Sequence[Node] | None = None) -> ClusterTopology:
    """Return the topology of a file or of text; raise SpecError with every problem of it.

    With `nodes`, those of the whole cluster, also check that it matches them.
    """
    document = read_document(source, name="topology")
    shape = parse(document, TopologyShape, document.data, ())
    topology = None if shape is None else _topology(document, shape)
    document.raise_problems()
    if topology is None:
        raise AssertionError("unreachable: without a topology there is a problem")
    if nodes is not None:
        problems = mismatches(topology, nodes)
        if problems:
            name = str(source) if isinstance(source, Path) else "topology"
            raise SpecError(
                Problem(path=name, problem=problem, hint=hint) for problem, hint in problems
            )
    return topology


def topology_in(document: Document, key: str) -> ClusterTopology | None:
    """Return the topology that the mapping at a key describes, or None and add its problems."""
    part = document.part(key)
    shape = parse(part, TopologyShape, part.data, ())
    topology = None if shape is None else _topology(part, shape)
    document.add_from(part, key)
    return topology if document.is_clean((key,)) else None


def mismatches(topology: ClusterTopology, nodes: Sequence[Node]) -> list[tuple[str, str]]:
    """Return the problems, with hints, of a topology for a cluster of these nodes.

    Nodes that a tree does not name are placed at its root; a mesh or fat tree has no such place.
    """
    named = set(topology.nodes)
    found = [
        (f"the node {node.id} has no GPU and no CPU: a leaf needs one", "leave it out")
        for node in nodes
        if node.id in named and not node.gpus and not node.cpus
    ]
    without = [node.id for node in nodes if node.id not in named]
    if without and (not isinstance(topology, ClusterTree) or len(without) == len(nodes)):
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        problem = f"does not name the nodes {', '.join(without[:3])}{more} of the cluster"
        found.append((problem, "name them as the cluster does"))
    return found


def _topology(document: Document, shape: TopologyShape) -> ClusterTopology | None:
    given = [kind for kind in _KINDS if kind in document.data]
    if len(given) != 1:
        if given:
            text = f"stands beside {given[0]}: a topology has one of {', '.join(_KINDS)}"
            document.add((given[1],), text, "remove one of them")
        elif all(document.is_clean((kind,)) for kind in _KINDS):
            text = f"is missing: a topology has one of {', '.join(_KINDS)}"
            document.add(("tree",), text)
        return None
    if given[0] in ("tree", "switches"):
        return TreeBuilder(document, shape).build()
    for key in _OF_TREES:
        if key in document.data:
            document.add((key,), f"is for trees, not for {given[0]}", "remove it")
    if given[0] == "mesh":
        return _mesh(document, shape.mesh, ("mesh",))
    return _fat_tree(document, shape.fat_tree, ("fat_tree",))


def _mesh(document: Document, raw: Any, place: Place) -> ClusterMesh | None:
    shape = parse(document, MeshShape, raw, place)
    if shape is None:
        return None
    dimensions, shape_place = len(shape.shape), (*place, "shape")
    if dimensions > 3:
        document.add(shape_place, f"must have at most 3 dimensions, not {dimensions}")
    wrap = shape.wrap if isinstance(shape.wrap, list) else [shape.wrap] * dimensions
    if len(wrap) != dimensions or not all(isinstance(each, bool) for each in wrap):
        text = f"must be true or false, for each of {dimensions} dimensions or for all"
        document.add((*place, "wrap"), f"{text}, not {shown(shape.wrap)}")
    bandwidth = rates(document, shape.bandwidth, dimensions, "dimensions", (*place, "bandwidth"))
    nodes = _distinct(document, shape.nodes, (*place, "nodes"))
    size = math.prod(shape.shape)
    if (
        len(nodes) != size
        and document.is_clean((*place, "nodes"))
        and document.is_clean(shape_place)
    ):
        sides = " x ".join(map(str, shape.shape))
        text = f"names {len(nodes)} nodes, but a mesh of {sides} has {size}"
        hint = "name one for each place, in row-major order"
        document.add((*place, "nodes"), text, hint)
    return ClusterMesh(
        sides=tuple(shape.shape), wrap=tuple(wrap), bytes_per_s=bandwidth, nodes=nodes
    )


def _fat_tree(document: Document, raw: Any, place: Place) -> ClusterFatTree | None:
    shape = parse(document, FatTreeShape, raw, place)
    if shape is None:
        return None
    if shape.ports % 2:
        text = f"must be an even number, not {shape.ports}"
        document.add((*place, "ports"), text, "half of the ports lead up, half down")
    bandwidth_place = (*place, "bandwidth")
    core, aggregation, edge = rates(
        document, shape.bandwidth, 3, "levels of links", bandwidth_place
    )
    nodes = _distinct(document, shape.nodes, (*place, "nodes"))
    most = shape.ports**3 // 4
    if len(nodes) > most:
        text = f"names {len(nodes)} nodes, but a fat tree of {shape.ports} ports has {most}"
        document.add((*place, "nodes"), text)
    return ClusterFatTree(ports=shape.ports, bytes_per_s=(core, aggregation, edge), nodes=nodes)


def _distinct(document: Document, raw: Any, place: Place) -> tuple[str, ...]:
    """Return names of nodes, adding a problem for each that is named twice."""
    if not document.is_clean(place):  # it is missing
        return ()
    found = node_names(document, raw, place)
    seen: dict[str, None] = {}
    for name, name_place in found:
        if name in seen:
            document.add(name_place, f"'{name}' is named twice", "a node has one place")
        seen[name] = None
    if not found and document.is_clean(place):
        document.add(place, "must not be empty")
    return tuple(name for name, _ in found)
