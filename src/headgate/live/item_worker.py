"""The process of a slot: executes items that the owner of a lease sends, one after the other.

`python -m headgate.live.item_worker HOST:PORT LEASE` connects to the owner with the token in the
environment variable `HEADGATE_ITEM_TOKEN`, and ends when the owner closes the connection. It is
started by its lease, as the submitting user. Without imports of Headgate, so that it starts fast.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

TOKEN = "HEADGATE_ITEM_TOKEN"  # noqa: S105  # the name of a variable, not a token
LENGTH = struct.Struct("!Q")
REPORT_S = 0.02
"""Seconds after which ends are reported before the next item is executed."""

COMMAND, FUNCTION = 0, 1
"""Kinds of code: a command of a shell, and a pickled function."""


def main() -> None:
    """Execute items until the owner closes the connection."""
    address, lease = sys.argv[1], int(sys.argv[2])
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        token = os.environ.pop(TOKEN).encode()
        connection.sendall(LENGTH.pack(len(token)) + token + LENGTH.pack(lease))
        _Worker(connection).run()


class _Worker:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._code: dict[int, Callable[[Any], bytes]] = {}

    def run(self) -> None:
        while (message := self._received()) is not None:
            kind, content = message
            if kind == "code":
                number, code_kind, code = content
                self._code[number] = _command(code) if code_kind == COMMAND else _function(code)
            else:
                self._execute(content)

    def _received(self) -> Any:
        header = self._stream.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(header)
        return pickle.loads(self._stream.read(length))  # noqa: S301  # from the owner, our user

    def _execute(self, items: list[tuple[int, bytes]]) -> None:
        ended: list[tuple[bool, bytes]] = []
        started = reported = time.perf_counter()
        for code, payload in items:
            now = time.perf_counter()
            if ended and now - reported > REPORT_S:
                self._report(ended, now - started)
                ended, started, reported = [], now, now
            try:
                ended.append((True, self._code[code](payload)))
            except BaseException as error:  # noqa: BLE001  # any error is the caller's
                ended.append((False, _pickled_error(error)))
        self._report(ended, time.perf_counter() - started)

    def _report(self, ended: list[tuple[bool, bytes]], seconds: float) -> None:
        content = pickle.dumps((seconds, ended), protocol=5)
        self._connection.sendall(LENGTH.pack(len(content)) + content)


def _function(code: bytes) -> Callable[[bytes], bytes]:
    """Return a function of pickled arguments; one that cannot be loaded raises when called."""
    try:
        function = pickle.loads(code)  # noqa: S301  # from the owner, our user
    except BaseException as error:  # noqa: BLE001  # reported with each item
        failure = error

        def fails(_: bytes) -> bytes:
            raise failure

        return fails

    def call(payload: bytes) -> bytes:
        args, kwargs = pickle.loads(payload)  # noqa: S301  # from the owner, our user
        return _pickled(function(*args, **kwargs))

    return call


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001  # functions and classes of programs need more
        import cloudpickle

        return bytes(cloudpickle.dumps(value, protocol=5))


def _pickled_error(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error)[-12:])
    try:
        return _pickled((error, text))
    except Exception:  # noqa: BLE001  # an error that cannot be pickled is sent as text
        return pickle.dumps((None, text), protocol=5)


def _command(code: bytes) -> Callable[[bytes], bytes]:
    """Return a function that executes a command of a shell with the number of the item."""
    arguments = ["/bin/sh", "-c", code.decode()]

    def call(payload: bytes) -> bytes:
        environment = {**os.environ, "HEADGATE_ITEM": payload.decode()}
        child = os.posix_spawn(arguments[0], arguments, environment)
        return pickle.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    return call


if __name__ == "__main__":
    main()
