"""Occurrence and primes: tables counted in parts equal a count in plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from math import isqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.workloads.pipeline import run_stage

from headgate.base.errors import SpecError
from headgate.workloads import counts, occurrence, primes
from headgate.workloads.counts import Counts, merge, read_counts, write_counts
from headgate.workloads.task import TaskContext, TaskFunction

INT64 = st.integers(-(2**63), 2**63 - 1)
COMMON = st.integers(-3, 3)


def table(numbers: Counter[int]) -> Counts:
    values = sorted(numbers)
    return Counts(np.array(values, np.int64), np.array([numbers[v] for v in values], np.int64))


def as_counter(found: Counts) -> dict[int, int]:
    assert found.values.dtype == found.counts.dtype == np.int64
    assert (found.values[1:] > found.values[:-1]).all()
    return dict(zip(found.values.tolist(), found.counts.tolist(), strict=True))


def through(
    stages: tuple[TaskFunction, TaskFunction], shards: list[list[int]], dtype: str = "int64"
) -> dict[int, int]:
    """Run both stages over shards of these integers."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for index, shard in enumerate(shards):
            paths.append(Path(folder) / f"shard{index}")
            np.array(shard, dtype).tofile(paths[-1])
        first, last = stages
        partial = run_stage(first, [[path] for path in paths], Path(folder), {"dtype": dtype})
        (result,) = run_stage(last, [partial], Path(folder))
        return as_counter(read_counts(result))


@given(shards=st.lists(st.lists(INT64 | COMMON, max_size=20), min_size=1, max_size=4))
@example(shards=[[]])
@example(shards=[[], [7], []])
@example(shards=[[-(2**63)], [2**63 - 1]])
def test_occurrence_equals_a_plain_count(shards: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_PIECE_VALUES", 3)
        patch.setattr(counts, "_MOST_TABLES", 3)
        found = through((occurrence.count, occurrence.merge), shards)
    assert found == Counter(number for shard in shards for number in shard)


@given(tables=st.lists(st.dictionaries(INT64 | COMMON, st.integers(1, 10**12), max_size=9)))
def test_merge_adds_tables(tables: list[dict[int, int]]) -> None:
    total: Counter[int] = Counter()
    for one in tables:
        total.update(one)
    assert as_counter(merge(table(Counter(one)) for one in tables)) == total


def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_counts(tmp_path / name, table(Counter([3, 1, 3])))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert as_counter(read_counts(tmp_path / "a")) == {1: 1, 3: 2}


def test_int32_shards_are_counted() -> None:
    shards = [[2, 2, -(2**31)], [2**31 - 1]]
    assert through((occurrence.count, occurrence.merge), shards, "int32") == {
        -(2**31): 1, 2: 2, 2**31 - 1: 1,
    }  # fmt: skip
    assert through((primes.find, primes.merge), shards, "int32") == {2: 2, 2**31 - 1: 1}


@pytest.mark.parametrize("function", [occurrence.count, primes.find])
def test_a_shard_that_ends_inside_an_integer_is_reported(
    tmp_path: Path, function: TaskFunction
) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(bytes(12))
    with pytest.raises(SpecError, match="multiple of 8 bytes"):
        run_stage(function, [[shard]], tmp_path)
    with pytest.raises(SpecError, match="int32 or int64"):
        run_stage(function, [[shard]], tmp_path, {"dtype": "float32"})
    assert run_stage(function, [[shard]], tmp_path, {"dtype": "int32"})[0].exists()


# -------------------------------------------------------------------------------- primes


def is_prime(number: int) -> bool:
    """Trial division by every number: slow and plain."""
    return number > 1 and all(number % d for d in range(2, isqrt(number) + 1))


def found_prime(numbers: list[int]) -> list[bool]:
    flags: list[bool] = primes.is_prime(np, np.array(numbers, np.int64)).tolist()
    return flags


def test_is_prime_up_to_20000_equals_trial_division() -> None:
    numbers = list(range(-10, 20_000))
    assert found_prime(numbers) == [is_prime(number) for number in numbers]


def test_is_prime_at_the_end_of_the_range() -> None:
    numbers = list(range(primes.LARGEST - 300, primes.LARGEST + 1))
    assert found_prime(numbers) == [is_prime(number) for number in numbers]


@given(number=st.integers(0, primes.LARGEST))
def test_is_prime_of_any_number_equals_trial_division(number: int) -> None:
    assert found_prime([number]) == [is_prime(number)]


def test_strong_pseudoprimes_are_composite() -> None:
    """Strong pseudoprimes to 2; to 2 and 3; to 2, 3 and 5; and Carmichael numbers."""
    numbers = [
        2047, 3277, 1_373_653, 1_530_787, 25_326_001, 161_304_001, 960_946_321, 561, 41_041,
        825_265, 321_197_185,
    ]  # fmt: skip
    assert not any(found_prime(numbers))
    assert not any(is_prime(number) for number in numbers)


@given(
    shards=st.lists(
        st.lists(st.integers(-5, 200) | st.integers(0, 10**6), max_size=15), min_size=1, max_size=3
    )
)
def test_primes_are_collected(shards: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_PIECE_VALUES", 4)
        found = through((primes.find, primes.merge), shards)
    assert found == Counter(number for shard in shards for number in shard if is_prime(number))


def test_a_number_beyond_the_range_is_reported() -> None:
    assert through((primes.find, primes.merge), [[primes.LARGEST, 5]]) == {5: 1}
    with pytest.raises(SpecError, match=f"up to {primes.LARGEST} can be tested"):
        through((primes.find, primes.merge), [[primes.LARGEST + 1]])


def test_number_beyond_the_range_in_the_second_shard_is_reported_with_all_shards(
    tmp_path: Path,
) -> None:
    shards = tmp_path / "first", tmp_path / "second"
    for path, number in zip(shards, (5, primes.LARGEST + 1), strict=True):
        np.array([number], "<i8").tofile(path)
    with pytest.raises(SpecError) as error:
        primes.find(TaskContext(index=0, count=1, shards=shards, output=tmp_path / "out"))
    (problem,) = error.value.problems
    assert problem.path == f"{shards[0]}, {shards[1]}"
