"""Division of files into shards loses no byte; replicas are on distinct nodes, spread evenly."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SpecError, WorldError
from headgate.live.node import split
from headgate.live.node.split import NodeSpace, choose_nodes, split_files

# -------------------------------------------------------------------------------- cutting


@pytest.mark.parametrize("lines", [False, True])
def test_more_shards_than_the_limit_are_rejected_over_all_files(
    tmp_path: Path, lines: bool
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("\n" * 5_000)
    assert len(split_files(paths, 1, lines=lines)) == split.SHARDS_MOST
    paths[1].write_text("\n" * 5_001)
    with pytest.raises(SpecError, match="more than 10000 shards"):
        split_files(paths, 1, lines=lines)
    (tmp_path / "vast").touch()
    os.truncate(tmp_path / "vast", 1 << 43)  # refused without as many cuts
    with pytest.raises(SpecError, match=r"--shard 1GiB makes fewer"):
        split_files([tmp_path / "vast"], 1, lines=False)


@given(
    contents=st.lists(st.binary(max_size=60), min_size=1, max_size=4).filter(any),
    shard_bytes=st.integers(1, 20),
)
def test_pieces_of_fixed_size(contents: list[bytes], shard_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        parts = split_files(paths, shard_bytes, lines=False)
        expected = [
            content[start : start + shard_bytes]
            for content in contents
            for start in range(0, len(content), shard_bytes)
        ]
        assert [b"".join(part) for _, part in parts] == expected
        assert [part.size_bytes for _, part in parts] == [len(data) for data in expected]
        assert [name for name, _ in parts] == [f"{n:05d}" for n in range(len(expected))]


@given(
    lines=st.lists(st.text("ab", max_size=12), min_size=1, max_size=12).filter(any),
    ends=st.booleans(),
    shard_bytes=st.integers(1, 20),
    piece_bytes=st.integers(1, 8),
)
def test_lines_stay_whole(lines: list[str], ends: bool, shard_bytes: int, piece_bytes: int) -> None:
    content = "\n".join(lines).encode() + (b"\n" if ends else b"")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "PIECE_BYTES", piece_bytes)  # lines longer than one read
        path = Path(folder) / "lines"
        path.write_bytes(content)
        shards = [b"".join(part) for _, part in split_files([path], shard_bytes, lines=True)]
    assert b"".join(shards) == content
    for shard in shards[:-1]:
        assert shard.endswith(b"\n")
        assert len(shard) >= shard_bytes
    for shard in shards:  # nothing after the first line end at or beyond the size
        assert b"\n" not in shard[shard_bytes - 1 : -1]


def test_a_part_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(10)))
    ((_, part),) = split_files([path], 100, lines=False)
    assert b"".join(part) == b"".join(part) == path.read_bytes()


def test_pieces_are_small(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(3 << 20))
    ((_, part),) = split_files([path], 1 << 30, lines=False)
    assert [len(piece) for piece in part] == [1 << 20] * 3


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(10))
    ((_, part),) = split_files([path], 100, lines=False)
    path.write_bytes(bytes(5))
    with pytest.raises(WorldError, match="shorter"):
        b"".join(part)


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        split_files([tmp_path / "gone", tmp_path], 0, lines=False)
    assert [problem.path for problem in caught.value.problems] == [
        "--shard", str(tmp_path / "gone"), str(tmp_path),
    ]  # fmt: skip
    empty = tmp_path / "empty"
    empty.touch()
    for paths in ([empty, empty], []):
        with pytest.raises(SpecError, match="no data"):
            split_files(paths, 10, lines=False)


# -------------------------------------------------------------------------------- replicas


def cluster(*nodes_of_racks: int) -> list[NodeSpace]:
    return [
        NodeSpace(f"n{rack}{node}", f"r{rack}", 100)
        for rack, nodes in enumerate(nodes_of_racks)
        for node in range(nodes)
    ]


clusters = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda racks: cluster(*racks))


@given(places=clusters, data=st.data(), index=st.integers(0, 200))
def test_replicas_are_on_distinct_nodes_and_in_two_racks(
    places: list[NodeSpace], data: st.DataObject, index: int
) -> None:
    replicas = data.draw(st.integers(1, len(places)))
    chosen = choose_nodes(index, places, replicas)
    racks = {place.node: place.rack for place in places}
    assert len(set(chosen)) == replicas
    assert set(chosen) <= set(racks)
    if replicas > 1 and len(set(racks.values())) > 1:
        assert racks[chosen[0]] != racks[chosen[1]]
    if replicas > 2 and sum(rack == racks[chosen[1]] for rack in racks.values()) > 1:
        free = {n for n, rack in racks.items() if rack == racks[chosen[1]]} - {*chosen[:2]}
        assert not free or chosen[2] in free
    assert choose_nodes(index, places[::-1], replicas) == chosen


@given(places=clusters, replicas=st.integers(1, 3))
def test_first_replicas_are_spread_evenly(places: list[NodeSpace], replicas: int) -> None:
    replicas = min(replicas, len(places))
    firsts = Counter(choose_nodes(i, places, replicas)[0] for i in range(3 * len(places)))
    assert set(firsts.values()) == {3}
    assert len(firsts) == len(places)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_all_replicas_are_spread_evenly_over_equal_racks(replicas: int) -> None:
    places = cluster(4, 4)
    load = Counter(node for i in range(64) for node in choose_nodes(i, places, replicas))
    mean = 64 * replicas / 8
    assert len(load) == 8
    assert all(abs(count - mean) <= 0.1 * mean for count in load.values())


def test_full_node_is_skipped() -> None:
    places = [NodeSpace("n0", "r0", 5), NodeSpace("n1", "r0", 50), NodeSpace("n2", "r1", 50)]
    for index in range(9):
        assert set(choose_nodes(index, places, 2, size_bytes=10)) == {"n1", "n2"}
    with pytest.raises(WorldError) as caught:
        choose_nodes(0, places, 3, size_bytes=10)
    assert caught.value.code == "disk_full"


@pytest.mark.parametrize("replicas", [0, 4])
def test_more_replicas_than_nodes_are_rejected(replicas: int) -> None:
    with pytest.raises(SpecError, match="from 1 to 3"):
        choose_nodes(0, cluster(2, 1), replicas)
