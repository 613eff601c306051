"""The equal division of what a queue leaves over: the published examples, and its laws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.planning.shares.equal_surplus import divided, units_with_rest

CORES, MEMORY = 0, 1


def test_one_job_gets_all_that_is_left_two_get_half_each() -> None:
    """Spec 5, section 8: 50 GB; jobs with at least 20 GB, in executors of 1 GB: 50; then 25, 25."""
    executor = {MEMORY: 1}
    assert 20 + units_with_rest({MEMORY: 50 - 20}, [executor])[0] == 50
    more = units_with_rest({MEMORY: 50 - 20 - 20}, [executor, executor])
    assert [20 + units for units in more] == [25, 25]


def test_rest_of_a_kind_goes_to_the_job_that_needs_most_of_it_for_a_unit() -> None:
    small, wide = {CORES: 1, MEMORY: 8}, {CORES: 4, MEMORY: 2}
    found = divided({CORES: 11, MEMORY: 33}, [small, wide])
    # 5 cores and 16 of memory for each: min(5, 2) and min(1, 8) units.
    assert found.units == [2, 1]
    assert found.rest == {CORES: (1, 11 - 2 - 4), MEMORY: (0, 33 - 16 - 2)}


def test_job_gets_more_units_of_a_rest_if_it_gets_the_rest_of_every_kind_that_it_needs() -> None:
    small, large = {CORES: 1, MEMORY: 1}, {CORES: 3, MEMORY: 3}
    assert divided({CORES: 10, MEMORY: 10}, [small, large]).units == [5, 1]
    assert units_with_rest({CORES: 10, MEMORY: 10}, [small, large]) == [5, 1]
    assert units_with_rest({CORES: 10, MEMORY: 10}, [large, large]) == [2, 1]
    assert units_with_rest({CORES: 10, MEMORY: 10}, [{CORES: 3, MEMORY: 1}, small]) == [1, 5]


def test_nothing_is_divided_among_no_jobs_or_where_nothing_is_left() -> None:
    assert divided({CORES: 10}, []).units == []
    assert units_with_rest({CORES: -3}, [{CORES: 1}, {CORES: 2}]) == [0, 0]


NEEDS = st.dictionaries(st.sampled_from((CORES, MEMORY)), st.integers(1, 9), min_size=1)


@given(
    st.fixed_dictionaries({CORES: st.integers(0, 200), MEMORY: st.integers(0, 200)}),
    st.lists(NEEDS, min_size=1, max_size=6),
)
def test_no_more_is_divided_than_is_left_and_equal_jobs_differ_by_the_rest_alone(
    left: dict[int, int], jobs: list[dict[int, int]]
) -> None:
    units = units_with_rest(left, jobs)
    for kind in (CORES, MEMORY):
        taken = sum(n * needs.get(kind, 0) for n, needs in zip(units, jobs, strict=True))
        assert taken <= left[kind]
    even = divided(left, jobs)
    for needs, number in zip(jobs, even.units, strict=True):
        assert number == min(left[kind] // len(jobs) // need for kind, need in needs.items())
    for kind, (job, amount) in even.rest.items():
        assert jobs[job][kind] == max(needs.get(kind, 0) for needs in jobs)
        assert amount >= 0
