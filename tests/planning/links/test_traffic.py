"""What a step of a job sends over which links, counted by hand, and its best possible set."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest

from headgate.model import Communication, Pattern
from headgate.model.topology import FatTree, Mesh, Topology, Tree
from headgate.planning.links.traffic import BestSets, best_sets, traffic_of

MB = 1e6


def sent(topology: Topology, leaves: list[int], pattern: Pattern, **more: int) -> dict[str, float]:
    """Return the bytes over each link, by its label, of a step of 12 bytes."""
    communication = Communication(pattern=pattern, bytes_per_step=12, step_s=1.0, **more)
    found = traffic_of(topology, np.array(leaves), communication)
    return {
        topology.link_label(link): flows * found.flow_bytes
        for link, flows in zip(found.links.tolist(), found.flows.tolist(), strict=True)
    }


LINE = Mesh.array(4, names=["a", "b", "c", "d"])


def test_ring_sends_to_the_next_rank_and_from_the_last_to_the_first() -> None:
    # 2 (p - 1) / p of 12 bytes: 16 for three ranks
    assert sent(LINE, [0, 1, 2], Pattern.RING) == {
        "a -> b": 16, "b -> c": 16, "c -> b": 16, "b -> a": 16,
    }  # fmt: skip


def test_ring_of_two_ranks_sends_both_ways() -> None:
    assert sent(LINE, [0, 1], Pattern.RING) == {"a -> b": 12, "b -> a": 12}


def test_tree_sends_to_the_parent_and_back() -> None:
    # 1 and 2 are below 0, 3 below 1
    assert sent(LINE, [0, 1, 2, 3], Pattern.TREE) == {
        "a -> b": 24, "b -> c": 24, "c -> d": 12, "b -> a": 24, "c -> b": 24, "d -> c": 12,
    }  # fmt: skip


def test_all_to_all_sends_a_part_to_every_other_rank() -> None:
    # 4 bytes for each of the three ranks
    assert sent(LINE, [0, 1, 2], Pattern.ALL_TO_ALL) == {
        "a -> b": 8, "b -> c": 8, "b -> a": 8, "c -> b": 8,
    }  # fmt: skip


def test_neighbours_are_those_in_the_squarest_grid_of_ranks() -> None:
    # a b over c d: a - b, c - d, a - c, b - d
    assert sent(LINE, [0, 1, 2, 3], Pattern.NEIGHBOURS) == {
        "a -> b": 24, "b -> c": 24, "c -> d": 24, "b -> a": 24, "c -> b": 24, "d -> c": 24,
    }  # fmt: skip


def test_pattern_none_sends_nothing() -> None:
    assert sent(LINE, [0, 1, 2, 3], Pattern.NONE) == {}


def test_ranks_are_in_the_order_of_leaves() -> None:
    assert sent(LINE, [3, 0, 2, 1], Pattern.RING) == sent(LINE, [0, 1, 2, 3], Pattern.RING)


def test_ranks_of_one_leaf_need_no_link() -> None:
    assert sent(LINE, [1, 1, 1], Pattern.ALL_TO_ALL) == {}
    # two ranks on each: four pairs of 3 bytes each way
    assert sent(LINE, [0, 0, 1, 1], Pattern.ALL_TO_ALL) == {"a -> b": 12, "b -> a": 12}


def test_processes_are_in_blocks_over_the_leaves() -> None:
    # six processes on two nodes: nine pairs of 2 bytes each way
    assert sent(LINE, [0, 1], Pattern.ALL_TO_ALL, processes=6) == {"a -> b": 18, "b -> a": 18}
    # a ring of six crosses the link once each way: 2 * 5 / 6 of 12 bytes
    assert sent(LINE, [0, 1], Pattern.RING, processes=6) == {"a -> b": 20, "b -> a": 20}


@pytest.mark.parametrize("pattern", [p for p in Pattern if p is not Pattern.NONE])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_on_a_random_tree_are_those_of_paths_found_independently(
    pattern: Pattern, seed: int
) -> None:
    random = Random(seed)
    parents = [-1, *(random.randrange(v) for v in range(1, 40))]
    tree = Tree.from_parents(parents)
    graph = nx.Graph([(int(tree.parent[v]), v) for v in range(1, tree.vertices)])
    ranks = sorted(random.choices(range(tree.leaves), k=9))
    want: dict[tuple[int, int], float] = {}
    pairs = {
        Pattern.RING: [(i, (i + 1) % 9, 2 * 8 / 9) for i in range(9)],
        Pattern.TREE: [
            pair for i in range(1, 9) for pair in ((i, (i - 1) // 2, 1.0), ((i - 1) // 2, i, 1.0))
        ],
        Pattern.ALL_TO_ALL: [(i, j, 1 / 9) for i in range(9) for j in range(9)],
        Pattern.NEIGHBOURS: [
            (i, j, 1.0)
            for i in range(9)
            for j in range(9)
            if abs(i // 3 - j // 3) + abs(i % 3 - j % 3) == 1
        ],
    }[pattern]
    for a, b, part in pairs:
        ends = (int(tree.leaf_vertex[ranks[a]]), int(tree.leaf_vertex[ranks[b]]))
        for hop in pairwise(nx.shortest_path(graph, *ends)):
            want[hop] = want.get(hop, 0.0) + part * 900
    found = traffic_of(
        tree, np.array(ranks), Communication(pattern=pattern, bytes_per_step=900, step_s=1)
    )
    got = {
        (int(tree.tail[link]), int(tree.head[link])): flows * found.flow_bytes
        for link, flows in zip(found.links, found.flows, strict=True)
    }
    assert got == pytest.approx(want)


# --- best possible sets ---------------------------------------------------------------------


def test_best_set_of_a_tree_is_the_smallest_subtree_of_the_widest_links() -> None:
    # two servers of four GPUs, of which the second is faster, and one of two
    tree = Tree.from_parents(
        [-1, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3], [1, 10, 10, 10, *[50] * 4, *[80] * 4, 99, 99]
    )
    assert [s.tolist() for s in best_sets(tree, 4)] == [[4, 5, 6, 7]]
    assert [s.tolist() for s in best_sets(tree, 2)] == [[8, 9]]
    assert [s.tolist() for s in best_sets(tree, 5)] == [[0, 1, 2, 3, 4]]
    assert [s.tolist() for s in best_sets(tree, 11)] == []


def test_best_sets_of_a_mesh_are_the_boxes_of_least_diameter() -> None:
    mesh = Mesh([3, 4])
    assert sorted(s.tolist() for s in best_sets(mesh, 6)) == [
        [0, 1, 2, 4, 5, 6], [0, 1, 4, 5, 8, 9],
    ]  # fmt: skip


def test_best_set_of_a_fat_tree_is_in_one_pod() -> None:
    assert [s.tolist() for s in best_sets(FatTree(4), 3)] == [[0, 1, 2]]


def test_step_in_the_best_set_is_that_of_as_many_ranks_on_few_leaves() -> None:
    sets = BestSets(Mesh.array(4, 10.0))
    ring = Communication(pattern=Pattern.RING, bytes_per_step=40, step_s=1.0)
    assert sets.step_s(ring, 2) == 1 + 40 / 10
    assert sets.step_s(ring, 2, per_leaf=2) == 1.0, "both on one leaf"
    assert sets.step_s(ring, 5) == np.inf, "there are four leaves"


def test_step_in_the_best_set_follows_bytes_and_computing_of_each_job() -> None:
    sets = BestSets(Mesh.array(4, 10.0))
    for size, step_s in ((40, 1.0), (0, 2.0), (80, 0.5)):
        ring = Communication(pattern=Pattern.RING, bytes_per_step=size, step_s=step_s)
        assert sets.step_s(ring, 2) == step_s + size / 10


def test_four_gpus_on_four_servers_run_at_less_than_half_the_speed_of_one_server() -> None:
    """Spec of the training effect: ResNet50, 25.6 million parameters, 32 images on a V100."""
    nvlink, pcie, ethernet = 25e9, 12e9, 1.25e9  # bytes per second
    tree = Tree.uniform([2, 2, 2, 4], [4 * ethernet, ethernet, pcie, nvlink])
    training = Communication(pattern=Pattern.RING, bytes_per_step=102_400_000, step_s=0.09)
    together = traffic_of(tree, np.arange(4), training).step_alone_s(tree.capacity)
    apart = traffic_of(tree, np.array([0, 8, 16, 24]), training).step_alone_s(tree.capacity)
    assert BestSets(tree).step_s(training, 4) == together
    assert apart / together > 2
