"""Drawings of topologies with jobs in them."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from headgate.model.topology import FatTree, Mesh, Topology, Tree
from headgate.reports import colours
from headgate.reports.topology import Occupancy, as_text
from headgate.reports.topology_svg import as_svg

TREE = Tree.uniform([2, 2, 2], [2e9, 1e9, 4e9], level_names=["core", "rack", "node", "gpu"])


def occupancy(topology: Topology, held: dict[int, list[str]], down: int = -1) -> Occupancy:
    leaves = range(topology.leaves)
    return Occupancy(
        topology=topology,
        holders=[held.get(leaf, []) for leaf in leaves],
        usable=[leaf != down for leaf in leaves],
    )


def test_tree_shows_a_letter_per_job() -> None:
    found = as_text(occupancy(TREE, {0: ["b"], 2: ["a"], 3: ["a"], 4: ["a", "b"]}, down=7))
    assert (
        found
        == """\
core 0      3 of 7 free
  rack 0    1 of 4 free  1.9 GiB/s
    node 0  A.  1 of 2 free
    node 1  BB  0 of 2 free
  rack 1    2 of 3 free  1.9 GiB/s
    node 2  *.  1 of 2 free
    node 3  .-  1 of 1 free

A b  B a  * several jobs  . free  - down or unknown"""
    )


def test_tree_shows_the_use_of_links() -> None:
    load = np.zeros(TREE.links)
    load[TREE.route(0, 4)] = 0.5
    found = as_text(occupancy(TREE, {}), load).splitlines()
    assert [line.rpartition("  ")[2] for line in found[:4]] == [
        "8 of 8 free", "link 50%", "link 50%", "2 of 2 free",
    ]  # fmt: skip


def test_fat_tree_shows_the_busiest_link_above_each_switch() -> None:
    tree = FatTree(4)  # two leaves on an edge switch, two of these in a pod
    load = np.zeros(tree.links)
    load[tree.route(0, 5)], load[tree.route(0, 2)] = 0.5, 0.75
    lines = as_text(occupancy(tree, {}), load).splitlines()
    uses = [line.rpartition("link ")[2] for line in lines if "link " in line]
    assert uses == ["50%", "75%", "75%", "50%", "50%"], "pod 0, its switches, pod 1, its first"
    ET.fromstring(as_svg(occupancy(tree, {}), load))
    assert "link 75%" in as_svg(occupancy(tree, {}), load)


def test_mesh_shows_the_use_of_links_between_neighbours() -> None:
    mesh = Mesh([2, 3], wrap=[False, True])
    load = np.zeros(mesh.links)
    load[mesh.route(0, 4)] = 0.58  # down, then right
    load[mesh.route(1, 2)] = 1.0
    load[mesh.route(0, 2)] = 0.25  # around the edge
    assert as_text(occupancy(mesh, {0: ["a"]}), load).splitlines()[:6] == [
        "2 x 3 mesh, 5 of 6 free",
        "A .9.",
        "5",
        ".5. .",
        "",
        "0 to 9 between two: use of their link in tenths, rounded down",
    ]
    assert "at most 25%" in as_text(occupancy(mesh, {}), load)


def test_mesh_is_drawn_as_a_grid() -> None:
    assert (
        as_text(occupancy(Mesh([2, 3]), {0: ["a"], 1: ["a"], 5: ["b"]}))
        == """\
2 x 3 mesh, 3 of 6 free
A A .
. . B

A a  B b  . free"""
    )
    assert "plane 1" in as_text(occupancy(Mesh([2, 2, 2]), {}))
    assert as_text(occupancy(Mesh.array(3), {})).splitlines()[1] == ". . ."


def test_many_nodes_are_drawn_by_rack_and_many_jobs_share_a_letter() -> None:
    tree = Tree.uniform([4, 64, 1], level_names=["core", "rack", "node", "gpu"])
    found = as_text(occupancy(tree, {leaf: [f"j{leaf}"] for leaf in range(70)}))
    assert len(found.splitlines()) == 7
    assert "# other jobs" in found


@pytest.mark.parametrize("topology", [TREE, Mesh([3, 4]), Mesh([2, 2, 2], wrap=True), FatTree(4)])
def test_svg_has_a_box_for_every_leaf_and_shows_the_use_of_links(topology: Topology) -> None:
    drawn = occupancy(topology, {0: ["<a>"]})
    load = np.zeros(topology.links)
    load[topology.route(0, 1)] = 0.75
    for svg, hot in ((as_svg(drawn), False), (as_svg(drawn, load), True)):
        root = ET.fromstring(svg)
        titles = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}title")]
        assert sum(": free" in t or ": <a>" in t for t in {*titles}) == topology.leaves
        assert any("75%" in title for title in titles) == hot


def test_svg_names_jobs_and_groups_and_says_what_red_means() -> None:
    levels = ["core", "rack", "node", "socket", "gpu"]
    tree = Tree.uniform([2, 4, 2, 4], [2e9, 1e9, 4e9, 4e9], level_names=levels)
    drawn = occupancy(tree, {0: ["train-7"], 1: ["train-7"], 9: ["eval-16", "eval-24"]}, down=5)
    load = np.zeros(tree.links)
    load[tree.route(0, 40)] = 1.0
    svg = as_svg(drawn, load)
    words = [each.text for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]

    for job, letter in drawn.letters.items():
        assert f"{letter} {job}" in words, "in the legend"
        assert f'fill="{colours.fill(job)}"' in svg
    assert words.count("A") == 2, "on its GPUs"
    names = {str(word).partition(" · ")[0] for word in words}
    assert {f"socket {number}" for number in range(16)} <= names
    assert {"node 0", "rack 1", "free", "down or unknown"} <= names
    assert "rack 1 · 100%" in words
    assert any("red is a full link" in str(word) for word in words)
    assert f'fill="{colours.heat(1.0)}"' in svg
    assert "red" not in as_svg(drawn), "without loads nothing is red"
    assert 'role="img" aria-labelledby="name"' in svg


def test_svg_of_a_large_cluster_has_bands_that_are_as_wide_as_the_page() -> None:
    tree = Tree.uniform([4, 16, 8], level_names=["core", "rack", "node", "gpu"])
    root = ET.fromstring(as_svg(occupancy(tree, {})))
    boxes = [each.attrib for each in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert max(float(box["x"]) + float(box["width"]) for box in boxes) <= 960
    assert min(float(box["width"]) for box in boxes) >= 13
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(f"node {number}" in words for number in range(64))
