"""The topology of a snapshot's cluster: which leaf each node and each GPU is.

One leaf per GPU where a node has GPUs, else one for the node; on a mesh or fat tree, one per node.
Without a topology, the tree is core, rack, node, GPU, with the measured bandwidths. Nodes that the
topology does not name have leaves, too: in a tree below their rack, else below the root; else
beside its shape (`Annexed`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Node
from headgate.model.topology import (
    Annexed,
    ClusterFatTree,
    ClusterMesh,
    ClusterTree,
    FatTree,
    Mesh,
    Topology,
    Tree,
)
from headgate.state import Snapshot

GPU_BYTES_PER_S = 16e9
"""Bandwidth of a GPU's link where none is given: PCI Express of the third generation."""

_KEPT = 8  # fabrics; a snapshot and what-ifs on it share one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """A topology, and where the rows of a snapshot's nodes and GPUs are in it.

    The leaves of a node are `first_leaf[node]` to `end_leaf[node]` (exclusive). `vertex[node]` is
    its vertex in a tree, else its leaf, -1 if a mesh or fat tree has no place for it.
    `gpu_leaf[gpu]` is -1 for a GPU of an earlier incarnation in a tree. By leaf: `leaf_node`, -1
    where no known node is, and `leaf_gpu`, -1 where the leaf is no GPU.
    """

    topology: Topology
    vertex: Ints
    first_leaf: Ints
    end_leaf: Ints
    gpu_leaf: Ints
    leaf_node: Ints
    leaf_gpu: Ints

    @property
    def shape(self) -> Topology:
        """The topology without nodes that have no place in it."""
        return self.topology.inside if isinstance(self.topology, Annexed) else self.topology

    @staticmethod
    def of(snapshot: Snapshot) -> Fabric:
        """Return the fabric of a snapshot; O(nodes) for one with the same nodes as a recent one."""
        for known, fabric in tuple(_recent):  # other threads explain, and add to it
            if _same(known, snapshot):
                return fabric
        fabric = _built(snapshot)
        _recent.appendleft((snapshot.unexplained(), fabric))
        return fabric


_recent: deque[tuple[Snapshot, Fabric]] = deque(maxlen=_KEPT)


def _same(a: Snapshot, b: Snapshot) -> bool:
    """Return whether two snapshots have the same topology and nodes."""
    if a.topology is None and b.topology is None:
        if a.bandwidth != b.bandwidth:
            return False
    elif a.topology is not b.topology and a.topology != b.topology:
        return False
    if len(a.nodes.spec) != len(b.nodes.spec) or len(a.gpus.node) != len(b.gpus.node):
        return False
    return not any(
        len(getattr(b.nodes, name).changed(getattr(a.nodes, name)))
        for name in ("spec", "first_gpu", "gpu_count")
    )


def _built(snapshot: Snapshot) -> Fabric:
    match snapshot.topology:
        case None:
            return _of_tree(snapshot, _of_racks(snapshot))
        case ClusterTree() as tree:
            return _of_tree(snapshot, tree)
        case ClusterMesh(nodes=nodes) as mesh:
            shape = Mesh(mesh.sides, wrap=mesh.wrap, bandwidth=mesh.bytes_per_s, names=nodes)
            return _of_leaves(snapshot, shape, nodes)
        case ClusterFatTree(nodes=nodes, ports=ports) as fat:
            names = [*nodes, *[""] * (ports**3 // 4 - len(nodes))]
            return _of_leaves(snapshot, FatTree(ports, fat.bytes_per_s, names=names), nodes)


def _of_leaves(snapshot: Snapshot, topology: Topology, nodes: Sequence[str]) -> Fabric:
    """Return the fabric of a topology whose leaves are nodes, the others beside them."""
    rows = np.array([snapshot.names.node_rows.get(node, -1) for node in nodes], np.int64)
    count = len(snapshot.nodes.spec)
    rows[rows >= count] = -1  # joined since
    vertex = np.full(count, -1)
    vertex[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    unplaced = np.flatnonzero(vertex < 0)
    leaf = vertex.copy()
    leaf[unplaced] = topology.leaves + np.arange(len(unplaced))
    if len(unplaced):
        names = [snapshot.node(row).id for row in unplaced.tolist()]
        slowest = topology.capacity.min(initial=GPU_BYTES_PER_S)
        topology = Annexed(topology, names, slowest)
    leaf_node = np.full(topology.leaves, -1)
    leaf_node[: len(rows)] = rows
    leaf_node[leaf[unplaced]] = unplaced
    return Fabric(
        topology=topology,
        vertex=vertex,
        first_leaf=leaf,
        end_leaf=leaf + 1,
        gpu_leaf=leaf[snapshot.gpus.node.array()],
        leaf_node=leaf_node,
        leaf_gpu=np.full(topology.leaves, -1),
    )


def _of_racks(snapshot: Snapshot) -> ClusterTree:
    """Return the tree of racks: what one transfer of each node can expect, added up by rack."""
    nodes: list[Node] = snapshot.nodes.spec.array().tolist()
    paths = {node.rack: tuple(node.rack.split("/")) for node in nodes}
    below = Counter(
        paths[node.rack][:length]
        for node in nodes
        for length in range(1, 1 + len(paths[node.rack]))
    )
    rows = {path: row for row, path in enumerate(sorted(below, key=len), start=1)}
    inner = {path[:-1] for path in rows}
    deepest, count = max(map(len, rows), default=1), len(nodes)
    core, uplink = snapshot.bandwidth.cluster_bytes_per_s, snapshot.bandwidth.rack_bytes_per_s
    return ClusterTree(
        level_names=_level_names(deepest),
        names=("core", *map("/".join, rows), *(node.id for node in nodes)),
        parents=(
            *(-1, *(rows.get(path[:-1], 0) for path in rows)),
            *(rows[paths[node.rack]] for node in nodes),
        ),
        levels=(
            *(0, *(len(path) if path in inner else deepest for path in rows)),
            *[deepest + 1] * count,
        ),
        bytes_per_s=(np.inf, *(core * below[path] for path in rows), *[uplink] * count),
    )


def _level_names(deepest: int) -> tuple[str, ...]:
    """Return the names of levels for racks with so many names in their paths."""
    above = [f"level {number}" for number in range(1, deepest - 2)]
    switches = ("core", "aggregation", "rack")[-deepest:]
    return ("core" if deepest < 3 else "root", *above, *switches, "node")


def _of_tree(snapshot: Snapshot, given: ClusterTree) -> Fabric:
    """Return the fabric of a tree: below each node that is known, its GPUs."""
    count = len(snapshot.nodes.spec)
    vertex = np.full(count, -1)
    for number, (name, level) in enumerate(zip(given.names, given.levels, strict=True)):
        row = count
        if level == len(given.level_names) - 1:
            row = snapshot.names.node_rows.get(name, count)
        if row < count:  # no later one
            vertex[row] = number
    grown = _GrowingTree(given)
    unplaced = np.flatnonzero(vertex < 0)
    vertex[unplaced] = grown.add_unnamed([snapshot.node(row) for row in unplaced.tolist()])
    kinds = np.stack([grown.shapes_of(vertex, snapshot), snapshot.nodes.gpu_count.array()], axis=1)
    first_gpu = snapshot.nodes.first_gpu.array()
    gpu_vertex = np.full(len(snapshot.gpus.node), -1)
    for number, gpus in np.unique(kinds, axis=0).tolist():
        nodes = np.flatnonzero((kinds == (number, gpus)).all(axis=1))
        added = grown.add_gpus(vertex[nodes], gpus, number)
        gpu_vertex[(first_gpu[nodes][:, None] + np.arange(gpus)).ravel()] = added.ravel()
    return _with_places(snapshot, grown.tree(), vertex, gpu_vertex)


def _with_places(snapshot: Snapshot, tree: Tree, vertex: Ints, gpu_vertex: Ints) -> Fabric:
    """Return the fabric of a tree, given the numbers that it was built with."""
    position = np.empty(tree.vertices, np.int64)
    position[tree.given] = np.arange(tree.vertices)
    vertex = position[vertex]
    first, end = tree.first_leaf[vertex], tree.end_leaf[vertex]
    current = np.flatnonzero(gpu_vertex >= 0)
    gpu_leaf = np.full(len(gpu_vertex), -1)
    gpu_leaf[current] = tree.first_leaf[position[gpu_vertex[current]]]
    leaf_node, leaf_gpu = np.full((2, tree.leaves), -1)
    leaf_node[first] = np.arange(len(vertex))  # nodes without GPUs
    leaf_gpu[gpu_leaf[current]] = current
    leaf_node[gpu_leaf[current]] = snapshot.gpus.node.array()[current]
    return Fabric(
        topology=tree,
        vertex=vertex,
        first_leaf=first,
        end_leaf=end,
        gpu_leaf=gpu_leaf,
        leaf_node=leaf_node,
        leaf_gpu=leaf_gpu,
    )


class _GrowingTree:
    """The vertices of a cluster's tree, to which those below the nodes are added."""

    def __init__(self, given: ClusterTree) -> None:
        self.names = list(given.names)
        self._node_level = len(given.level_names) - 1
        self._level_names = given.level_names
        self._shapes = list(given.shapes)
        self._shape = dict(enumerate(given.shape))
        self._parents = [np.array(given.parents, np.int64)]
        self._levels = [np.array(given.levels, np.int64)]
        self._uplinks = [np.array(given.bytes_per_s, np.float64)]

    def shapes_of(self, vertex: Ints, snapshot: Snapshot) -> Ints:
        """Return the number of each node's shape: as given, else as the node reports, else -1."""
        numbers = []
        for row, node_vertex in enumerate(vertex.tolist()):
            number, reported = self._shape.get(node_vertex, -1), snapshot.node(row).shape
            if number < 0 and reported is not None:
                if reported not in self._shapes:
                    self._shapes.append(reported)
                number = self._shapes.index(reported)
            numbers.append(number)
        return np.array(numbers, np.int64)

    def _add(self, parents: Ints, levels: Ints, uplinks: Floats, names: Sequence[str]) -> Ints:
        """Add vertices; return their numbers."""
        first = len(self.names)
        self.names += names
        self._parents.append(parents)
        self._levels.append(levels)
        self._uplinks.append(uplinks)
        return np.arange(first, len(self.names))

    def add_unnamed(self, nodes: Sequence[Node]) -> Ints:
        """Add nodes without a place: below their racks, else the root, as slow as others there."""
        racks = {node.rack: self._vertex_of(node.rack) for node in nodes}
        above = np.array([racks[node.rack] for node in nodes], np.int64)
        parents, uplinks = self._parents[0], self._uplinks[0]
        slowest = {
            vertex: uplinks[parents == vertex].min(initial=GPU_BYTES_PER_S)
            for vertex in np.unique(above).tolist()
        }
        return self._add(
            above,
            np.full(len(nodes), self._node_level),
            np.array([slowest[vertex] for vertex in above.tolist()]),
            [node.id for node in nodes],
        )

    def _vertex_of(self, rack: str) -> int:
        """Return the vertex of a rack: of its path, or the only one of its name; else the root."""
        parents, levels = self._parents[0], self._levels[0]
        inner = np.flatnonzero(levels < self._node_level).tolist()
        for name_of in (str, lambda path: path.rsplit("/", 1)[-1]):
            named = [vertex for vertex in inner if name_of(self.names[vertex]) == rack]
            if len(named) == 1:
                return named[0]
        return int(np.flatnonzero(parents < 0)[0])

    def add_gpus(self, nodes: Ints, gpus: int, number: int) -> Ints:
        """Add the GPUs of nodes of one shape, with its groups; return them by node and index."""
        shape = self._shapes[number] if number >= 0 else None
        within = np.tile(nodes[:, None], gpus)  # the vertex that each GPU is below so far
        for depth, level in enumerate(shape.levels if shape and gpus else (), start=1):
            for group in level.groups:
                inside = [gpu for gpu in group if gpu < gpus]
                if inside:
                    names = [
                        f"{self.names[node]}/{level.name}{group[0]}" for node in nodes.tolist()
                    ]
                    within[:, inside] = self._add(
                        within[:, inside[0]].copy(),
                        np.full(len(nodes), self._node_level + depth),
                        np.full(len(nodes), level.bytes_per_s),
                        names,
                    )[:, None]
        bytes_per_s = shape.gpu_bytes_per_s if shape else GPU_BYTES_PER_S
        names = [f"{self.names[node]}:{gpu}" for node in nodes.tolist() for gpu in range(gpus)]
        return self._add(
            within.ravel(),
            np.full(within.size, len(self._level_names) + self._depth),
            np.full(within.size, bytes_per_s),
            names,
        ).reshape(within.shape)

    @property
    def _depth(self) -> int:
        """The most levels between a node and its GPUs."""
        return max((len(shape.levels) for shape in self._shapes), default=0)

    def tree(self) -> Tree:
        """Return the tree."""
        deepest = max((shape.levels for shape in self._shapes), key=len, default=())
        return Tree.from_parents(
            np.concatenate(self._parents),
            np.concatenate(self._uplinks),
            np.concatenate(self._levels),
            level_names=[*self._level_names, *(level.name for level in deepest), "gpu"],
            labels=self.names,
        )
