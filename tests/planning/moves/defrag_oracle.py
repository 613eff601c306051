"""Trees with units at random, and the least moves by trying everything: for tests of `defrag`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from headgate.model.topology.tree import Tree
from headgate.planning.moves.defrag import Held, Relocations
from headgate.planning.moves.ranked_tree import RankedTree


@dataclass
class Case:
    """A tree, what holds its leaves, and a need."""

    tree: RankedTree
    held: list[Held]
    idle: np.ndarray
    count: int


def even_tree(*fan_out: int) -> RankedTree:
    """Return the tree with so many children at each vertex, from the top."""
    return RankedTree.of(Tree.uniform(fan_out))


def random_tree(rng: np.random.Generator, depth: int, most: int) -> RankedTree:
    """Return a tree with up to `most` children at each vertex, uneven also in depth."""
    parents = [-1]

    def grow(vertex: int, left: int) -> None:
        children = int(rng.integers(1, most + 1)) if not vertex or rng.random() < 0.85 else 0
        for _ in range(children if left else 0):
            parents.append(vertex)
            grow(len(parents) - 1, left - 1)

    grow(0, depth)
    return RankedTree.of(Tree.from_parents(parents))


def random_case(
    rng: np.random.Generator,
    tree: RankedTree,
    *,
    sizes: Sequence[int],
    used: float,
    at_best: bool = False,
    pinned: float = 0.0,
    dear: int = 9,
) -> Case:
    """Return units of some sizes on random leaves, at their best ranks if asked; and a need."""
    idle, held = np.ones(tree.leaves, bool), list[Held]()
    for _ in range(4 * tree.leaves):
        size = int(rng.choice(sizes))
        rank = tree.best_rank(size)
        if rank is None or idle.sum() - size < (1 - used) * tree.leaves:
            continue
        vertices = tree.containers(rank if at_best else int(tree.rank[0]))
        vertices = vertices[tree.counts(idle)[vertices] >= size]
        if not len(vertices):
            continue
        vertex = int(rng.choice(vertices))
        free = np.flatnonzero(idle[tree.first_leaf[vertex] : tree.end_leaf[vertex]])
        leaves = np.sort(rng.choice(free, size, replace=False)) + tree.first_leaf[vertex]
        idle[leaves] = False
        held.append(Held(leaves, int(rng.integers(1, dear + 1)), bool(rng.random() >= pinned)))
    return Case(tree, held, idle, int(rng.choice(sizes)))


def least_by_trying(case: Case) -> tuple[int, int] | None:
    """Return the least cost and number of moves, each to idle leaves, each unit once; or None.

    Dijkstra's algorithm over all placements of all units on leaves.
    """
    tree, held = case.tree, case.held
    limits = [tree.rank_of(unit.leaves) for unit in held]
    start = tuple(frozenset(unit.leaves.tolist()) for unit in held)
    usable = frozenset(np.flatnonzero(case.idle).tolist()).union(*start)
    best_rank = tree.best_rank(case.count)
    if best_rank is None:
        return None
    spans = [
        range(int(tree.first_leaf[v]), int(tree.end_leaf[v])) for v in tree.containers(best_rank)
    ]
    queue = [(0, 0, 0, start, frozenset[int]())]
    seen, serial = set[object](), 0
    while queue:
        cost, count, _, where, moved = heapq.heappop(queue)
        if (where, moved) in seen:
            continue
        seen.add((where, moved))
        free = usable.difference(*where)
        if any(sum(leaf in free for leaf in span) >= case.count for span in spans):
            return cost, count
        for unit, to in _moves(tree, held, limits, where, free, moved):
            serial += 1
            after = (*where[:unit], to, *where[unit + 1 :])
            entry = cost + held[unit].cost, count + 1, serial, after, moved | {unit}
            heapq.heappush(queue, entry)
    return None


def _moves(
    tree: RankedTree,
    held: Sequence[Held],
    limits: Sequence[int],
    where: tuple[frozenset[int], ...],
    free: frozenset[int],
    moved: frozenset[int],
) -> Iterator[tuple[int, frozenset[int]]]:
    for unit, now in enumerate(where):
        if held[unit].movable and unit not in moved:
            for to in combinations(sorted(free), len(now)):
                if tree.rank_of(np.array(to)) <= limits[unit]:
                    yield unit, frozenset(to)


def check(case: Case, found: Relocations) -> None:
    """Assert that moves can be made in their phases, keep every unit as near, and make room."""
    tree, idle, moved = case.tree, case.idle.copy(), set[int]()
    for phase in range(1, found.phases + 1):
        now = [move for move in found.moves if move.phase == phase]
        assert now
        taken = list[int]()
        for move in now:
            unit = case.held[move.unit]
            assert unit.movable
            assert move.unit not in moved
            moved.add(move.unit)
            assert idle[list(move.leaves)].all()
            assert len(set(move.leaves)) == len(unit.leaves)
            assert tree.rank_of(np.array(move.leaves)) <= tree.rank_of(unit.leaves)
            taken += move.leaves
        assert len(set(taken)) == len(taken)
        for move in now:
            idle[case.held[move.unit].leaves] = True
        idle[taken] = False
    assert found.cost == sum(case.held[unit].cost for unit in moved)
    assert len(found.moves) == len(moved)
    assert len(found.leaves) == case.count
    assert idle[list(found.leaves)].all()
    assert tree.rank_of(np.array(found.leaves)) <= tree.best_rank(case.count)
