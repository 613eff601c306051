"""Random networks, for the general solver and OR-tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from random_numbers import RandomNumbers
from tests.flow.ortools_oracle import OrToolsSolver

from headgate.flow import (
    BadNetwork,
    InfeasibleFlow,
    NativeSolver,
    Network,
    solve,
    verify,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Arcs (tail, head, capacity, cost) and the supply of each vertex."""

    arcs: list[tuple[int, int, int, int]]
    supply: list[int]

    def network(self) -> Network:
        """Return the case as arrays."""
        tail, head, capacity, cost = np.array(self.arcs, np.int64).reshape(-1, 4).T
        return Network(
            tail=tail,
            head=head,
            capacity=capacity,
            cost=cost,
            supply=np.array(self.supply, np.int64),
        )


def draw(rng: RandomNumbers) -> Case:
    """Return a network: an assignment, layers or any arcs; supplies that are mostly feasible."""
    vertices = rng.number(2, rng.one_of([9] * 95 + [30] * 4 + [200]))
    most_room = rng.one_of([1, 1, 3, 20, 10**9])
    low, high = rng.one_of(
        [(0, 0), (0, 1), (-1, 1), (0, 20), (-5, 20), (-(10**6), 10**6), (0, 2**50), (2**50, 2**50)]
    )
    shape = rng.number(0, 3)
    arcs, supply = [], [0] * vertices
    fits = rng.chance(75)
    for _ in range(rng.number(0, vertices * rng.number(1, 4))):
        tail, head = _ends(rng, shape, vertices)
        capacity = rng.number(0, most_room)
        arcs.append((tail, head, capacity, rng.number(low, high)))
        if fits:
            sent = rng.number(0, capacity)
            supply[tail] += sent
            supply[head] -= sent
    if not fits:
        balanced = rng.chance(60)
        for _ in range(rng.number(1, 3)):
            sent = rng.number(1, most_room)
            supply[rng.number(0, vertices - 1)] += sent
            if balanced or rng.chance(50):
                supply[rng.number(0, vertices - 1)] -= sent
    return Case(arcs=arcs, supply=supply)


def _ends(rng: RandomNumbers, shape: int, vertices: int) -> tuple[int, int]:
    half = vertices // 2
    if shape == 0:  # an assignment
        return rng.number(0, half - 1), rng.number(half, vertices - 1)
    tail = rng.number(0, vertices - 1)
    if shape == 1:  # ahead by one or two
        return tail, min(tail + rng.number(1, 2), vertices - 1)
    return tail, rng.number(0, vertices - 1)


def check(case: Case) -> None:
    """Raise AssertionError for a wrong optimum, certificate or error of the solver."""
    network = case.network()
    best, found = OrToolsSolver().solve(network), NativeSolver().solve(network)
    assert found.sent == best.sent, f"{found.sent} units sent, possible {best.sent}"
    # In Python's integers: OR-tools' own sum overflows at 64 bits.
    cost = sum(f * c for f, c in zip(best.flow.tolist(), network.cost.tolist(), strict=True))
    assert found.cost == cost, f"cost {found.cost}, optimum {cost}"

    served = np.zeros(network.vertices, np.int64)
    np.add.at(served, network.tail, found.flow)
    np.subtract.at(served, network.head, found.flow)
    assert (np.abs(served) <= np.abs(network.supply)).all()
    assert (served * np.sign(network.supply) >= 0).all()
    arcs = (network.tail, network.head, network.capacity, network.cost)
    certificate = verify(*arcs, served, found.flow, found.potential)
    assert certificate.clean, str(certificate)

    entering, balance = int(network.supply[network.supply > 0].sum()), int(network.supply.sum())
    try:
        solution = solve(*arcs, network.supply)
        error = None
    except BadNetwork as raised:
        solution, error = None, raised
    if balance:
        assert "unbalanced" in str(error)
    elif best.sent < entering:
        assert isinstance(error, InfeasibleFlow)
        assert error.unsent == entering - best.sent
    else:
        assert solution is not None, f"feasible, but rejected: {error}"
        assert solution.flow.tolist() == found.flow.tolist()


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
