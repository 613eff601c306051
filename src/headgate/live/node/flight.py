"""Shards over the network: a node serves its store through Arrow Flight, readers stream from it.

A shard is sent as record batches of one binary column with pieces of about 1 MiB, so neither side
ever holds a whole shard in memory. Its checksum is sent with it, and the receiver checks it.

Every call carries the cluster's token, which only Headgate's own processes have; a service rejects
all calls without it. The token and the shards are sent unencrypted.
"""

from __future__ import annotations

import hmac
import json
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import flight

from headgate.base.errors import WorldError
from headgate.live.node.store import (
    PIECE_BYTES,
    READ_ONLY,
    ShardStore,
    StoredShard,
    disk_errors,
    new_digest,
    read_pieces,
    write_whole,
)
from headgate.model import FILE_PREFIX, Locality, Read, RunId

_SCHEMA = pa.schema([("piece", pa.binary())])
_HEADER, _SCHEME = "authorization", "Bearer "
_RESPONSE_S = 5.0
_STALL_S = 10.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0


class Fetched(NamedTuple):
    """The file of a shard, the locality of its source, and the bytes moved or opened."""

    path: Path
    locality: Locality
    size_bytes: int


class ShardServer:
    """Serves one store from threads of this process until closed."""

    def __init__(
        self,
        store: ShardStore,
        host: str,
        port: int = 0,
        *,
        token: str,
        files: Callable[[RunId], Iterator[bytes]] | None = None,
    ) -> None:
        """Listen on host and port, 0 for any free one; WorldError `port_in_use`.

        Calls that do not carry the token are rejected. `files` yields the content of the files that
        are kept of a run.
        """
        try:
            self._server = _Service(store, f"grpc://{host}:{port}", token, files)
        except (pa.ArrowException, OSError) as error:
            raise WorldError(
                f"the shard service cannot listen on {host}:{port}: {error}", code="port_in_use"
            ) from error
        self.port: int = self._server.port
        # `serve` would replace the signal handlers of the process while it runs
        self._thread = threading.Thread(target=self._server.wait, daemon=True, name="shards")
        self._thread.start()

    def served_bytes(self) -> dict[str, int]:
        """Return the bytes served so far, by the `reader` of the requests, such as `rack`."""
        return self._server.counted()

    def close(self) -> None:
        """Stop listening and end transfers in progress; their readers get an error."""
        self._server.closing.set()
        threading.Thread(target=self._server.shutdown, daemon=True).start()
        self._thread.join(_RESPONSE_S)  # do not wait for a reader that hangs


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow ships no types
    """Rejects every call that does not carry the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"{_SCHEME}{token}".encode()

    def start_call(self, info: Any, headers: Mapping[str, Any]) -> None:  # noqa: ARG002  # pyarrow's signature
        given = headers.get(_HEADER, ())  # gRPC has header names in lower case
        if len(given) != 1 or not hmac.compare_digest(_bytes(given[0]), self._wanted):
            raise flight.FlightUnauthenticatedError("this shard service belongs to a Headgate")


class _TokenSender(flight.ClientMiddlewareFactory):  # type: ignore[misc]  # pyarrow ships no types
    """Adds the token to every call of a connection."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def start_call(self, info: Any) -> _TokenHeader:  # noqa: ARG002  # pyarrow's signature
        return _TokenHeader(self._token)


class _TokenHeader(flight.ClientMiddleware):  # type: ignore[misc]  # pyarrow ships no types
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: f"{_SCHEME}{self._token}"}


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow ships no types
    def __init__(
        self,
        store: ShardStore,
        location: str,
        token: str,
        files: Callable[[RunId], Iterator[bytes]] | None,
    ) -> None:
        super().__init__(location, middleware={"token": _TokenCheck(token)})
        self.closing = threading.Event()
        self._store, self._files = store, files
        self._lock = threading.Lock()
        self._counted: dict[str, int] = {}

    def counted(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counted.items()))

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002  # pyarrow's signature
        """Stream the shard of a ticket `{"shard", "reader"}`, or the files of `{"run", "reader"}`.

        Those of a run come one after the other, as its manifest lists them.
        """
        request = json.loads(ticket.ticket)
        with _flight_errors():
            if self._files is not None and "run" in request:
                pieces = self._files(RunId(*request["run"]))
            else:
                pieces = read_pieces(self._store.path(request["shard"]))

        def batches() -> Iterator[Any]:
            for piece in pieces:
                if self.closing.is_set():
                    raise flight.FlightUnavailableError("the shard service is closing")
                with self._lock:
                    reader = request["reader"]
                    self._counted[reader] = self._counted.get(reader, 0) + len(piece)
                yield _batch(piece)

        return flight.GeneratorStream(_SCHEMA, batches())

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        """Store a stream whose last, empty batch carries the checksum; respond with the shard."""
        shard_id = descriptor.path[0].decode()
        checksum = ""

        def chunks() -> Iterator[Any]:
            nonlocal checksum
            for chunk in reader:
                if chunk.app_metadata is not None:
                    checksum = chunk.app_metadata.to_pybytes().decode()
                yield from _pieces(chunk.data)

        with _flight_errors():
            shard = self._store.put(shard_id, chunks(), expected=lambda: checksum)
        writer.write(pa.py_buffer(_encode(shard)))

    def do_action(self, context: Any, action: Any) -> list[bytes]:  # noqa: ARG002
        """`stat` returns a shard's size and checksum; `verify` also drops it if it is corrupt."""
        shard_id = action.body.to_pybytes().decode()
        with _flight_errors():
            if action.type == "verify" and not self._store.verify(shard_id):
                raise WorldError(f"shard '{shard_id}' is corrupt here", code="shard_absent")
            if action.type not in ("stat", "verify"):
                raise WorldError(f"there is no action '{action.type}'")
            shard = self._store.find(shard_id)
            if shard is None:
                raise WorldError(f"shard '{shard_id}' is not on this node", code="shard_absent")
            return [_encode(shard)]


def stat(host: str, port: int, shard_id: str, *, token: str) -> StoredShard:
    """Request a shard's size and checksum from a node; WorldError `shard_absent`, `unreachable`.

    A node of another cluster, with another token, rejects the request: WorldError `forbidden`.
    """
    with _client(host, port, token) as client:
        return _act(client, "stat", shard_id)


def fetch(
    host: str, port: int, shard_id: str, to: Path, *, token: str, reader: str = "copy"
) -> int:
    """Stream a shard from a node into the file `to`, atomically; return its bytes.

    WorldError `shard_absent` (also when the node finds its replica corrupt), `shard_changed`
    (during the transfer), `unreachable` (also for a node that sends nothing for 10 to 20 s) or
    `disk_full`. The server counts the bytes by `reader`. Any user may read the file, none change
    it.
    """
    with _client(host, port, token) as client:
        expected = _act(client, "stat", shard_id)
        ticket = flight.Ticket(json.dumps({"shard": shard_id, "reader": reader}).encode())
        stream = client.do_get(ticket)
        with disk_errors(to.parent):
            descriptor, name = tempfile.mkstemp(dir=to.parent, prefix=".fetch-")
        try:
            with _cancelled_when_stalled(stream.cancel) as progress:
                checksum = _write_down(stream, descriptor, to.parent, progress)
            if checksum != expected.checksum:
                _act(client, "verify", shard_id)  # fails if the node finds it corrupt
                raise WorldError(
                    f"shard '{shard_id}' changed during its transfer from {host}:{port}",
                    code="shard_changed",
                )
            with disk_errors(to.parent):
                os.fchmod(descriptor, READ_ONLY)
                Path(name).replace(to)
        finally:
            os.close(descriptor)
            Path(name).unlink(missing_ok=True)
    return expected.size_bytes


def stream_files(host: str, port: int, run: RunId, *, token: str) -> Iterator[bytes]:
    """Yield the content of the files that a node keeps of a run; WorldError as of `fetch`."""
    with _client(host, port, token) as client:
        ticket = flight.Ticket(json.dumps({"run": run, "reader": "files"}).encode())
        stream = client.do_get(ticket)
        while True:
            with _cancelled_when_stalled(stream.cancel):  # its reader may pause between pieces
                try:
                    chunk = stream.read_chunk()
                except StopIteration:
                    return
            for piece in _pieces(chunk.data):
                yield bytes(piece)


def time_transfer(
    host: str, port: int, shard_id: str, where: Path, *, token: str, limit_s: float
) -> float:
    """Stream a shard from a node to the disk of the folder `where`; return bytes per second.

    It is written and checksummed like one that is fetched, then deleted; the server counts it as
    `probe`. Connecting and the request are not timed, so that the size matters little. After
    `limit_s` seconds the bytes received by then count, and at least one piece, so that the rate is
    never 0. WorldError as of `fetch`.
    """
    with _client(host, port, token) as client, tempfile.TemporaryFile(dir=where) as draft:
        _act(client, "stat", shard_id)  # a node that does not respond is not slow: raise
        ticket = flight.Ticket(json.dumps({"shard": shard_id, "reader": "probe"}).encode())
        started_s = time.monotonic()
        stream = client.do_get(ticket, flight.FlightCallOptions(timeout=limit_s))
        with suppress(flight.FlightTimedOutError):
            _write_down(stream, draft.fileno(), where, lambda: None)
        run_s = time.monotonic() - started_s
        return max(os.fstat(draft.fileno()).st_size, PIECE_BYTES) / run_s


def send(
    host: str,
    port: int,
    shard_id: str,
    source: Path | Iterable[bytes],
    *,
    token: str,
    timeout_s: float = 600.0,
) -> StoredShard:
    """Stream a file or chunks to a node as one shard, checked there before it appears.

    WorldError `disk_full` (of that node), `shard_corrupt` or `unreachable`.
    """
    chunks = read_pieces(source) if isinstance(source, Path) else source
    digest = new_digest()
    with _client(host, port, token) as client:
        writer, responses = client.do_put(
            flight.FlightDescriptor.for_path(shard_id),
            _SCHEMA,
            flight.FlightCallOptions(timeout=timeout_s),
        )
        with _closed(writer):
            for chunk in chunks:
                for start in range(0, len(chunk), PIECE_BYTES):
                    piece = memoryview(chunk)[start : start + PIECE_BYTES]
                    digest.update(piece)
                    writer.write_batch(_batch(piece))
            checksum = digest.hexdigest()
            writer.write_with_metadata(_batch(b""), checksum.encode())
            writer.done_writing()
            response = responses.read()
    stored: dict[str, Any] = json.loads(response.to_pybytes())
    return StoredShard(**stored)


def fetch_best(
    read: Read,
    addresses: Mapping[str, tuple[str, int]],
    local: ShardStore | None,
    to: Path,
    timeout_s: float = 30.0,
    *,
    token: str,
    uid: int,
) -> Fetched:
    """Make `to` a file with the shard's bytes, for the account `uid`, which cannot change others.

    It is a link to the local replica, or a copy (see `ShardStore.provide`).

    A local file is used only if the read has locality `node`: a node that was lost may have a file
    of the same name with other content.

    A plain file (`file:PATH`, no sources) stays where it is: its reader opens it with the rights of
    its user. Otherwise the sources are tried in order, repeatedly with growing pauses for
    `timeout_s` seconds; a source that responds that it has no such shard, or a corrupt one, is not
    tried again. When no source is left or the time is over: WorldError `shard_unreadable` with the
    last error of every source. A full disk on this node fails immediately.
    """
    shard_id = read.shard.id
    if not read.sources and shard_id.startswith(FILE_PREFIX):
        path = Path(shard_id.removeprefix(FILE_PREFIX))
        return Fetched(path, Locality.CLUSTER, read.shard.size_bytes)
    if read.locality is Locality.NODE and local is not None and local.verify(shard_id):
        return Fetched(to, Locality.NODE, local.provide(shard_id, to, uid=uid))
    until = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    errors = {node: "its address is not known" for node in read.sources if node not in addresses}
    sources = [node for node in read.sources if node in addresses]
    while True:
        for node in tuple(sources):
            host, port = addresses[node]
            try:
                size_bytes = fetch(
                    host, port, shard_id, to, token=token, reader=read.locality.label
                )
            except WorldError as error:
                if error.code in ("disk_full", "shard_store"):
                    raise
                errors[node] = str(error)
                if error.code == "shard_absent":
                    sources.remove(node)
            else:
                return Fetched(to, read.locality, size_bytes)
        if not sources or time.monotonic() + pause_s > until:
            raise _unreadable(read, errors)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _unreadable(read: Read, errors: Mapping[str, str]) -> WorldError:
    text = "; ".join(f"{node}: {errors[node]}" for node in read.sources) or "it has no replica"
    return WorldError(f"cannot read shard '{read.shard.id}': {text}", code="shard_unreadable")


def _write_down(stream: Any, descriptor: int, where: Path, progress: Callable[[], None]) -> str:
    """Write all pieces of a stream; return their checksum."""
    digest = new_digest()
    for chunk in stream:
        progress()
        for piece in _pieces(chunk.data):
            digest.update(piece)
            with disk_errors(where):
                write_whole(descriptor, piece)
    return digest.hexdigest()


@contextmanager
def _cancelled_when_stalled(cancel: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Call `cancel` from a thread when the yielded function is not called for 10 to 20 s."""
    done = threading.Event()
    count = 0

    def progress() -> None:
        nonlocal count
        count += 1

    def watch() -> None:
        seen = 0
        while not done.wait(_STALL_S):
            if seen == count:
                cancel()
                return
            seen = count

    watcher = threading.Thread(target=watch, daemon=True, name="stall-watch")
    watcher.start()
    try:
        yield progress
    finally:
        done.set()
        watcher.join()


@contextmanager
def _client(host: str, port: int, token: str) -> Iterator[Any]:
    """Yield a connection; an error on it is raised as the WorldError that the node reported."""
    direct = [("grpc.enable_http_proxy", 0)]  # nodes connect to each other without a proxy
    client = flight.connect(
        f"grpc://{host}:{port}", generic_options=direct, middleware=[_TokenSender(token)]
    )
    try:
        yield client
    except flight.FlightUnauthenticatedError as error:
        problem = "the shard service belongs to another cluster: it rejects this cluster's token"
        raise WorldError(f"{host}:{port}: {problem}", code="forbidden") from error
    except flight.FlightError as error:
        if error.extra_info:
            fields = json.loads(error.extra_info)
            raise WorldError(fields["message"], code=fields["code"]) from error
        problem = str(error).split(". gRPC client debug context")[0]
        raise WorldError(f"{host}:{port}: {problem}", code="unreachable") from error
    except pa.ArrowException as error:
        raise WorldError(f"{host}:{port}: {error}", code="unreachable") from error
    finally:
        client.close()


@contextmanager
def _closed(writer: Any) -> Iterator[None]:
    """Close a stream; if the node aborted it, raise the node's error instead of a broken stream."""
    try:
        yield
    except pa.ArrowException:
        writer.close()
        raise
    except BaseException:  # of this side or the source: the node's error is a consequence
        with suppress(pa.ArrowException):
            writer.close()
        raise
    writer.close()


def _act(client: Any, action: str, shard_id: str) -> StoredShard:
    options = flight.FlightCallOptions(timeout=_RESPONSE_S)
    (result,) = client.do_action(flight.Action(action, shard_id.encode()), options)
    fields: dict[str, Any] = json.loads(result.body.to_pybytes())
    return StoredShard(**fields)


@contextmanager
def _flight_errors() -> Iterator[None]:
    """Send a WorldError to the client with its code.

    `shard_store` is sent as `unreachable`: at the client it means a failure of its own disk.
    """
    try:
        yield
    except WorldError as error:
        code = "unreachable" if error.code == "shard_store" else error.code
        fields = {"code": code, "message": str(error)}
        raise flight.FlightServerError(str(error), json.dumps(fields).encode()) from error


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _encode(shard: StoredShard) -> bytes:
    return json.dumps(
        {"id": shard.id, "size_bytes": shard.size_bytes, "checksum": shard.checksum}
    ).encode()


def _batch(piece: bytes | memoryview) -> Any:
    """Wrap one piece as a batch of one row, without copying it."""
    offsets = pa.py_buffer(struct.pack("=ii", 0, len(piece)))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(piece)])
    return pa.record_batch([column], schema=_SCHEMA)


def _pieces(batch: Any) -> Iterator[memoryview]:
    """Yield the pieces of a batch without copying them."""
    for row in range(batch.num_rows):
        yield memoryview(batch.column(0)[row].as_buffer())
