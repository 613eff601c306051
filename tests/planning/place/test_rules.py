"""Placers on small machines, against brute force; the theorems of closed-minimum sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.shapes import fat_trees, meshes, topologies, trees
from tests.planning.place.placers import PLACERS

from headgate.base.arrays import Bools, Ints
from headgate.model.topology import FatTree, Mesh, Topology, Tree
from headgate.planning.place.choose import (
    BestFitSubtree,
    Block,
    ClosedMinimum,
    Cyclic,
    Placer,
    Sequential,
    nodes_needed,
    place_all,
)
from headgate.planning.topology import Places, Request, layout_of

WAIT = ClosedMinimum(otherwise="wait")


def closed_sets(topology: Topology) -> Iterator[Ints]:
    """Yield every subtree or closed box, as its leaves."""
    if isinstance(topology, Mesh):
        lines = [
            [
                (side, [(first + n) % size for n in range(side)])
                for side in range(1, size + 1)
                for first in range(size if wrap else size - side + 1)
                if topology.is_closed_side(axis, side)
            ]
            for axis, (size, wrap) in enumerate(zip(topology.shape, topology.wrap, strict=True))
        ]
        for sides in itertools.product(*lines):
            at = np.ix_(*[coordinates for _, coordinates in sides])
            yield np.sort(np.ravel_multi_index(at, topology.shape).ravel())
        return
    tree = topology.tree if isinstance(topology, FatTree) else topology
    assert isinstance(tree, Tree)
    for vertex in range(tree.vertices):
        yield np.arange(tree.first_leaf[vertex], tree.end_leaf[vertex])


def after_jobs(
    data: st.DataObject, topology: Topology, placer: Placer
) -> tuple[list[Places], Bools]:
    """Return the places of some jobs that came one after the other, and what they take."""
    used = np.zeros(topology.leaves, bool)
    found = []
    for count in data.draw(st.lists(st.integers(1, topology.leaves), max_size=6)):
        places = placer.choose(layout_of(topology), Request.on(used, count))
        if places is not None:
            assert not used[places.taken].any()
            used[places.taken] = True
            found.append(places)
    return found, used


@given(st.data(), topologies())
def test_jobs_in_closed_sets_share_no_router(data: st.DataObject, topology: Topology) -> None:
    """Theorem 1: no contention among disjoint closed sets."""
    found, _ = after_jobs(data, topology, ClosedMinimum(otherwise="enlarge"))
    routers = [
        set(topology.routers_of(places.sites).tolist()) for places in found if places.is_closed
    ]
    for one, other in itertools.combinations(routers, 2):
        assert not one & other


@given(meshes(most=5))
def test_every_box_of_a_mesh_is_closed(mesh: Mesh) -> None:
    """Theorem 2, for dimension-order routing; on a torus for sides of at most half, or all."""
    for leaves in closed_sets(mesh):
        assert mesh.is_closed(leaves, leaves)


@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
def test_least_diameter_of_boxes_in_a_wide_mesh(count: int, more: int, other: int) -> None:
    """Theorem 3, among boxes."""
    side = math.isqrt(count - 1) + 1
    sides = side + more, -(-count // side) + other
    for shape in (sides, sides[::-1]):
        mesh = Mesh(shape)
        places = WAIT.choose(layout_of(mesh), Request.on(np.zeros(mesh.leaves, bool), count))
        assert places is not None
        assert places.is_closed
        assert mesh.diameter(places.taken) == side + -(-count // side) - 2
        assert mesh.diameter(places.taken) == mesh.least_diameter(count)


def test_a_plus_of_five_has_a_smaller_diameter_than_any_box() -> None:
    """Theorem 3 does not hold among all sets."""
    mesh = Mesh((5, 5))
    assert mesh.diameter([7, 11, 12, 13, 17]) == 2
    assert mesh.least_diameter(5) == 3


@given(trees())
def test_every_subtree_is_closed(tree: Tree) -> None:
    """Theorem 4: its messages cross routers of the subtree alone."""
    for vertex in range(tree.vertices):
        leaves = np.arange(tree.first_leaf[vertex], tree.end_leaf[vertex])
        assert tree.is_closed(leaves, np.arange(vertex, tree.end[vertex]))


@given(st.integers(2, 5), st.integers(1, 4), st.data())
def test_least_diameter_in_a_k_ary_tree(k: int, levels: int, data: st.DataObject) -> None:
    """Theorem 5: twice the levels of the least subtree."""
    tree = Tree.k_ary(k, levels)
    count = data.draw(st.integers(1, tree.leaves))
    places = WAIT.choose(layout_of(tree), Request.on(np.zeros(tree.leaves, bool), count))
    assert places is not None
    height = next(n for n in range(levels + 1) if k**n >= count)
    assert len(places.taken) == k**height
    assert tree.diameter(places.taken) == (2 * height if len(places.taken) > 1 else 0)


@settings(max_examples=300)
@given(st.data(), topologies())
def test_a_closed_set_of_least_diameter_is_found_if_there_is_one(
    data: st.DataObject, topology: Topology
) -> None:
    _, used = after_jobs(data, topology, data.draw(st.sampled_from(PLACERS)))
    count = data.draw(st.integers(1, topology.leaves))
    places = WAIT.choose(layout_of(topology), Request.on(used, count))
    least = topology.least_diameter(count)
    fits = [
        leaves
        for leaves in closed_sets(topology)
        if len(leaves) >= count and topology.diameter(leaves) == least and not used[leaves].any()
    ]
    assert (places is not None) == bool(fits)
    if places is not None:
        assert any(np.array_equal(np.sort(places.taken), leaves) for leaves in fits)
        assert len(places.taken) == min(map(len, fits))
        assert len(set(places.sites.tolist())) == count
        assert set(places.sites.tolist()) <= set(places.taken.tolist())


@settings(max_examples=200)
@given(st.data(), topologies())
def test_enlarged_sets_are_closed_and_have_the_fewest_sites(
    data: st.DataObject, topology: Topology
) -> None:
    _, used = after_jobs(data, topology, data.draw(st.sampled_from(PLACERS)))
    count = data.draw(st.integers(1, topology.leaves))
    layout, request = layout_of(topology), Request.on(used, count)
    places = ClosedMinimum(otherwise="enlarge").choose(layout, request)
    fits = [s for s in closed_sets(topology) if len(s) >= count and not used[s].any()]
    assert (places is not None) == bool(fits)
    if places is not None and WAIT.choose(layout, request) is None:
        assert len(places.taken) == min(map(len, fits))


@settings(max_examples=200)
@given(st.data(), topologies())
def test_spread_sets_have_the_least_diameter_of_subtrees_or_boxes(
    data: st.DataObject, topology: Topology
) -> None:
    used = np.array(
        data.draw(st.lists(st.booleans(), min_size=topology.leaves, max_size=topology.leaves))
    )
    if used.all():
        return
    count = data.draw(st.integers(1, int((~used).sum())))
    sites = layout_of(topology).compact(Request.on(used, count))
    assert sites is not None
    assert not used[sites].any()
    assert len(np.unique(sites)) == count
    box = [s for s in closed_sets(topology) if (~used[s]).sum() >= count]
    assert topology.diameter(sites) <= min(topology.diameter(leaves) for leaves in box)


@settings(max_examples=100)
@given(st.data(), st.integers(2, 3))
def test_spread_sets_of_even_trees_have_the_least_diameter_of_all_sets(
    data: st.DataObject, k: int
) -> None:
    tree = Tree.k_ary(k, 4 - k + 1)
    free = data.draw(st.lists(st.integers(0, tree.leaves - 1), unique=True, min_size=1))
    used = np.ones(tree.leaves, bool)
    used[free] = False
    count = data.draw(st.integers(1, len(free)))
    sites = layout_of(tree).compact(Request.on(used, count))
    assert sites is not None
    least = min(tree.diameter(list(each)) for each in itertools.combinations(free, count))
    assert tree.diameter(sites) == least


@settings(max_examples=200)
@given(st.data(), st.one_of(trees(), fat_trees()))
def test_best_fit_takes_the_subtree_with_fewest_idle_sites_that_suffice(
    data: st.DataObject, topology: Topology
) -> None:
    _, used = after_jobs(data, topology, BestFitSubtree())
    count = data.draw(st.integers(1, topology.leaves))
    places = BestFitSubtree().choose(layout_of(topology), Request.on(used, count))
    idle = [s[~used[s]] for s in closed_sets(topology)]
    assert (places is not None) == (int((~used).sum()) >= count)
    if places is None:
        return
    rounded = 1 << (count - 1).bit_length()
    need = rounded if int((~used).sum()) >= rounded else count
    best = min(len(s) for s in idle if len(s) >= need)
    assert len(places.taken) == need
    assert any(len(s) == best and set(places.taken.tolist()) <= set(s.tolist()) for s in idle)


@given(st.integers(0, 5), st.data())
def test_power_of_two_jobs_fill_a_binary_tree_each_in_a_subtree(
    levels: int, data: st.DataObject
) -> None:
    """The guarantee of buddies: idle leaves that suffice make a whole subtree, after moves."""
    tree = Tree.k_ary(2, levels)
    sizes, left = list[int](), tree.leaves
    for power in data.draw(st.lists(st.integers(0, levels), max_size=20)):
        if 2**power <= left:
            sizes.append(2**power)
            left -= 2**power
    for placer in (BestFitSubtree(), WAIT):
        found = place_all(layout_of(tree), sizes, placer)
        for size, places in zip(sizes, found, strict=True):
            assert places is not None
            assert tree.diameter(places.sites) == tree.least_diameter(size)
        taken = [site for places in found if places for site in places.taken.tolist()]
        assert len(set(taken)) == len(taken) == sum(sizes)


@given(st.integers(0, 5), st.data())
def test_jobs_of_any_size_with_their_surplus_fill_a_binary_tree_each_in_a_subtree(
    levels: int, data: st.DataObject
) -> None:
    """The guarantee of buddies for sizes rounded up, where the surplus is taken, too."""
    tree = Tree.k_ary(2, levels)
    sizes, left = list[int](), tree.leaves
    for size in data.draw(st.lists(st.integers(1, tree.leaves), max_size=20)):
        rounded = 1 << (size - 1).bit_length()
        if rounded <= left:
            sizes.append(size)
            left -= rounded
    taken = np.zeros(tree.leaves, bool)
    found = place_all(layout_of(tree), sizes, BestFitSubtree())
    for size, places in zip(sizes, found, strict=True):
        assert places is not None
        assert len(places.taken) == 1 << (size - 1).bit_length()
        assert tree.diameter(places.taken) == tree.least_diameter(len(places.taken))
        assert not taken[places.taken].any()
        taken[places.taken] = True
    assert (~taken).sum() == left


def test_jobs_without_their_surplus_may_fill_a_tree_but_not_each_in_a_subtree() -> None:
    """Jobs of 3, 3 and 2 have 8 leaves: one of them is in both halves, wherever they are."""
    tree, every = Tree.k_ary(2, 3), set(range(8))

    def is_compact(leaves: set[int]) -> bool:
        return tree.diameter(sorted(leaves)) == tree.least_diameter(len(leaves))

    for first in map(set, itertools.combinations(sorted(every), 3)):
        for second in map(set, itertools.combinations(sorted(every - first), 3)):
            assert not all(map(is_compact, (first, second, every - first - second)))


@settings(max_examples=200)
@given(st.data(), topologies(), st.sampled_from(PLACERS))
def test_places_are_free_and_as_many_as_requested(
    data: st.DataObject, topology: Topology, placer: Placer
) -> None:
    """With any room at each site, such as several cores per node."""
    size = topology.leaves
    room = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    more = np.array(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    request = Request(
        count=data.draw(st.integers(1, 3 * size)),
        room=room,
        idle=more == 0,
        capacity=room + more,
    )
    places = placer.choose(layout_of(topology), request)
    if places is None:
        assert placer.may_wait or room.sum() < request.count
        return
    assert len(places.sites) == request.count
    assert (np.bincount(places.sites, minlength=size) <= room).all()
    if places.is_closed:
        assert request.idle[places.taken].all()
        assert topology.is_closed(places.sites, topology.routers_of(places.taken))


def test_jobs_on_nodes_of_several_cores_need_fewer_nodes() -> None:
    assert [nodes_needed(p, 12) for p in (4, 12, 16, 64)] == [1, 1, 2, 6]
    mesh = Mesh((8, 8))
    cores = np.full(mesh.leaves, 12)
    request = Request(count=64, room=cores, idle=cores > 0, capacity=cores)
    places = WAIT.choose(layout_of(mesh), request)
    assert places is not None
    assert len(places.taken) == 6
    assert mesh.diameter(places.taken) == mesh.least_diameter(6)


def test_template_fits_in_both_orientations() -> None:
    mesh = Mesh((4, 4))
    used = np.ones((4, 4), bool)
    used[:3, 1:3] = False
    upright = WAIT.choose(layout_of(mesh), Request.on(used.ravel(), 6))
    lying = WAIT.choose(layout_of(mesh), Request.on(used.T.ravel(), 6))
    assert upright is not None
    assert lying is not None
    assert upright.sites.tolist() == [1, 2, 5, 6, 9, 10]
    assert lying.sites.tolist() == [4, 5, 6, 8, 9, 10]


def test_narrow_mesh_has_the_best_box_that_fits() -> None:
    mesh = Mesh((2, 10))
    places = WAIT.choose(layout_of(mesh), Request.on(np.zeros(20, bool), 9))
    assert places is not None
    assert len(places.taken) == 10
    assert mesh.diameter(places.taken) == 5


def test_fallbacks_when_no_closed_set_of_least_diameter_is_idle() -> None:
    mesh = Mesh.array(8)
    used = np.zeros(8, bool)
    used[[3, 7]] = True
    request, layout = Request.on(used, 4), layout_of(mesh)
    assert WAIT.choose(layout, request) is None
    assert ClosedMinimum(otherwise="enlarge").choose(layout, request) is None
    spread = ClosedMinimum().choose(layout, request)
    assert spread is not None
    assert not spread.is_closed
    assert mesh.diameter(spread.sites) == 4
    torus = Mesh((6, 6), wrap=True)
    used = np.zeros((6, 6), bool)
    used[:, :4] = True
    enlarged = ClosedMinimum(otherwise="enlarge").choose(
        layout_of(torus), Request.on(used.ravel(), 9)
    )
    assert enlarged is not None
    assert len(enlarged.taken) == 12  # a ring of six by two: five are no closed side


def test_surplus_sites_are_taken_or_left_to_others() -> None:
    tree = Tree.k_ary(2, 3)
    request = Request.on(np.zeros(8, bool), 3)
    whole = ClosedMinimum().choose(layout_of(tree), request)
    needed = ClosedMinimum(reserve="needed").choose(layout_of(tree), request)
    assert whole is not None
    assert needed is not None
    assert (whole.taken.tolist(), needed.taken.tolist()) == ([0, 1, 2, 3], [0, 1, 2])


@pytest.mark.parametrize(
    ("placer", "chosen"),
    [
        (Sequential(), [1, 2, 4, 5]),
        (Block(), [4, 5, 6, 7]),
        (Cyclic(), [1, 4, 8, 2]),
        (Cyclic(block=2), [1, 2, 4, 5]),
    ],
)
def test_baselines_on_three_groups_of_four(placer: Placer, chosen: list[int]) -> None:
    tree = Tree.uniform([3, 4])
    used = np.zeros(12, bool)
    used[[0, 3, 9]] = True
    places = placer.choose(layout_of(tree), Request.on(used, 4))
    assert places is not None
    assert places.sites.tolist() == chosen


@given(st.data(), topologies())
def test_set_around_sites_is_the_smallest_closed_one_if_of_least_diameter(
    data: st.DataObject, topology: Topology
) -> None:
    sites = np.array(
        data.draw(st.lists(st.integers(0, topology.leaves - 1), unique=True, min_size=1))
    )
    found = layout_of(topology).closed_around(sites)
    around = [s for s in closed_sets(topology) if np.isin(sites, s).all()]
    size = min(map(len, around))
    smallest = [s for s in around if len(s) == size]
    least = topology.least_diameter(len(sites))
    if found is None:
        assert any(topology.diameter(s) > least for s in smallest)
    else:
        assert any(np.array_equal(np.sort(found), s) for s in smallest)
        assert topology.diameter(found) == least
