"""Where nodes and GPUs are in the topology of a cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.journal import decode_snapshot, encode_snapshot
from headgate.machine import apply
from headgate.model import Bandwidth, Communication, Gpu, Node, Pattern
from headgate.model.topology import (
    ClusterFatTree,
    ClusterMesh,
    ClusterTopology,
    ClusterTree,
    GroupLevel,
    NodeShape,
    Tree,
)
from headgate.planning.links.traffic import traffic_of
from headgate.planning.topology.fabric import GPU_BYTES_PER_S, Fabric
from headgate.protocol import BandwidthMeasured, Event, NodeJoined, NodeLost, TopologyChanged
from headgate.state import State, thaw

BANDWIDTH = Bandwidth(disk_bytes_per_s=9e8, rack_bytes_per_s=1e8, cluster_bytes_per_s=5e7)
SHAPE = NodeShape(
    levels=(
        GroupLevel(name="socket", bytes_per_s=8e9, groups=((0, 1), (2, 3))),
        GroupLevel(name="switch", bytes_per_s=4e9, groups=((0,), (1,), (2, 3))),
    ),
    gpu_bytes_per_s=2e9,
)
TREE = ClusterTree(
    level_names=("core", "rack", "node"),
    names=("core", "r1", "r2", "a", "b", "absent"),
    parents=(-1, 0, 0, 1, 2, 2),
    levels=(0, 1, 1, 2, 2, 2),
    bytes_per_s=(1.0, 3e8, 2e8, 1e8, 1e8, 1e8),
    shapes=(SHAPE,),
    shape=(-1, -1, -1, 0, -1, -1),
)


def node(name: str, gpus: int, rack: str = "r1", incarnation: str = "") -> Node:
    return Node(id=name, rack=rack, gpus=(Gpu(memory_bytes=1),) * gpus, incarnation=incarnation)


def state_of(*nodes: Node, topology: ClusterTopology | None = None) -> State:
    state = State()
    give(state, BandwidthMeasured(at=0.0, bandwidth=BANDWIDTH))
    give(state, TopologyChanged(at=0.0, topology=topology))
    for each in nodes:
        give(state, NodeJoined(at=0.0, node=each))
    return state


def give(state: State, event: Event) -> bool:
    return apply(state, event).decide


def place(fabric: Fabric, leaf: int) -> list[str]:
    """Return the names of the vertices above a leaf, from the leaf up."""
    tree = fabric.topology
    assert isinstance(tree, Tree)
    at, found = int(tree.leaf_vertex[leaf]), []
    while at >= 0:
        found.append(tree.label(at))
        at = int(tree.parent[at])
    return found


def test_without_a_topology_the_tree_is_that_of_racks() -> None:
    nodes = node("a", 2), node("b", 0), node("c", 1, rack="r2")
    fabric = Fabric.of(state_of(*nodes).freeze())
    tree = fabric.topology
    assert isinstance(tree, Tree)
    assert tree.level_names == ("core", "rack", "node", "gpu")
    assert [place(fabric, leaf) for leaf in range(tree.leaves)] == [
        ["a:0", "a", "r1", "core"],
        ["a:1", "a", "r1", "core"],
        ["b", "r1", "core"],
        ["c:0", "c", "r2", "core"],
    ]
    assert fabric.leaf_node.tolist() == [0, 0, 1, 2]
    assert fabric.leaf_gpu.tolist() == [0, 1, -1, 2]
    assert (fabric.first_leaf.tolist(), fabric.end_leaf.tolist()) == ([0, 2, 3], [2, 3, 4])
    assert tree.narrowest([0, 1]) == GPU_BYTES_PER_S
    assert tree.narrowest([0, 2]) == 1e8
    assert tree.uplink[tree.parent[fabric.vertex]].tolist() == [1e8, 1e8, 5e7]


def test_topology_with_groups_below_a_node_and_nodes_without_a_place() -> None:
    nodes = node("b", 1), node("a", 4), node("far", 1, "r3"), node("cpu", 0, "")
    fabric = Fabric.of(state_of(*nodes, topology=TREE).freeze())
    assert place(fabric, fabric.gpu_leaf[2]) == ["a:1", "a/switch1", "a/socket0", "a", "r1", "core"]
    assert fabric.topology.hops(*fabric.gpu_leaf[[1, 2]]) == 4
    assert fabric.topology.hops(*fabric.gpu_leaf[[3, 4]]) == 2
    assert place(fabric, fabric.gpu_leaf[0]) == ["b:0", "b", "r2", "core"]
    assert place(fabric, fabric.gpu_leaf[5]) == ["far:0", "far", "core"]
    assert place(fabric, fabric.first_leaf[3]) == ["cpu", "core"]
    assert fabric.topology.narrowest(fabric.gpu_leaf[[0, 5]]) == 1e8
    absent = np.flatnonzero(fabric.leaf_node < 0)
    assert [place(fabric, leaf)[0] for leaf in absent] == ["absent"]


def test_node_with_fewer_gpus_than_its_shape_has_those() -> None:
    fabric = Fabric.of(state_of(node("a", 3), topology=TREE).freeze())
    assert place(fabric, fabric.gpu_leaf[2])[:3] == ["a:2", "a/switch2", "a/socket2"]
    assert fabric.end_leaf[0] - fabric.first_leaf[0] == 3


def test_mesh_and_fat_tree_have_a_leaf_per_node() -> None:
    mesh = ClusterMesh(
        sides=(2, 2), wrap=(False, False), bytes_per_s=(1e8, 1e8), nodes=("a", "x", "b", "y")
    )
    fabric = Fabric.of(state_of(node("b", 2), node("far", 1), node("a", 1), topology=mesh).freeze())
    assert fabric.gpu_leaf.tolist() == [2, 2, 4, 0]
    assert fabric.leaf_node.tolist() == [2, -1, 0, -1, 1]
    assert fabric.first_leaf.tolist() == [2, 4, 0]
    assert fabric.end_leaf.tolist() == [3, 5, 1]
    assert fabric.vertex.tolist() == [2, -1, 0]
    fat = ClusterFatTree(ports=4, bytes_per_s=(1e8, 1e8, 1e8), nodes=("a", "b"))
    fabric = Fabric.of(state_of(node("b", 1), topology=fat).freeze())
    assert (fabric.topology.leaves, fabric.gpu_leaf.tolist()) == (16, [1])


@pytest.mark.parametrize(
    "topology",
    [
        ClusterMesh(sides=(2,), wrap=(False,), bytes_per_s=(1e8,), nodes=("a", "b")),
        ClusterMesh(sides=(1,), wrap=(False,), bytes_per_s=(1e8,), nodes=("a",)),
        ClusterFatTree(ports=2, bytes_per_s=(1e9, 1e8, 2e8), nodes=("a", "b")),
        TREE,
    ],
)
def test_nodes_that_a_topology_does_not_name_have_leaves_far_from_all_others(
    topology: ClusterTopology,
) -> None:
    nodes = [node(name, 1, rack="elsewhere") for name in ("a", "new", "newer")]
    fabric = Fabric.of(state_of(*nodes, topology=topology).freeze())
    known, *unnamed = fabric.first_leaf.tolist()
    assert len({known, *unnamed}) == 3
    assert fabric.leaf_node[[known, *unnamed]].tolist() == [0, 1, 2]
    everywhere = np.arange(fabric.shape.leaves)
    assert fabric.topology.hops(known, unnamed[0]) >= fabric.shape.diameter(everywhere)
    ring = Communication(pattern=Pattern.RING, bytes_per_step=100, processes=2)
    for leaves in ([known, unnamed[0]], unnamed):
        sent = traffic_of(fabric.topology, np.array(leaves), ring)
        assert 0 < sent.alone_rate(fabric.topology.capacity) <= GPU_BYTES_PER_S


def test_a_node_that_a_tree_does_not_name_hangs_below_its_rack() -> None:
    tree = ClusterTree(
        level_names=("core", "aggregation", "rack", "node"),
        names=("core", "p1", "p2", "p1/r1", "p1/r2", "p2/r1", "a", "b", "c"),
        parents=(-1, 0, 0, 1, 1, 2, 3, 4, 5),
        levels=(0, 1, 1, 2, 2, 2, 3, 3, 3),
        bytes_per_s=(1.0, 3e9, 3e9, 2e9, 2e9, 2e9, 1e8, 2e8, 3e8),
    )
    racks = {"x": "p1/r1", "y": "r2", "z": "r1", "w": "p2", "v": "unknown"}
    nodes = [node(name, 0, rack) for name, rack in racks.items()]
    fabric = Fabric.of(state_of(*nodes, topology=tree).freeze())
    assert [place(fabric, leaf) for leaf in fabric.first_leaf.tolist()] == [
        ["x", "p1/r1", "p1", "core"],
        ["y", "p1/r2", "p1", "core"],  # the only rack of that name
        ["z", "core"],  # one of two racks of that name
        ["w", "p2", "core"],
        ["v", "core"],
    ]
    shape = fabric.topology
    assert isinstance(shape, Tree)
    assert shape.uplink[fabric.vertex].tolist() == [1e8, 2e8, 3e9, 2e9, 3e9]


def test_fabric_is_built_again_only_when_nodes_or_topology_change() -> None:
    state = state_of(node("a", 1), topology=TREE)
    first = Fabric.of(state.freeze())
    give(state, NodeLost(at=1.0, node="a"))
    assert Fabric.of(state.freeze()) is first
    give(state, NodeJoined(at=2.0, node=node("a", 2, incarnation="2")))
    second = Fabric.of(state.freeze())
    assert second.gpu_leaf.tolist() == [-1, 0, 1]
    assert not give(state, TopologyChanged(at=3.0, topology=TREE))
    assert Fabric.of(state.freeze()) is second
    assert give(state, TopologyChanged(at=4.0, topology=None))
    assert Fabric.of(state.freeze()) is not second
    other = Bandwidth(disk_bytes_per_s=1, rack_bytes_per_s=1, cluster_bytes_per_s=1)
    third = Fabric.of(state.freeze())
    give(state, BandwidthMeasured(at=5.0, bandwidth=other))
    assert Fabric.of(state.freeze()) is not third


def test_topology_is_part_of_stored_snapshots_and_of_hypothetical_states() -> None:
    snapshot = state_of(node("a", 1), topology=TREE).freeze()
    assert decode_snapshot(encode_snapshot(snapshot)).topology == TREE
    assert Fabric.of(thaw(snapshot).freeze()) is Fabric.of(snapshot)


def test_racks_below_aggregation_switches_are_a_tree_of_three_levels() -> None:
    racks = {"a": "p1/r1", "b": "p1/r2", "c": "p2/r1", "d": "r1"}
    nodes = [node(name, 1, rack=rack) for name, rack in racks.items()]
    fabric = Fabric.of(state_of(*nodes).freeze())
    tree = fabric.topology
    assert isinstance(tree, Tree)
    assert tree.level_names == ("core", "aggregation", "rack", "node", "gpu")
    assert place(fabric, fabric.gpu_leaf[0]) == ["a:0", "a", "p1/r1", "p1", "core"]
    assert place(fabric, fabric.gpu_leaf[3]) == ["d:0", "d", "r1", "core"]
    assert tree.hops(*fabric.gpu_leaf[[0, 1]]) == 6
    assert tree.uplink[tree.parent[tree.parent[fabric.vertex[0]]]] == 1e8  # of two nodes
    deep = [node("a", 1, rack="g/p/r"), node("b", 1, rack="g/p")]
    names = Fabric.of(state_of(*deep).freeze()).topology
    assert isinstance(names, Tree)
    assert names.level_names == ("root", "core", "aggregation", "rack", "node", "gpu")


def test_nodes_report_the_groups_of_their_gpus() -> None:
    reported = replace(node("far", 4), shape=SHAPE)
    fabric = Fabric.of(state_of(reported, node("a", 2), topology=TREE).freeze())
    assert place(fabric, fabric.gpu_leaf[3])[:4] == ["far:3", "far/switch2", "far/socket2", "far"]
    other = NodeShape(gpu_bytes_per_s=1e9)  # a file overrides what a node reports
    fabric = Fabric.of(state_of(replace(node("a", 4), shape=other), topology=TREE).freeze())
    assert place(fabric, fabric.gpu_leaf[3])[1] == "a/switch2"
