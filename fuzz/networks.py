"""Random networks, for the general solver and OR-tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dice import Dice

from headgate.flow import BadNetwork, Network, OrToolsSolver, solve, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Arcs (tail, head, capacity, cost) and the supply of each vertex."""

    arcs: list[tuple[int, int, int, int]]
    supply: list[int]

    def network(self) -> Network:
        """Return the arrays."""
        tail, head, capacity, cost = np.array(self.arcs, np.int64).reshape(-1, 4).T
        return Network(
            tail=tail,
            head=head,
            capacity=capacity,
            cost=cost,
            supply=np.array(self.supply, np.int64),
        )


def draw(dice: Dice) -> Case:
    """Return a network: an assignment, layers or any arcs; supplies that mostly fit."""
    vertices = dice.number(2, 30 if dice.chance(5) else 9)
    most_room = dice.one_of([1, 1, 3, 20, 10**9])
    low, high = dice.one_of(
        [(0, 0), (0, 1), (-1, 1), (0, 20), (-5, 20), (-(10**6), 10**6), (0, 2**50), (2**50, 2**50)]
    )
    shape = dice.number(0, 3)
    arcs, supply = [], [0] * vertices
    fits = dice.chance(75)
    for _ in range(dice.number(0, vertices * dice.number(1, 4))):
        tail, head = _ends(dice, shape, vertices)
        capacity = dice.number(0, most_room)
        arcs.append((tail, head, capacity, dice.number(low, high)))
        if fits:
            sent = dice.number(0, capacity)
            supply[tail] += sent
            supply[head] -= sent
    if not fits:
        for _ in range(dice.number(1, 3)):
            sent = dice.number(1, most_room)
            supply[dice.number(0, vertices - 1)] += sent
            supply[dice.number(0, vertices - 1)] -= sent
    return Case(arcs=arcs, supply=supply)


def _ends(dice: Dice, shape: int, vertices: int) -> tuple[int, int]:
    half = vertices // 2
    if shape == 0:  # an assignment
        return dice.number(0, half - 1), dice.number(half, vertices - 1)
    tail = dice.number(0, vertices - 1)
    if shape == 1:  # ahead by one or two
        return tail, min(tail + dice.number(1, 2), vertices - 1)
    return tail, dice.number(0, vertices - 1)


def check(case: Case) -> None:
    """Raise when the solver finds another optimum, proves it badly or solves the insoluble."""
    network = case.network()
    best = OrToolsSolver().solve(network)
    arrays = (network.tail, network.head, network.capacity, network.cost, network.supply)
    unsent = int(network.supply[network.supply > 0].sum()) - best.sent
    solution, refused = None, ""
    try:
        solution = solve(*arrays)
    except BadNetwork as error:
        refused = str(error)
    if solution is None:
        assert unsent, f"solvable, but refused: {refused}"
        assert str(unsent) in refused, f"{unsent} units cannot be sent, but: {refused}"
        return
    assert not unsent, f"{unsent} units cannot be sent, but it was solved"
    assert solution.cost == best.cost, f"cost {solution.cost}, optimum {best.cost}"
    certificate = verify(*arrays, solution.flow, solution.potential)
    assert certificate.clean, str(certificate)


def smaller(case: Case) -> Iterator[Case]:
    """Yield networks without some arcs, then without some supply."""
    for size in sorted({len(case.arcs) // 2, len(case.arcs) // 4, 1} - {0}, reverse=True):
        for start in range(0, len(case.arcs), size):
            yield Case(arcs=case.arcs[:start] + case.arcs[start + size :], supply=case.supply)
    for source, sent in enumerate(case.supply):
        for sink, taken in enumerate(case.supply):
            if sent > 0 > taken:
                supply = list(case.supply)
                supply[source] -= 1
                supply[sink] += 1
                yield Case(arcs=case.arcs, supply=supply)
