"""Worth of GPU shares: duality of the cutting-stock problem, with OR-tools as the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from headgate.planning.packing.cutting import worth


def patterns(levels: list[int], free: int) -> Iterator[list[int]]:
    """Yield every set of shares that fits."""
    if not levels:
        yield []
        return
    for count in range(free // levels[0] + 1):
        for rest in patterns(levels[1:], free - count * levels[0]):
            yield [count, *rest]


def fewest_gpus(counts: dict[int, int]) -> float:
    """Return the optimum of the relaxed problem over all patterns."""
    levels = sorted(counts)
    solver = pywraplp.Solver.CreateSolver("GLOP")
    rows = [solver.Constraint(counts[u], solver.infinity()) for u in levels]
    objective = solver.Objective()
    for pattern in patterns(levels, 1000):
        gpus = solver.NumVar(0, solver.infinity(), "")
        objective.SetCoefficient(gpus, 1)
        for row, count in zip(rows, pattern, strict=True):
            row.SetCoefficient(gpus, count)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(objective.Value())


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.integers(3, 19).map(lambda n: 50 * n), st.integers(1, 50), min_size=1, max_size=4
    )
)
def test_worth_of_all_shares_is_the_fewest_gpus_that_hold_them(counts: dict[int, int]) -> None:
    found = worth(counts)
    total = sum(n * found.of_share[u] for u, n in counts.items()) / 1000
    assert total == pytest.approx(fewest_gpus(counts), rel=1e-6)
    levels = sorted(counts)
    for pattern in patterns(levels, 1000):
        used = sum(u * n for u, n in zip(levels, pattern, strict=True))
        value = sum(found.of_share[u] * n for u, n in zip(levels, pattern, strict=True))
        assert value <= found.of_free[used] + 1e-6 <= 1000 + 2e-6


def test_share_that_leaves_nothing_useful_is_worth_a_whole_gpu() -> None:
    found = worth({810: 10})
    assert (found.of_share[810], found.of_free[809], found.of_free[999]) == (1000, 0, 1000)


def test_rarer_one_of_two_that_fit_together_gets_the_worth() -> None:
    assert worth({600: 3, 400: 1}).of_share[[600, 400]].tolist() == [1000, 0]
    assert worth({600: 1, 400: 3}).of_share[[600, 400]].tolist() == [500, 500]


def test_without_shares_a_whole_gpu_alone_has_worth() -> None:
    found = worth({1000: 5})
    assert found.of_free.sum() == found.of_free[1000] == found.of_share[1000] == 1000


def test_many_different_shares_are_priced_within_bounds() -> None:
    found = worth({milli: 1 + milli % 7 for milli in range(1, 1000)})
    assert (found.of_free[1:] >= found.of_free[:-1]).all()
    assert found.of_free[1000] == 1000
    assert found.of_share[999] <= 1000
