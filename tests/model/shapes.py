"""Random topologies, and the same as graphs of networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from headgate.model.topology import FatTree, Mesh, Topology, Tree


@st.composite
def trees(draw: st.DrawFn, most: int = 30) -> Tree:
    """Return any tree, given in any order of its vertices."""
    count = draw(st.integers(1, most))
    parents = [-1] + [draw(st.integers(0, v - 1)) for v in range(1, count)]
    order = draw(st.permutations(range(count)))
    given = [-1] * count
    for vertex, parent in enumerate(parents):
        given[order[vertex]] = -1 if parent < 0 else order[parent]
    uplink = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    return Tree.from_parents(given, uplink)


@st.composite
def meshes(draw: st.DrawFn, most: int = 7) -> Mesh:
    """Return a mesh, a torus, or a mixture, of one to three dimensions."""
    dimensions = draw(st.integers(1, 3))
    size = st.integers(1, most if dimensions < 3 else 4)
    shape = draw(st.lists(size, min_size=dimensions, max_size=dimensions))
    wrap = draw(st.lists(st.booleans(), min_size=dimensions, max_size=dimensions))
    speeds = draw(st.lists(st.integers(1, 9), min_size=dimensions, max_size=dimensions))
    return Mesh(shape, wrap=wrap, bandwidth=speeds)


def fat_trees() -> st.SearchStrategy[FatTree]:
    return st.builds(FatTree, st.sampled_from([2, 4, 6]), st.just([3.0, 2.0, 1.0]))


def topologies() -> st.SearchStrategy[Topology]:
    return st.one_of(trees(), meshes(), fat_trees())


def leaves_of(draw: st.DrawFn, topology: Topology, least: int = 1) -> list[int]:
    """Return some different leaves of a topology, in any order."""
    return draw(
        st.lists(
            st.integers(0, topology.leaves - 1), unique=True, min_size=min(least, topology.leaves)
        )
    )


def leaf_vertex(topology: Topology, leaf: int) -> int:
    return int(topology.leaf_vertex[leaf]) if isinstance(topology, Tree) else leaf


def graph_of(topology: Topology) -> Any:
    """Return the graph that the links of a topology make."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.vertices))
    for tail, head, capacity in zip(
        topology.tail.tolist(), topology.head.tolist(), topology.capacity.tolist(), strict=True
    ):
        assert not graph.has_edge(tail, head)
        graph.add_edge(tail, head, capacity=capacity)
    return graph


def walked(topology: Topology, a: int, b: int) -> list[int]:
    """Return the vertices on the route between leaves, checking that its links are connected."""
    at = leaf_vertex(topology, a)
    visited = [at]
    for link in topology.route(a, b).tolist():
        assert topology.tail[link] == at
        at = int(topology.head[link])
        visited.append(at)
    assert at == leaf_vertex(topology, b)
    return visited


def routers_between(topology: Topology, leaves: list[int]) -> np.ndarray[Any, Any]:
    """Return the routers on the routes of all pairs."""
    ends = set() if isinstance(topology, Mesh) else {leaf_vertex(topology, leaf) for leaf in leaves}
    visited = {v for a in leaves for b in leaves if a != b for v in walked(topology, a, b)}
    return np.array(sorted(visited - ends), np.int64)
