"""What users would have declared: one of few values, mostly more than the run takes."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.base.rng import stream
from headgate.sim.user_estimates import POPULAR_S, UNDER, user_estimate_s

JOBS = 4000


@pytest.fixture(scope="module")
def jobs() -> list[tuple[float, float]]:
    """Return run times over all sizes, and what is declared for them."""
    rng = stream(5, "run times")
    runs = [rng.lognormvariate(7.0, 2.0) for _ in range(JOBS)]
    return [(run_s, user_estimate_s(1, f"job-{n}", run_s)) for n, run_s in enumerate(runs)]


def test_all_declare_one_of_twenty_values_or_whole_days_beyond(
    jobs: list[tuple[float, float]],
) -> None:
    declared = Counter(estimate_s for _, estimate_s in jobs)
    others = [value for value in declared if value not in POPULAR_S]
    assert len(POPULAR_S) == 20
    assert all(value > POPULAR_S[-1] and value % 86400 == 0 for value in others)
    assert len(declared) > 15, "small and large ones occur"


def test_about_one_in_ten_takes_longer_than_declared_and_then_the_value_below(
    jobs: list[tuple[float, float]],
) -> None:
    under = [(run_s, estimate_s) for run_s, estimate_s in jobs if estimate_s < run_s]
    assert len(under) / JOBS == pytest.approx(UNDER, abs=0.02)
    for run_s, estimate_s in under:
        assert estimate_s == max(value for value in POPULAR_S if value < run_s)


def test_the_part_of_the_declared_time_that_jobs_use_is_uniform_before_rounding() -> None:
    """So more than `v` is declared for the part run time / v of those that declare enough."""
    run_s = 1000.0
    declared = [user_estimate_s(2, f"job-{n}", run_s) for n in range(JOBS)]
    enough = [estimate_s for estimate_s in declared if estimate_s >= run_s]
    for value in (1800.0, 3600.0, 10 * 3600.0, 86400.0):
        more = sum(estimate_s > value for estimate_s in enough) / len(enough)
        assert more == pytest.approx(run_s / value, abs=0.03)


def test_estimates_depend_on_the_seed_and_the_job_alone() -> None:
    first = [user_estimate_s(1, f"job-{n}", 500.0) for n in range(50)]
    assert first == [user_estimate_s(1, f"job-{n}", 500.0) for n in range(50)]
    assert first != [user_estimate_s(2, f"job-{n}", 500.0) for n in range(50)]
