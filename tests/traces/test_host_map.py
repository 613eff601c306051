"""Maps of hosts to switches."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.base.errors import SpecError
from headgate.model.topology import ClusterTree, Tree
from headgate.traces.host_map import read_host_map

ROWS = [
    ("g", "p1", "s1", "a"), ("g", "p2", "s1", "b"), ("g", "p1", "s1", "c"), ("g", "p1", "s2", "d"),
]  # fmt: skip
COLUMNS = ("core_switch", "agg_switch", "tor_switch", "host")
LINGJUN = next(
    (
        parent / "shared/traces/lingjun2023_topology.parquet"
        for parent in Path(__file__).parents
        if (parent / "shared/traces/lingjun2023_topology.parquet").is_file()
    ),
    None,
)


def written(tmp_path: Path, rows: list[tuple[str | None, ...]]) -> Path:
    columns = {
        name: pa.array([row[number] for row in rows], pa.string())
        for number, name in enumerate(COLUMNS)
    }
    pq.write_table(pa.table(columns), tmp_path / "map.parquet")
    return tmp_path / "map.parquet"


def graph_of(tree: ClusterTree) -> nx.DiGraph[str]:
    return nx.DiGraph(
        (tree.names[parent], name)
        for name, parent in zip(tree.names, tree.parents, strict=True)
        if parent >= 0
    )


def test_racks_of_one_name_below_different_switches_are_different(tmp_path: Path) -> None:
    tree = read_host_map(written(tmp_path, ROWS), host_bytes_per_s=1e9, oversubscription=2)
    assert tree.level_names == ("core", "agg", "tor", "node")
    assert sorted(graph_of(tree).edges) == [
        ("g", "p1"), ("g", "p2"), ("p1", "p1/s1"), ("p1", "p1/s2"), ("p1/s1", "a"), ("p1/s1", "c"),
        ("p1/s2", "d"), ("p2", "p2/s1"), ("p2/s1", "b"),
    ]  # fmt: skip
    assert dict(zip(tree.names, tree.bytes_per_s, strict=True))["p1"] == 1.5e9
    assert sorted(tree.nodes) == ["a", "b", "c", "d"]


def test_several_cores_are_below_one_network(tmp_path: Path) -> None:
    tree = read_host_map(written(tmp_path, [*ROWS, ("h", "p1", "s1", "e")]))
    assert tree.level_names == ("network", "core", "agg", "tor", "node")
    assert sorted(graph_of(tree)["network"]) == ["g", "h"]
    assert "h/p1/s1" in tree.names


def test_wrong_maps_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the host a has two places"):
        read_host_map(written(tmp_path, [*ROWS, ("g", "p1", "s2", "a")]))
    with pytest.raises(SpecError, match="has no name"):
        read_host_map(written(tmp_path, [*ROWS, ("g", None, "s2", "e")]))
    with pytest.raises(SpecError, match="has no hosts"):
        read_host_map(written(tmp_path, []))
    with pytest.raises(SpecError, match="is no map with the columns core, host"):
        read_host_map(written(tmp_path, ROWS), switches=["core"])
    with pytest.raises(SpecError, match="is no map"):
        read_host_map(tmp_path / "absent.parquet")


@pytest.mark.skipif(LINGJUN is None, reason="the recorded map is not beside this checkout")
def test_recorded_map_of_a_production_cluster_loads() -> None:
    assert LINGJUN is not None
    tree = read_host_map(LINGJUN)
    rows = pq.read_table(LINGJUN).to_pylist()
    assert sorted(tree.nodes) == sorted(row["host"] for row in rows)
    racks = {(row["agg_switch"], row["tor_switch"]) for row in rows}
    assert tree.levels.count(2) == len(racks) > 48  # more than there are names of racks
    built = Tree.from_parents(tree.parents, tree.bytes_per_s, tree.levels)
    assert built.leaves == 847
    graph = graph_of(tree).to_undirected()
    leaf = {tree.names[v]: int(built.first_leaf[i]) for i, v in enumerate(built.given.tolist())}
    for a, b in zip(tree.nodes[:40], tree.nodes[::-20], strict=False):
        assert built.hops(leaf[a], leaf[b]) == nx.shortest_path_length(graph, a, b)
