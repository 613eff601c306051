"""A slot: executes the items that the owner of a lease sends, one after the other.

`serve` is what the tasks of a lease run: it connects to the owner, and ends when the owner closes
the connection. On notice (SIGTERM) it ends the item at hand, gives the others back, and ends. It
reports the notice first, so that an item that does not end in time is not taken for one that
crashed its process.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

LENGTH = struct.Struct("!Q")
"""Before every message: its length in bytes."""

TOKEN = "HEADGATE_LEASE_TOKEN"  # the name of a variable, not a token
"""The variable with the token that the owner accepts."""

NOTICE = "notice"
"""The message that a slot has got notice."""

REPORT_S = 0.02
"""Seconds after which ends are reported before the next item is executed."""

MOST_BYTES = 256 << 20
"""Most bytes of the pickled arguments, or the pickled result, of an item."""

_CONNECT_S = 10.0


class Context(Protocol):
    """What `serve` needs of the context of its task."""

    @property
    def params(self) -> Any:
        """Of the task: `owner` (host and port) and `lease`, the number of its job there."""

    @property
    def output(self) -> Any:
        """The path of the result file."""


class _Notice(BaseException):
    """The notice, while no item is executed."""


def serve(context: Context) -> None:
    """Execute items until the owner has no more; the result is their number."""
    params = context.params
    executed = 0
    host, _, port = params["owner"].rpartition(":")
    try:
        connection = _connected(params["lease"], host, int(port))
    except OSError as error:
        sys.stdout.write(f"the owner of these items has ended: {error}\n")
    else:
        with connection:
            executed = _Slot(connection).run()
    context.output.write_text(f"{executed}\n")


def _connected(lease: int, host: str, port: int) -> socket.socket:
    """Return a connection to the owner, which has been told whose slot this is."""
    connection = socket.create_connection((host, port), timeout=_CONNECT_S)
    try:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        token = os.environ.get(TOKEN, "").encode()
        node = os.environ.get("HEADGATE_NODE") or socket.gethostname()
        hello = pickle.dumps((lease, node))
        connection.sendall(LENGTH.pack(len(token)) + token)
        connection.sendall(LENGTH.pack(len(hello)) + hello)
    except OSError:
        connection.close()
        raise
    return connection


class _Slot:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._code: dict[int, Callable[[bytes], bytes]] = {}
        self._executed = 0
        self._waits = self._sends = self._noticed = False

    def run(self) -> int:
        """Serve until the owner hangs up, or the notice; return how many items were executed."""
        before = signal.signal(signal.SIGTERM, self._on_notice)
        try:
            while not self._noticed and (message := self._received()) is not None:
                kind, content = message
                if kind == "code":
                    number, code = content
                    self._code[number] = _function(code)
                else:
                    self._execute(content)
        except _Notice:
            pass
        except ConnectionError:  # the owner has ended
            return self._executed
        finally:
            signal.signal(signal.SIGTERM, before)
        if self._noticed:
            self._send(None)
            raise SystemExit(128 + signal.SIGTERM)
        return self._executed

    def _on_notice(self, _number: int, _frame: FrameType | None) -> None:
        self._noticed = True
        if self._waits:
            raise _Notice
        if not self._sends:  # else it is between two items, and ends
            with suppress(OSError):  # the owner has ended
                self._send(NOTICE)

    def _received(self) -> Any:
        self._waits = True
        header = self._stream.read(LENGTH.size)
        self._waits = False
        if len(header) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(header)
        return pickle.loads(self._stream.read(length))  # from the owner, our user

    def _execute(self, items: list[tuple[int, bytes]]) -> None:
        ended: list[tuple[bool, bytes]] = []
        started = now = time.perf_counter()
        for code, payload in items:
            if ended and now - started > REPORT_S:
                self._send((now - started, ended))
                ended, started = [], now
            if self._noticed:
                break
            try:
                content = self._code[code](payload)
                if len(content) > MOST_BYTES:
                    raise ValueError(
                        f"the result has {len(content)} bytes, more than {MOST_BYTES}: "
                        "write it to a file, and return its path"
                    )
                ended.append((True, content))
            except BaseException as error:  # noqa: BLE001  # any error is the caller's
                ended.append((False, _pickled_error(error)))
            self._executed += 1
            now = time.perf_counter()
        if ended:
            self._send((now - started, ended))

    def _send(self, message: Any) -> None:
        content = pickle.dumps(message, protocol=5)
        self._sends = True
        self._connection.sendall(LENGTH.pack(len(content)) + content)
        self._sends = False


def _function(code: bytes) -> Callable[[bytes], bytes]:
    """Return a function of pickled arguments; one that cannot be loaded raises when called."""
    try:
        function = pickle.loads(code)  # from the owner, our user
    except BaseException as error:  # noqa: BLE001  # reported with each item
        failure = error

        def fails(_: bytes) -> bytes:
            raise failure

        return fails

    def call(payload: bytes) -> bytes:
        args, kwargs = pickle.loads(payload)  # from the owner, our user
        return pickled(function(*args, **kwargs))

    return call


def pickled(value: Any) -> bytes:
    """Return a value pickled, with what it needs of `__main__`, which is another one there."""
    try:
        content = pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001  # of several types: a function without a name, say
        content = b"__main__"
    if b"__main__" in content:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, protocol=5))
    return content


def _pickled_error(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        content = pickled((error, text))
        pickle.loads(content)  # some errors can be pickled, and not loaded
    except Exception:  # noqa: BLE001  # of several types
        return pickle.dumps((None, text), protocol=5)
    return content
