"""Topologies against networkx: distances, routes, diameters, closed sets, bad values."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.shapes import (
    fat_trees,
    graph_of,
    leaf_vertex,
    leaves_of,
    meshes,
    routers_between,
    topologies,
    trees,
    walked,
)

from headgate.model.topology import Annexed, BadTopology, FatTree, Mesh, Topology, Tree


@given(data=st.data(), topology=topologies())
def test_routes_are_shortest_paths(data: st.DataObject, topology: Topology) -> None:
    graph = graph_of(topology)
    leaf = st.integers(0, topology.leaves - 1)
    pairs = data.draw(st.lists(st.tuples(leaf, leaf), min_size=1, max_size=12))
    a, b = np.array(pairs).T
    hops = topology.hops(a, b)
    offset, links = topology.routes(a, b)
    for i, (start, end) in enumerate(pairs):
        shortest = nx.shortest_path_length(
            graph, leaf_vertex(topology, start), leaf_vertex(topology, end)
        )
        assert hops[i] == offset[i + 1] - offset[i] == shortest
        assert links[offset[i] : offset[i + 1]].tolist() == topology.route(start, end).tolist()
        assert len(walked(topology, start, end)) == shortest + 1


@given(data=st.data(), topology=topologies())
def test_sets_have_the_diameter_routers_and_narrowest_link_of_their_routes(
    data: st.DataObject, topology: Topology
) -> None:
    leaves = leaves_of(data.draw, topology)[:12]
    graph = graph_of(topology)
    ends = [leaf_vertex(topology, leaf) for leaf in leaves]
    apart = [nx.shortest_path_length(graph, a, b) for a in ends for b in ends]
    assert topology.diameter(leaves) == max(apart)
    routers = topology.routers_of(leaves)
    assert routers.tolist() == routers_between(topology, leaves).tolist()
    assert topology.is_closed(leaves, routers)
    assert len(routers) == 0 or not topology.is_closed(leaves, routers[1:])
    crossed = [topology.capacity[topology.route(a, b)] for a in leaves for b in leaves]
    assert topology.narrowest(leaves) == min(each.min(initial=np.inf) for each in crossed)


@given(tree=trees())
def test_a_tree_is_numbered_in_preorder(tree: Tree) -> None:
    graph = nx.DiGraph([(int(p), v) for v, p in enumerate(tree.parent) if p >= 0])
    graph.add_node(0)
    assert nx.is_arborescence(graph)
    for vertex in range(tree.vertices):
        inside = sorted({vertex} | nx.descendants(graph, vertex))
        assert inside == list(range(vertex, tree.end[vertex]))
        leaves = [v for v in inside if graph.out_degree(v) == 0]
        below = tree.leaf_vertex[tree.first_leaf[vertex] : tree.end_leaf[vertex]]
        assert below.tolist() == leaves
        assert tree.children(vertex).tolist() == sorted(graph.successors(vertex))
        assert tree.depth[vertex] == nx.shortest_path_length(graph, 0, vertex)


@given(data=st.data(), tree=trees())
def test_subtrees_of_a_tree(data: st.DataObject, tree: Tree) -> None:
    subtrees = [range(tree.first_leaf[v], tree.end_leaf[v]) for v in range(tree.vertices)]
    diameters = tree.subtree_diameters()
    assert diameters.tolist() == [tree.diameter(list(leaves)) for leaves in subtrees]
    count = data.draw(st.integers(1, tree.leaves))
    fitting = [d for d, leaves in zip(diameters, subtrees, strict=True) if len(leaves) >= count]
    assert tree.least_diameter(count) == (min(fitting) if count > 1 else 0)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=tree.leaves, max_size=tree.leaves))
    )
    assert tree.counts(chosen).tolist() == [int(chosen[list(leaves)].sum()) for leaves in subtrees]
    some = leaves_of(data.draw, tree)
    common = tree.lowest_common(some)
    assert all(leaf in subtrees[common] for leaf in some)
    assert not any(set(some) <= set(subtrees[v]) for v in tree.children(common))


@given(data=st.data(), mesh=meshes())
def test_least_diameter_of_a_mesh_is_that_of_a_box(data: st.DataObject, mesh: Mesh) -> None:
    count = data.draw(st.integers(1, mesh.leaves))
    boxes = itertools.product(*[range(1, size + 1) for size in mesh.shape])
    numbers = np.arange(mesh.leaves).reshape(mesh.shape)
    diameters = [
        mesh.diameter(numbers[tuple(slice(side) for side in box)].ravel())
        for box in boxes
        if np.prod(box) >= count
    ]
    assert mesh.least_diameter(count) == min(diameters)


@given(count=st.integers(1, 400))
def test_published_diameters(count: int) -> None:
    side = int(np.ceil(np.sqrt(count)))
    assert Mesh([20, 20]).least_diameter(count) == side + -(-count // side) - 2
    assert Mesh.array(400).least_diameter(count) == count - 1
    levels = next(i for i in range(9) if 3**i >= count)
    assert Tree.k_ary(3, 6).least_diameter(count) == 2 * levels


@given(data=st.data(), tree=trees())
def test_a_subtree_is_closed(data: st.DataObject, tree: Tree) -> None:
    vertex = data.draw(st.integers(0, tree.vertices - 1))
    leaves = np.arange(tree.first_leaf[vertex], tree.end_leaf[vertex])
    assert tree.is_closed(leaves, np.arange(vertex, tree.end[vertex]))


@given(data=st.data(), mesh=meshes())
def test_a_box_is_closed(data: st.DataObject, mesh: Mesh) -> None:
    sides = []
    closed = True
    for axis, size in enumerate(mesh.shape):
        low = data.draw(st.integers(0, size - 1))
        high = data.draw(st.integers(low + 1, size))
        sides.append(slice(low, high))
        closed &= mesh.is_closed_side(axis, high - low)
    box = np.arange(mesh.leaves).reshape(mesh.shape)[tuple(sides)].ravel()
    assert mesh.is_closed(box, box) == closed


def test_torus_routes_go_the_shorter_way_around() -> None:
    ring = Mesh.array(6, wrap=True)
    assert walked(ring, 5, 1) == [5, 0, 1]
    assert walked(ring, 1, 4) == [1, 2, 3, 4]  # both ways are equal: upwards
    assert walked(ring, 4, 1) == [4, 5, 0, 1]


def test_dimension_order_routing() -> None:
    mesh = Mesh([3, 3], names=list("abcdefghi"))
    assert [mesh.label(v) for v in walked(mesh, 0, 8)] == list("adghi")
    assert mesh.routers_of([0, 8]).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]  # there and back
    assert [mesh.link_label(link) for link in mesh.route(8, 5)] == ["i -> f"]
    assert Mesh([2, 3]).label(5) == "(1, 2)"


def test_fat_tree_has_as_many_links_on_every_level_and_spreads_destinations() -> None:
    fat = FatTree(4)
    assert (fat.leaves, fat.vertices, fat.links) == (16, 36, 96)
    used = [set(fat.route(0, b).tolist()) for b in (12, 13)]  # neighbours of an edge switch
    assert used[0] & used[1] == {0}  # share but the link that leaves the sender
    assert fat.tree.uplink[1] == 4.0
    assert fat.label(35) == "core 3"


def test_annexed_leaves_are_on_links_of_their_own_far_from_all_others() -> None:
    mesh = Mesh([2, 2], bandwidth=8.0, names=list("abcd"))
    both = Annexed(mesh, ["x", "y"], 5.0)
    assert (both.leaves, both.links, both.names) == (6, mesh.links + 4, tuple("abcdxy"))
    assert both.hops([0, 3, 4, 4, 4], [3, 4, 0, 5, 4]).tolist() == [2, 3, 3, 3, 0]
    offset, links = both.routes([3, 0, 4, 4, 5], [4, 3, 1, 5, 5])
    assert offset.tolist() == [0, 1, 3, 4, 6, 6]
    assert [both.link_label(link) for link in links.tolist()] == [
        "elsewhere -> x", "a -> c", "c -> d", "x -> elsewhere", "x -> elsewhere", "elsewhere -> y",
    ]  # fmt: skip
    assert both.capacity[links].tolist() == [5.0, 8.0, 8.0, 5.0, 5.0, 5.0]
    assert [both.diameter(each) for each in ([0, 1], [4], [3, 5], [])] == [1, 0, 3, 0]
    assert [both.narrowest(each) for each in ([0, 1], [5], [3, 5])] == [8.0, np.inf, 5.0]
    assert [both.least_diameter(count) for count in (1, 4, 5, 6)] == [0, 2, 3, 3]
    assert both.routers_of([1, 4]).tolist() == [6]
    with pytest.raises(BadTopology, match="7 leaves of a topology that has 6"):
        both.least_diameter(7)


@given(data=st.data(), topology=st.one_of(meshes(), fat_trees()))
def test_annexed_leaves_change_nothing_of_the_others(
    data: st.DataObject, topology: Topology
) -> None:
    both = Annexed(topology, ["x"] * data.draw(st.integers(1, 3)), 1.0)
    leaves = leaves_of(data.draw, topology)[:6]
    a, b = np.array([*itertools.product(leaves, leaves)]).T
    assert both.hops(a, b).tolist() == topology.hops(a, b).tolist()
    for found, expected in zip(both.routes(a, b), topology.routes(a, b), strict=True):
        assert found.tolist() == expected.tolist()
    for ask in ("diameter", "narrowest"):
        assert getattr(both, ask)(leaves) == getattr(topology, ask)(leaves)
    assert both.routers_of(leaves).tolist() == topology.routers_of(leaves).tolist()
    assert both.label(leaves[0]) == topology.label(leaves[0])


def test_tree_of_named_vertices() -> None:
    tree = Tree.from_parents(
        [2, 2, -1, 0, 0, 1], [2, 4, 1, 8, 8, 16], labels=["r1", "r2", "top", "a", "b", "c"]
    )
    assert [tree.label(v) for v in range(6)] == ["top", "r1", "a", "b", "r2", "c"]
    assert tree.given.tolist() == [2, 0, 3, 4, 1, 5]
    assert tree.uplink[1:].tolist() == [2, 8, 8, 4, 16]
    assert [tree.link_label(link) for link in tree.route(0, 2)] == [
        "a -> r1", "r1 -> top", "top -> r2", "r2 -> c",
    ]  # fmt: skip
    assert (tree.narrowest([0, 1]), tree.narrowest([1, 2]), tree.narrowest([1])) == (8, 2, np.inf)
    named = Tree.uniform([2, 2], [4.0, 1.0], level_names=["core", "rack", "node"])
    assert [named.label(v) for v in (0, 4, 5)] == ["core 0", "rack 1", "node 2"]


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: Tree.from_parents([-1, 2, 1]), "vertex 1 is part of or below a cycle"),
        (lambda: Tree.from_parents([-1, -1]), "a tree has one root, not 2"),
        (lambda: Tree.from_parents([]), "no vertices"),
        (lambda: Tree.from_parents([-1, 7]), "vertex 7 is the parent of a vertex"),
        (lambda: Tree.from_parents([-1, 0], [1, 0]), "must be more than 0, not 0"),
        (lambda: Tree.from_parents([-1, 0], [1, np.nan]), "must be more than 0, not nan"),
        (lambda: Tree.from_parents([-1, 0, 1], levels=[0, 2, 1]), "of a lower level"),
        (lambda: Tree.from_parents([-1, 0], names=["a", "b"]), "2 names for 1 leaves"),
        (lambda: Tree.from_parents([-1, 0], level_names=["top"]), "2 levels, but 1 level names"),
        (lambda: Tree.k_ary(0, 2), "0 children"),
        (lambda: Tree.uniform([2, 0]), "every vertex above the leaves needs a child"),
        (lambda: Tree.uniform([2, 2], [1.0]), "1 bandwidths for 2 levels"),
        (lambda: Mesh([]), "1 to 3 dimensions"),
        (lambda: Mesh([2, 2, 2, 2]), "1 to 3 dimensions"),
        (lambda: Mesh([0, 2]), "1 to 3 dimensions of at least 1"),
        (lambda: Mesh([4, 4], wrap=[True]), "1 values of wrap for 2 dimensions"),
        (lambda: Mesh([4, 4], bandwidth=[1.0]), "1 bandwidths for 2 dimensions"),
        (lambda: Mesh([4, 4], bandwidth=-1.0), "must be more than 0, not -1"),
        (lambda: Mesh([4, 4], names=["a"]), "1 names for 16 leaves"),
        (lambda: Mesh([4, 4]).least_diameter(17), "17 leaves of a topology that has 16"),
        (lambda: FatTree(3), "an even number of ports, not 3"),
    ],
)
def test_bad_values_are_rejected(build: Callable[[], object], problem: str) -> None:
    with pytest.raises(BadTopology, match=problem):
        build()
