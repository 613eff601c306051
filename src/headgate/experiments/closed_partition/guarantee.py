"""Best-fit subtrees with migration: a set at full bandwidth wherever enough GPUs are idle.

On the published tree of GPUs (8 servers of 8), jobs of power-of-two sizes come and go at random. A
job that finds enough idle GPUs is placed in a subtree of the best level for its size, after moves
of least cost if there are none; only a job that finds too few lets another one end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.rng import stream
from headgate.model.topology import Tree
from headgate.planning.moves.defrag import Held, Relocations, least_moves
from headgate.planning.moves.ranked_tree import RankedTree

FAN_OUT = (8, 2, 2, 2)
JOBS = 600
_MOST_EXPONENT = 5  # up to 32 GPUs
_WORK = 20  # steps of the search for cheaper moves; the greedy descent before it finds some


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """Jobs that found enough idle GPUs: all, those placed after moves, and those not placed."""

    jobs: int
    after_moves: int
    moves: int
    failed: int


def guarantee(seed: int = 1, jobs: int = JOBS) -> Guarantee:
    """Let jobs come and go, and return how they were placed."""
    rng, tree = stream(seed, "guarantee"), RankedTree.of(Tree.uniform(FAN_OUT)).halved()
    held: list[Held] = []
    idle = np.ones(tree.leaves, np.bool_)
    asked = after_moves = moved = failed = 0
    while asked < jobs:
        count = 2 ** rng.randint(0, _MOST_EXPONENT)
        while idle.sum() < count:
            idle[held.pop(rng.randrange(len(held))).leaves] = True
        asked += 1
        found = least_moves(tree, held, idle, count, work=_WORK)
        if not isinstance(found, Relocations):
            failed += 1
            continue
        after_moves += bool(found.moves)
        moved += len(found.moves)
        for move in found.moves:
            held[move.unit] = Held(np.array(move.leaves), held[move.unit].cost)
        held.append(Held(np.array(found.leaves), rng.randint(1, 100)))
        idle[:] = True
        for unit in held:
            idle[unit.leaves] = False
    return Guarantee(jobs=asked, after_moves=after_moves, moves=moved, failed=failed)
