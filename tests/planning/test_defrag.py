"""Moves of least cost: against trying everything, and the guarantee for powers of two."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.planning.defrag import Held, Moves, NoMoves, least_moves
from headgate.planning.subtrees import Subtrees
from tests.planning.defrag_oracle import Case, check, least_by_trying, random_case, random_tree


def solve(case: Case, **limits: int) -> Moves | NoMoves:
    return least_moves(case.tree, case.held, case.idle, case.count, **limits)


def against_oracle(case: Case) -> bool:
    """Assert equality with the oracle; return whether there were moves."""
    found, least = solve(case, work=100_000), least_by_trying(case)
    assert found.proven
    if isinstance(found, NoMoves):
        assert least is None
        return False
    check(case, found)
    assert least == (found.cost, len(found.moves))
    return bool(found.moves)


@pytest.mark.parametrize("seed", range(4))
def test_moves_cost_least_on_small_regular_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moved = 0
    for _ in range(60):
        tree = even_tree(*((2, 2, 2), (2, 4), (4, 2), (3, 3))[rng.integers(4)])
        case = random_case(rng, tree, sizes=(1, 2, 3, 4), used=0.7, pinned=0.1)
        moved += against_oracle(case)
    assert moved >= 5
