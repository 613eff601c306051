"""String sort: parts and ranges, one after the other, are what Python's stable sort gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.workloads.pipeline import run_in_parts, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import sort

# Few distinct keys, so that many are equal; also characters outside the expected ones.
KEY = st.binary(min_size=4, max_size=4) | st.text("AZ", min_size=4, max_size=4).map(str.encode)
SHARDS = st.lists(st.lists(KEY, max_size=12), min_size=1, max_size=4)


def numbered(shards: list[list[bytes]]) -> list[list[bytes]]:
    """Return records that contain their original position."""
    return [
        [key + f"{index:8d}{place:8d}".encode() for place, key in enumerate(keys)]
        for index, keys in enumerate(shards)
    ]


def written(shards: list[list[bytes]], folder: Path) -> list[list[Path]]:
    paths = []
    for index, records in enumerate(shards):
        paths.append([folder / f"shard{index}"])
        paths[-1][0].write_bytes(b"".join(records))
    return paths


@given(shards=SHARDS, parts=st.integers(1, 7))
@example(shards=[[]], parts=3)
@example(shards=[[b"\xff\xff\xff\xff", b"\0\0\0\0"]], parts=2)
def test_ranges_make_the_sorted_whole(shards: list[list[bytes]], parts: int) -> None:
    records = numbered(shards)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranges = run_in_parts(sort.sort_part, written(records, folder), folder, parts)
        merged = run_stage(sort.merge_range, ranges, folder)
        found = b"".join(path.read_bytes() for path in merged)
    whole = [record for shard in records for record in shard]
    assert found == b"".join(sorted(whole, key=lambda record: record[:4]))


def test_a_result_in_one_part_is_sorted(tmp_path: Path) -> None:
    records = numbered([[b"bbbb", b"aaaa", b"bbbb"], [b"aaaa", b"cccc"]])
    partial = run_stage(sort.sort_part, written(records, tmp_path), tmp_path)
    (merged,) = run_stage(sort.merge_range, [partial], tmp_path)
    order = [(0, 1), (1, 0), (0, 0), (0, 2), (1, 1)]
    assert merged.read_bytes() == b"".join(records[shard][place] for shard, place in order)


def test_a_task_may_sort_several_shards(tmp_path: Path) -> None:
    records = numbered([[b"bbbb"], [b"aaaa", b"bbbb"]])
    shards = [path for (path,) in written(records, tmp_path)]
    (result,) = run_stage(sort.sort_part, [shards], tmp_path)
    assert result.read_bytes() == records[1][0] + records[0][0] + records[1][1]


# -------------------------------------------------------------------------------- ranges


@given(
    ends=st.tuples(st.integers(0, 127), st.integers(0, 127)).map(sorted),
    parts=st.integers(1, 60),
)
def test_splitters_are_evenly_spread_keys(ends: list[int], parts: int) -> None:
    """Splitters are keys of the alphabet, evenly spaced up to one key."""
    least, greatest = ends
    base = greatest - least + 1
    keys = sort.splitters({"least": chr(least), "greatest": chr(greatest)}, parts).tolist()
    assert len(keys) == parts - 1
    ranks = [0]
    for key in keys:
        digits = [byte - least for byte in key.to_bytes(4)]
        assert all(0 <= digit < base for digit in digits)
        ranks.append(sum(digit * base**place for place, digit in enumerate(reversed(digits))))
    sizes = np.diff([*ranks, base**4])
    assert sizes.max() - sizes.min() <= 1


def test_even_keys_give_even_parts(tmp_path: Path) -> None:
    drawn = np.random.default_rng(1).integers(ord("a"), ord("z") + 1, (20_000, 20), np.uint8)
    (tmp_path / "shard").write_bytes(drawn.tobytes())
    params = {"least": "a", "greatest": "z"}
    parts = run_in_parts(sort.sort_part, [[tmp_path / "shard"]], tmp_path, 5, params)
    sizes = [path.stat().st_size for (path,) in parts]
    assert sum(sizes) == drawn.size
    assert min(sizes) / max(sizes) > 0.9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"least": "ab"}, "params.least: 'ab' is not one ASCII character"),
        ({"greatest": 3}, "params.greatest: '3' is not one ASCII character"),
        ({"least": "é"}, "not one ASCII character"),
        ({"least": "z", "greatest": "a"}, "params.greatest: comes before params.least"),
    ],
)
def test_wrong_parameters_are_reported(
    tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    (tmp_path / "shard").touch()
    with pytest.raises(SpecError, match=message):
        run_in_parts(sort.sort_part, [[tmp_path / "shard"]], tmp_path, 2, params)


def test_a_shard_that_ends_inside_a_record_is_reported(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(bytes(30))
    for function in (sort.sort_part, sort.merge_range):
        with pytest.raises(SpecError, match="multiple of 20 bytes"):
            run_stage(function, [[tmp_path / "shard"]], tmp_path)
