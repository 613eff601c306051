"""Topology files: what they describe, and every problem of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.base.errors import SpecError
from headgate.model import Gpu, Node
from headgate.model.topology import ClusterFatTree, ClusterMesh, ClusterTree, NodeShape
from headgate.spec import load_topology, topology_schema

ROOT = Path(__file__).parents[2]
BY_LEVEL = """\
levels: [{name: core}, {name: rack, bandwidth: 10GB}, {name: node, bandwidth: 1e8}]
tree:
  r1: [n1, n2]
  r2: "n[08-10]"
bandwidths: {r2: 5e9, n09: 5e7}
"""
BY_SWITCH = """\
levels: [{name: core}, {name: rack, bandwidth: 10GB}, {name: node, bandwidth: 1e8}]
switches:
  - {name: r2, members: ["n[08-10]"]}
  - {name: top, members: [r1, r2]}
  - {name: r1, members: [n1, n2]}
bandwidths: {r2: 5e9, n09: 5e7}
"""
TABLE = Path(__file__).with_name("bad-topologies.txt")


def cases() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for part in TABLE.read_text().split("\n=== ")[1:]:
        case, _, rest = part.partition("\n")
        text, _, problems = rest.partition("---\n")
        found[case] = (text, problems.strip().split("\n"))
    return found


BAD = cases()


@pytest.mark.parametrize("case", BAD)
def test_bad_topology(case: str) -> None:
    text, expected = BAD[case]
    with pytest.raises(SpecError) as refused:
        load_topology(text)
    assert [
        str(problem).removeprefix("topology ") for problem in refused.value.problems
    ] == expected


def placed(tree: ClusterTree) -> dict[str, tuple[str, str, float]]:
    """Return by vertex its parent, its level and its bandwidth."""
    return {
        name: (tree.names[parent] if parent >= 0 else "", tree.level_names[level], rate)
        for name, parent, level, rate in zip(
            tree.names, tree.parents, tree.levels, tree.bytes_per_s, strict=True
        )
    }


def test_tree_by_level_and_by_switch_are_the_same() -> None:
    tree, switches = load_topology(BY_LEVEL), load_topology(BY_SWITCH)
    assert isinstance(tree, ClusterTree)
    assert isinstance(switches, ClusterTree)
    found = placed(tree)
    assert found.pop("core") == ("", "core", float("inf"))
    assert found == {
        "r1": ("core", "rack", 10e9), "r2": ("core", "rack", 5e9), "n1": ("r1", "node", 1e8),
        "n2": ("r1", "node", 1e8), "n08": ("r2", "node", 1e8), "n09": ("r2", "node", 5e7),
        "n10": ("r2", "node", 1e8),
    }  # fmt: skip
    other = placed(switches)
    del other["top"]
    assert other == {
        name: ("top" if parent == "core" else parent, *rest)
        for name, (parent, *rest) in found.items()
    }
    assert sorted(tree.nodes) == sorted(switches.nodes) == ["n08", "n09", "n1", "n10", "n2"]


def test_switches_of_one_name_in_different_branches_are_different() -> None:
    tree = load_topology("""\
levels:
  - {name: core}
  - {name: aggregation, bandwidth: 4e9}
  - {name: rack, bandwidth: 2e9}
  - {name: node, bandwidth: 1e9}
tree:
  a1: {r1: [n1], r2: [n2]}
  a2: {r1: [n3]}
  a3: [n4]
""")
    assert isinstance(tree, ClusterTree)
    assert [tree.names[tree.parents[tree.names.index(n)]] for n in ("n1", "n3", "n4")] == [
        "a1/r1", "a2/r1", "a3",
    ]  # fmt: skip


def test_groups_of_gpus_below_nodes() -> None:
    tree = load_topology(
        BY_LEVEL
        + """\
gpus:
  count: 4
  bandwidth: 16e9
  levels: [{name: socket, bandwidth: 20e9, each: 2}]
nodes:
  "n[1-2]": {bandwidth: 8e9}
"""
    )
    assert isinstance(tree, ClusterTree)
    of = dict(zip(tree.names, tree.shape, strict=True))
    assert [of[name] for name in ("core", "r1", "n1", "n2", "n08")] == [-1, -1, 1, 1, 0]
    (socket,) = tree.shapes[0].levels
    assert socket.groups == ((0, 1), (2, 3))
    assert tree.shapes[1] == NodeShape(gpu_bytes_per_s=8e9)


def test_meshes_and_fat_trees() -> None:
    mesh = load_topology(
        'mesh: {shape: [2, 2], wrap: true, bandwidth: [2e9, 1GB], nodes: "n[0-3]"}'
    )
    assert mesh == ClusterMesh(
        sides=(2, 2), wrap=(True, True), bytes_per_s=(2e9, 1e9), nodes=("n0", "n1", "n2", "n3")
    )
    fat = load_topology("fat_tree: {ports: 4, bandwidth: 1e9, nodes: [a, b]}")
    assert fat == ClusterFatTree(ports=4, bytes_per_s=(1e9, 1e9, 1e9), nodes=("a", "b"))


def test_topology_is_compared_with_the_nodes_of_the_cluster() -> None:
    def node(name: str, gpus: int = 1, cpus: int = 4) -> Node:
        return Node(id=name, rack="r", gpus=(Gpu(memory_bytes=1),) * gpus, cpus=cpus)

    load_topology(BY_LEVEL, nodes=[node("n1"), node("far"), node("n2", gpus=0)])
    with pytest.raises(SpecError, match=r"n1 has no GPU and no CPU: a leaf needs one"):
        load_topology(BY_LEVEL, nodes=[node("n1", gpus=0, cpus=0)])
    with pytest.raises(SpecError, match="does not name the nodes a, b of the cluster"):
        load_topology(BY_LEVEL, nodes=[node("a"), node("b")])
    mesh = "mesh: {shape: [2], bandwidth: 1e9, nodes: [n1, n2]}"
    with pytest.raises(SpecError, match="does not name the nodes far of the cluster"):
        load_topology(mesh, nodes=[node("n1"), node("far")])


def test_schema_names_every_key() -> None:
    schema = topology_schema()
    assert set(schema["properties"]) == {
        "levels", "tree", "switches", "bandwidths", "gpus", "nodes", "mesh", "fat_tree",
    }  # fmt: skip


DOCUMENTED = re.findall(
    r"```yaml\n(.*?)```", (ROOT / "docs" / "topology.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize("number", range(len(DOCUMENTED)))
def test_documented_files_are_valid(number: int) -> None:
    assert load_topology(DOCUMENTED[number]).nodes
