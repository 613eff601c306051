"""What a local user without a token tries on ports: to connect, and one call of gRPC.

`python grpc_call.py METHOD HOST:PORT...` makes one call to each and prints a JSON list of what
happened. It uses the standard library alone, since it runs as any user.
"""

from __future__ import annotations

import json
import pwd
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REFUSED, ANSWERED, LOST = "refused", "answered", "lost"

_TIMEOUT_S = 10.0
_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_EMPTY_MESSAGE = bytes(5)


def call(method: str, address: str) -> str:
    """Call a unary method with an empty message, without a token; return what happened.

    The connection was refused, the server answered the call, or the connection was lost meanwhile.
    """
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S)
    except ConnectionRefusedError:
        return REFUSED
    except ConnectionResetError:  # the server has just ended
        return LOST
    with connection:
        try:
            return _exchange(connection, method, address)
        except ConnectionError:
            return LOST


def _exchange(connection: socket.socket, method: str, address: str) -> str:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(_literal(name, text) for name, text in headers.items())
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
    connection.sendall(_frame(_HEADERS, _END_HEADERS, 1, block))
    connection.sendall(_frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE))
    received = connection.makefile("rb")
    while len(head := received.read(9)) == 9:
        kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
        received.read(int.from_bytes(head[:3]))
        if kind == _HEADERS and stream == 1:
            return ANSWERED
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
    return LOST


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: str, text: str) -> bytes:
    """Return a header field that no table has, as HPACK encodes it: lengths are below 127."""
    return b"\0" + b"".join(bytes((len(part),)) + part.encode() for part in (name, text))


def calls(python: str, user: str, method: str, addresses: Sequence[str]) -> list[str]:
    """Let a user call a method at several addresses, in order; return what happened."""
    entry = pwd.getpwnam(user)
    done = subprocess.run(
        [python, "-I", "-c", Path(__file__).read_text(), method, *addresses],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        capture_output=True,
        check=False,
        cwd="/",
        env={},
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    happened: list[str] = json.loads(done.stdout)
    return happened


if __name__ == "__main__":
    json.dump([call(sys.argv[1], address) for address in sys.argv[2:]], sys.stdout)
