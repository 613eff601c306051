"""Moves of least cost against trying everything; what is guaranteed on even and uneven trees."""

from __future__ import annotations

import numpy as np
import pytest
from tests.planning.moves.defrag_oracle import (
    Case,
    check,
    even_tree,
    least_by_trying,
    random_case,
    random_tree,
)

from headgate.model.topology.tree import Tree
from headgate.planning.moves.defrag import Held, NoMoves, Relocations, least_moves
from headgate.planning.moves.ranked_tree import RankedTree

EVEN = ((2, 2, 2), (2, 4), (4, 2), (3, 2), (2, 3))
POWERS = ((2, 2, 2), (2, 2, 2, 2), (4, 4), (2, 4, 4), (4, 8), (2, 2, 2, 4), (4, 2, 4))


def solve(case: Case, **limits: int) -> Relocations | NoMoves:
    return least_moves(case.tree, case.held, case.idle, case.count, **limits)


def held(*leaves: int, cost: int = 1, movable: bool = True) -> Held:
    return Held(np.array(leaves), cost, movable)


def case_of(tree: RankedTree, units: list[Held], count: int) -> Case:
    idle = np.ones(tree.leaves, bool)
    for unit in units:
        idle[unit.leaves] = False
    return Case(tree, units, idle, count)


@pytest.mark.parametrize("even", [True, False])
def test_moves_are_as_cheap_and_few_as_any_found_by_trying_everything(even: bool) -> None:
    rng = np.random.default_rng(17)
    moved = impossible = 0
    for _ in range(1500):
        tree = even_tree(*EVEN[rng.integers(len(EVEN))]) if even else random_tree(rng, 3, 3)
        if tree.leaves > 8:
            continue
        used, at_best = float(rng.choice([0.5, 0.7, 0.9])), bool(rng.integers(2))
        case = random_case(
            rng, tree, sizes=(1, 2, 3, 4), used=used, at_best=at_best, pinned=0.1, dear=3
        )
        found, least = solve(case, work=100_000), least_by_trying(case)
        if isinstance(found, NoMoves):
            assert found.proven or found.too_few
            assert least is None
            impossible += not found.too_few
        else:
            check(case, found)
            assert found.proven
            assert least == (found.cost, len(found.moves))
            moved += bool(found.moves)
    assert moved > 30
    assert impossible > 10


@pytest.mark.parametrize("fan_out", POWERS)
def test_powers_of_two_have_a_placement_whenever_enough_is_idle(fan_out: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(fan_out))
    tree, moved = even_tree(*fan_out).halved(), 0
    for _ in range(60):
        used = float(rng.choice([0.5, 0.7, 0.9]))
        case = random_case(rng, tree, sizes=(1, 1, 1, 2, 2, 4, 8), used=used, at_best=True)
        case.count = 2 ** int(rng.integers(0, int(case.idle.sum()).bit_length() or 1))
        if case.idle.sum() >= case.count:
            found = solve(case, work=0)
            assert isinstance(found, Relocations)
            check(case, found)
            moved += bool(found.moves)
    assert moved >= 5


def test_guarantee_lasts_while_jobs_come_and_go() -> None:
    rng, tree = np.random.default_rng(3), even_tree(2, 4, 8).halved()
    units, moved = list[Held](), 0
    for _ in range(400):
        case = case_of(tree, units, 2 ** int(rng.integers(0, 5)))
        if case.idle.sum() < case.count:
            units.pop(int(rng.integers(len(units))))
            continue
        found = solve(case, work=0)
        assert isinstance(found, Relocations)
        check(case, found)
        for move in found.moves:
            units[move.unit] = held(*move.leaves, cost=units[move.unit].cost)
        units.append(held(*found.leaves, cost=int(rng.integers(1, 100))))
        moved += len(found.moves)
    assert moved > 20


def waste(tree: RankedTree, count: int) -> int:
    """Return the most leaves that units of a size up to `count` cannot use in their subtrees."""
    sizes = [2**k for k in range(count.bit_length()) if tree.best_rank(2**k) is not None]
    ranks = [tree.best_rank(size) for size in sizes]
    return max(
        int((tree.capacity[tree.containers(rank)] % size).sum())
        for size, rank in zip(sizes, ranks, strict=True)
        if rank is not None
    )


def test_on_uneven_trees_units_fit_when_what_is_idle_exceeds_the_waste() -> None:
    rng = np.random.default_rng(5)
    exchanged = made = moved = 0
    for _ in range(1500):
        tree = random_tree(rng, 3, 4)
        if not 4 <= tree.leaves <= 40:
            continue
        used = float(rng.choice([0.3, 0.5, 0.7]))
        case = random_case(rng, tree, sizes=(1, 1, 2, 2, 4), used=used, at_best=True)
        if tree.best_rank(case.count) is None:
            continue
        if case.idle.sum() >= case.count + waste(tree, case.count):
            found = solve(case)
            if isinstance(found, NoMoves):
                assert found.blocked  # they fit, by an exchange
                exchanged += 1
            else:
                check(case, found)
                made += 1
                moved += bool(found.moves)
    assert moved >= 5
    assert made > 50 * exchanged


def test_need_that_has_room_moves_nothing() -> None:
    found = solve(case_of(even_tree(2, 2, 2), [held(0), held(1)], 4))
    assert found == Relocations((), (4, 5, 6, 7), 0, True)


def test_cheap_small_units_move_rather_than_a_dear_one() -> None:
    units = [held(0, 1, cost=9), held(4, cost=2), held(6, cost=3)]
    found = solve(case_of(even_tree(2, 4), units, 4))
    assert isinstance(found, Relocations)
    assert [(move.unit, move.leaves) for move in found.moves] == [(1, (2,)), (2, (3,))]
    assert found.leaves == (4, 5, 6, 7)
    assert (found.cost, found.phases) == (5, 1)


def test_chain_of_moves_has_phases() -> None:
    # A pair must leave the left half, and its only room is what a single in the right one leaves.
    tree = even_tree(2, 2, 2)
    units = [held(0, 1), held(4), held(6, movable=False)]
    found = solve(case_of(tree, units, 4))
    assert isinstance(found, Relocations)
    check(case_of(tree, units, 4), found)
    assert [(move.unit, move.phase) for move in found.moves] == [(1, 1), (0, 2)]


def test_pinned_units_stay() -> None:
    found = solve(case_of(even_tree(2, 2), [held(0, movable=False), held(2, movable=False)], 2))
    assert found == NoMoves()


def test_too_few_idle_leaves_or_too_small_a_tree() -> None:
    tree = even_tree(2, 2)
    assert solve(case_of(tree, [held(0), held(1), held(2)], 2)) == NoMoves(too_few=True)
    assert solve(case_of(tree, [], 5)) == NoMoves(too_few=True)


def test_exchange_without_idle_leaves_is_reported() -> None:
    # Four leaves by four: a unit of 8 with two leaves in each leaves no four together, and itself
    # has nowhere to go.
    units = [held(*(4 * rack + leaf for rack in range(4) for leaf in range(2)))]
    units += [held(2), held(6), held(10), held(14)]
    assert solve(case_of(even_tree(4, 4), units, 4)) == NoMoves(blocked=True)


def test_search_without_work_still_finds_valid_moves() -> None:
    rng, tree = np.random.default_rng(9), even_tree(4, 8, 8).halved()
    case = random_case(rng, tree, sizes=(1, 2, 4), used=0.85, at_best=True, dear=99)
    case.count = 16
    found, better = solve(case, work=0), solve(case, work=1_000)
    assert isinstance(found, Relocations)
    assert isinstance(better, Relocations)
    check(case, found)
    check(case, better)
    assert better.cost <= found.cost


def test_halves_rank_between_vertices_and_keep_what_is_uneven() -> None:
    tree = RankedTree.of(Tree.from_parents([-1, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3])).halved()
    sizes = [1, 2, 3, 4, 5]
    found = [tree.best_rank(size) for size in sizes]
    assert all(rank is not None for rank in found)
    pairs = tree.containers(found[1] or 0)
    assert tree.capacity[pairs].tolist() == [2, 2, 2, 2, 1, 1, 1]
    assert (tree.rank[tree.parent[1:]] > tree.rank[1:]).all()
