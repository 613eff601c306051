"""One probe: its reads, its files, and its end when few or no bytes arrive."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.errors import WorldError
from headgate.live.node import flight
from headgate.live.node.flight import ShardServer, time_transfer
from headgate.live.node.store import PIECE_BYTES, ShardStore, time_disk

HOST = "127.0.0.1"
PIECES = 4


@pytest.fixture
def store(tmp_path: Path) -> ShardStore:
    store = ShardStore(tmp_path / "store")
    store.put("s", [os.urandom(PIECES * PIECE_BYTES)])
    return store


@pytest.fixture
def server(store: ShardStore) -> Iterator[ShardServer]:
    server = ShardServer(store, HOST, token="")
    yield server
    server.close()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    where = tmp_path / "reader"
    where.mkdir()
    return where


def test_probe_is_counted_separately_and_leaves_no_file(server: ShardServer, where: Path) -> None:
    assert time_transfer(HOST, server.port, "s", where, token="", limit_s=60) > 0
    assert server.served_bytes() == {"probe": PIECES * PIECE_BYTES}
    assert list(where.iterdir()) == []


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_probe_that_reaches_its_limit_counts_the_received_bytes(
    server: ShardServer, where: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    stalled = threading.Event()

    def stalls(path: Path) -> Iterator[bytes]:
        for _ in range(pieces):
            yield bytes(PIECE_BYTES)
        stalled.wait()

    monkeypatch.setattr(flight, "read_pieces", stalls)
    try:
        rate = time_transfer(HOST, server.port, "s", where, token="", limit_s=1)
    finally:
        stalled.set()
    least = max(1, pieces) * PIECE_BYTES
    assert 0 < rate <= least, "so much, in a second or more"


def test_node_that_does_not_respond_or_lacks_the_shard_is_no_sample(
    server: ShardServer, where: Path
) -> None:
    with pytest.raises(WorldError, match="not on this node"):
        time_transfer(HOST, server.port, "t", where, token="", limit_s=60)
    server.close()
    with pytest.raises(WorldError) as gone:
        time_transfer(HOST, server.port, "s", where, token="", limit_s=60)
    assert gone.value.code == "unreachable"


def test_a_disk_is_read_directly_or_not_timed(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.path("s")
    opened = []
    open_as = os.open

    def notes(file: Path, flags: int) -> int:
        opened.append(flags & os.O_DIRECT)
        return open_as(file, os.O_RDONLY)  # so that it is read wherever this test runs

    def refuses(file: Path, flags: int) -> int:
        raise OSError(errno.EINVAL, "no direct reading here")

    monkeypatch.setattr(os, "open", notes)
    rate = time_disk(path)
    assert rate is not None
    assert rate > 0
    assert opened == [os.O_DIRECT]
    monkeypatch.setattr(os, "open", refuses)
    assert time_disk(path) is None
    monkeypatch.setattr(os, "open", open_as)
    with pytest.raises(FileNotFoundError):
        time_disk(path.with_name("absent"))
