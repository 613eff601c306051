"""Shards over the network: complete or absent, from the best source that responds."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from headgate.base.errors import WorldError
from headgate.live.node import flight as shards
from headgate.live.node.flight import ShardServer
from headgate.live.node.store import ShardStore
from headgate.model import Locality, Read, Shard

HOST = "127.0.0.1"
TOKEN = "the cluster's token"
fetch = partial(shards.fetch, token=TOKEN)
OTHER_UID = os.geteuid() + 12_345  # who can change nothing here
fetch_best = partial(shards.fetch_best, token=TOKEN, uid=OTHER_UID)
send = partial(shards.send, token=TOKEN)
stat = partial(shards.stat, token=TOKEN)


@pytest.fixture
def store(tmp_path: Path) -> ShardStore:
    return ShardStore(tmp_path / "store")


@pytest.fixture
def server(store: ShardStore) -> Iterator[ShardServer]:
    server = ShardServer(store, HOST, token=TOKEN)
    yield server
    server.close()


def reading(shard_id: str, *sources: str, locality: Locality = Locality.RACK) -> Read:
    return Read(shard=Shard(id=shard_id, size_bytes=0), locality=locality, sources=sources)


def closed_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def corrupt(store: ShardStore, shard_id: str) -> None:
    """Flip a bit, the size as it was."""
    path = store.path(shard_id)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("size_bytes", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_shard_is_sent_and_fetched_unchanged(
    store: ShardStore, server: ShardServer, tmp_path: Path, size_bytes: int
) -> None:
    data = os.urandom(size_bytes)
    source = tmp_path / "source"
    source.write_bytes(data)
    sent = send(HOST, server.port, "ints:a/0", source)
    assert sent == store.find("ints:a/0") == stat(HOST, server.port, "ints:a/0")
    assert sent.size_bytes == size_bytes
    assert fetch(HOST, server.port, "ints:a/0", tmp_path / "copy", reader="rack") == size_bytes
    assert (tmp_path / "copy").read_bytes() == data
    assert sum(server.served_bytes().values()) == size_bytes


def test_chunks_of_any_size_are_sent(store: ShardStore, server: ShardServer) -> None:
    chunks = [b"", b"a", b"b" * 3_000_000, b"", b"c"]
    send(HOST, server.port, "a", chunks)
    assert store.path("a").read_bytes() == b"".join(chunks)


def test_bytes_served_are_counted_by_reader(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [bytes(1000)])
    for reader in ("rack", "cluster", "rack"):
        fetch(HOST, server.port, "a", tmp_path / "copy", reader=reader)
    assert server.served_bytes() == {"cluster": 1000, "rack": 2000}


def test_large_shard_is_never_completely_in_memory(server: ShardServer, tmp_path: Path) -> None:
    """Server, sender and reader in one process: all of it grows by less than the shard."""
    piece = os.urandom(1 << 20)
    send(HOST, server.port, "warm", [piece] * 8)
    fetch(HOST, server.port, "warm", tmp_path / "copy")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    send(HOST, server.port, "large", (piece for _ in range(256)))
    fetch(HOST, server.port, "large", tmp_path / "copy")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 128 * 1024


def test_missing_shard_is_reported_as_absent(server: ShardServer, tmp_path: Path) -> None:
    for ask in (
        lambda: stat(HOST, server.port, "nothing"),
        lambda: fetch(HOST, server.port, "nothing", tmp_path / "copy"),
    ):
        with pytest.raises(WorldError, match="'nothing' is not on this node") as caught:
            ask()
        assert caught.value.code == "shard_absent"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store"]


def test_address_without_a_service_is_unreachable(tmp_path: Path) -> None:
    port = closed_port()
    for ask in (
        lambda: fetch(HOST, port, "a", tmp_path / "copy"),
        lambda: send(HOST, port, "a", [b"data"]),
    ):
        with pytest.raises(WorldError, match=f"{HOST}:{port}") as caught:
            ask()
        assert caught.value.code == "unreachable"


def test_a_port_in_use_is_a_clear_error(store: ShardStore, server: ShardServer) -> None:
    with pytest.raises(WorldError, match=str(server.port)) as caught:
        ShardServer(store, HOST, server.port, token=TOKEN)
    assert caught.value.code == "port_in_use"


def test_a_corrupt_replica_is_not_delivered_and_drops_out(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"good data"])
    corrupt(store, "a")
    with pytest.raises(WorldError, match="corrupt") as caught:
        fetch(HOST, server.port, "a", tmp_path / "copy")
    assert caught.value.code == "shard_absent"
    assert not (tmp_path / "copy").exists()
    assert store.find("a") is None
    assert store.take_corrupt() == ("a",)


def test_a_full_disk_at_the_node_reaches_the_sender(
    store: ShardStore, server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise WorldError("the disk is full", code="disk_full")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(WorldError, match="the disk is full") as caught:
        send(HOST, server.port, "a", (bytes(1 << 20) for _ in range(64)))
    assert caught.value.code == "disk_full"


def test_aborted_send_leaves_no_file(store: ShardStore, server: ShardServer) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        send(HOST, server.port, "a", broken())
    assert store.list() == ()
    assert store.take_corrupt() == ()
    send(HOST, server.port, "a", [b"again"])
    assert store.path("a").read_bytes() == b"again"


def test_no_proxy_stands_between_nodes(
    store: ShardStore, server: ShardServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", [b"data"])
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{HOST}:{closed_port()}")
    assert fetch(HOST, server.port, "a", tmp_path / "copy") == 4


SERVE = """
import sys
from pathlib import Path
from headgate.live.node.flight import ShardServer
from headgate.live.node.store import ShardStore
store = ShardStore(Path(sys.argv[1]))
store.put("a", (bytes(1 << 20) for _ in range(64)))
print(ShardServer(store, "127.0.0.1", token="the cluster's token").port, flush=True)
sys.stdin.read()
"""


def test_fetch_from_a_hanging_node_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_STALL_S", 0.3)
    node = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    written = shards.write_whole

    def stop_the_node(descriptor: int, chunk: bytes | memoryview) -> None:
        node.send_signal(signal.SIGSTOP)
        written(descriptor, chunk)

    monkeypatch.setattr(shards, "write_whole", stop_the_node)
    try:
        assert node.stdout is not None
        port = int(node.stdout.readline())
        with pytest.raises(WorldError) as caught:
            fetch(HOST, port, "a", tmp_path / "copy")
        assert caught.value.code == "unreachable"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["store"]
    finally:
        node.kill()
        node.communicate()


# -------------------------------------------------------------------------------- fetch_best


def test_local_replica_is_linked_without_a_copy(store: ShardStore, tmp_path: Path) -> None:
    store.put("a", [b"data"])
    got = fetch_best(reading("a", "n1", locality=Locality.NODE), {}, store, tmp_path / "copy")
    assert got == (tmp_path / "copy", Locality.NODE, 4)
    assert got.path.samefile(store.path("a"))
    assert got.path.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("uid", sorted({0, os.geteuid()}))
def test_account_that_could_change_the_local_replica_gets_a_copy(
    store: ShardStore, tmp_path: Path, uid: int
) -> None:
    content = bytes(range(256)) * 8192
    store.put("a", [content])
    read, to = reading("a", "n1", locality=Locality.NODE), tmp_path / "copy"
    got = fetch_best(read, {}, store, to, uid=uid)
    assert got == (to, Locality.NODE, len(content))
    assert to.stat().st_mode & 0o777 == 0o444
    to.chmod(0o600)
    with to.open("ab") as file:
        file.write(b"more")
    assert to.read_bytes() == content + b"more"
    assert store.path("a").read_bytes() == content
    assert store.verify("a")


def test_fetched_shard_may_be_read_by_any_user_and_changed_by_none(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"data"])
    fetch(HOST, server.port, "a", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o444


def test_a_corrupt_local_replica_is_read_from_elsewhere(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"good"])
    local = ShardStore(tmp_path / "local")
    local.put("a", [b"good"])
    corrupt(local, "a")
    read = reading("a", "n1", "n2", locality=Locality.NODE)
    got = fetch_best(read, {"n2": (HOST, server.port)}, local, tmp_path / "copy")
    assert got.path.read_bytes() == b"good"
    assert local.take_corrupt() == ("a",)


def test_local_file_is_not_read_for_a_shard_on_another_node(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"new content"])
    local = ShardStore(tmp_path / "local")
    local.put("a", [b"old content"])
    got = fetch_best(reading("a", "n2"), {"n2": (HOST, server.port)}, local, tmp_path / "copy")
    assert got.path.read_bytes() == b"new content"


def test_unreachable_source_is_skipped(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"data"])
    addresses = {"n1": (HOST, closed_port()), "n2": (HOST, server.port)}
    got = fetch_best(reading("a", "n0", "n1", "n2"), addresses, None, tmp_path / "copy")
    assert got.path.read_bytes() == b"data"
    assert server.served_bytes() == {"rack": 4}


def test_source_whose_disk_fails_is_skipped(
    store: ShardStore, server: ShardServer, tmp_path: Path
) -> None:
    store.put("a", [b"data"])
    broken = ShardStore(tmp_path / "broken")
    broken.put("a", [b"data"])
    broken.path("a").write_bytes(b"torn off")  # of a wrong size: it is to be dropped
    (tmp_path / "broken" / ".corrupt").rmdir()
    (tmp_path / "broken" / ".corrupt").touch()  # so that fails
    other = ShardServer(broken, HOST, token=TOKEN)
    try:
        addresses = {"n1": (HOST, other.port), "n2": (HOST, server.port)}
        got = fetch_best(reading("a", "n1", "n2"), addresses, None, tmp_path / "copy")
    finally:
        other.close()
    assert got.path.read_bytes() == b"data"


def test_source_that_returns_in_time_is_used(
    store: ShardStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", [b"data"])
    port = closed_port()
    servers: list[ShardServer] = []

    def comes_back(seconds: float) -> None:
        if not servers:
            servers.append(ShardServer(store, HOST, port, token=TOKEN))

    monkeypatch.setattr("headgate.live.node.flight.time.sleep", comes_back)
    try:
        got = fetch_best(reading("a", "n1"), {"n1": (HOST, port)}, None, tmp_path / "copy")
        assert got.path.read_bytes() == b"data"
    finally:
        for server in servers:
            server.close()


def test_pauses_grow_until_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("headgate.live.node.flight.time.sleep", pauses.append)
    monkeypatch.setattr("headgate.live.node.flight.time.monotonic", lambda: sum(pauses))
    with pytest.raises(WorldError, match="cannot read shard 'a'"):
        fetch_best(
            reading("a", "n1"),
            {"n1": (HOST, closed_port())},
            None,
            tmp_path / "copy",
            timeout_s=12,
        )
    assert len(pauses) > 3
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]
    assert sum(pauses) <= 12 < sum(pauses) + 3 * pauses[-1]


def test_error_names_every_source_when_none_is_left(server: ShardServer, tmp_path: Path) -> None:
    addresses = {"n1": (HOST, server.port), "n2": (HOST, closed_port())}
    with pytest.raises(WorldError) as caught:
        fetch_best(
            reading("ints:a/7", "n1", "n2", "n3"), addresses, None, tmp_path / "copy", timeout_s=0
        )
    message = str(caught.value)
    assert caught.value.code == "shard_unreadable"
    assert "ints:a/7" in message
    assert "n1: shard 'ints:a/7' is not on this node" in message
    assert f"n2: {HOST}:{addresses['n2'][1]}" in message
    assert "n3: its address is not known" in message


def test_plain_file_is_opened_by_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    read = Read(shard=Shard(id=f"file:{path}", size_bytes=4), locality=Locality.RACK, sources=())
    assert fetch_best(read, {}, None, tmp_path / "copy") == (path, Locality.CLUSTER, 4)


# ------------------------------------------------------------------------------------- the token


@pytest.mark.parametrize(
    "call",
    [
        lambda port, to, token: shards.stat(HOST, port, "a", token=token),
        lambda port, to, token: shards.fetch(HOST, port, "a", to, token=token),
        lambda port, to, token: shards.send(HOST, port, "b", [b"planted"], token=token),
        lambda port, to, token: shards.time_transfer(
            HOST, port, "a", to.parent, token=token, limit_s=9
        ),
    ],
    ids=["stat", "fetch", "send", "time"],
)
@pytest.mark.parametrize("token", ["", "another", TOKEN + "x", TOKEN[:-1]])
def test_calls_without_the_right_token_are_rejected(
    store: ShardStore,
    server: ShardServer,
    tmp_path: Path,
    call: Callable[[int, Path, str], object],
    token: str,
) -> None:
    store.put("a", [b"data"])
    with pytest.raises(WorldError, match=f"{HOST}:{server.port}.*token") as caught:
        call(server.port, tmp_path / "copy", token)
    assert caught.value.code == "forbidden"
    assert [shard.id for shard in store.list()] == ["a"]
    assert server.served_bytes() == {}


def test_client_without_the_token_can_neither_read_write_list_nor_act(
    store: ShardStore, server: ShardServer
) -> None:
    store.put("a", [b"data"])
    schema = pa.schema([("piece", pa.binary())])
    descriptor = flight.FlightDescriptor.for_path("b")
    with flight.connect(f"grpc://{HOST}:{server.port}") as client:

        def write() -> None:
            writer, answers = client.do_put(descriptor, schema)
            writer.done_writing()
            answers.read()
            writer.close()

        for call in (
            lambda: client.do_get(flight.Ticket(b'{"shard": "a", "reader": "x"}')).read_all(),
            lambda: list(client.do_action(flight.Action("verify", b"a"))),
            lambda: list(client.list_flights()),
            lambda: client.get_flight_info(descriptor),
            write,
        ):
            with pytest.raises(flight.FlightUnauthenticatedError):
                call()
    assert [shard.id for shard in store.list()] == ["a"]


def test_full_local_disk_is_not_retried(
    store: ShardStore, server: ShardServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, chunk: object) -> None:
        raise OSError(28, "No space left on device")

    store.put("a", [b"data"])
    monkeypatch.setattr(shards, "write_whole", full)
    addresses = {"n1": (HOST, server.port)}
    with pytest.raises(WorldError) as caught:
        fetch_best(reading("a", "n1"), addresses, None, tmp_path / "copy", timeout_s=600)
    assert caught.value.code == "disk_full"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store"]


SERVES = """
import signal, sys, threading, time
from pathlib import Path
from headgate.live.node.flight import ShardServer
from headgate.live.node.store import ShardStore
ending = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ending.set())
server = ShardServer(ShardStore(Path(sys.argv[1])), "127.0.0.1", token="")
time.sleep(0.2)  # until its thread serves
print("up", flush=True)
ending.wait()
"""


def test_process_that_serves_handles_its_signals(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVES, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
