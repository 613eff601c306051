"""The server of the app on a Unix socket; the kernel identifies the user of each connection."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import grp
import json
import os
import resource
import socket
import stat
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate.api.deps import MOST_CONNECTIONS, PEER, Peer
from headgate.api.errors import error_body, status_of
from headgate.base.errors import Problem, SpecError, WorldError, nearest

_UCRED = struct.Struct("iII")  # pid, uid, gid
_STOP_S = 30.0
_DRAIN_S = 3
CLIENT_S = 30.0
"""Seconds for the head of a request, and for the rest of one that has its response already."""
_FILES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket, and the file lock that marks it as in use while its process lives."""

    path: Path
    socket: socket.socket
    lock: int

    def close(self) -> None:
        """Stop listening; another process may use the path then."""
        self.path.unlink(missing_ok=True)
        self.socket.close()
        os.close(self.lock)


def listen(path: Path, *, group: str | None = None) -> Listener:
    """Listen at `path`, for its owner and a group; the directory must exist.

    The socket of a dead process is replaced. Raises WorldError `already_running` when another
    process listens there, SpecError for an unknown group.
    """
    group_id = -1 if group is None else _group_id(group)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(lock, path)
        _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            path.chmod(0o660)  # before `listen`: until then no client can connect
            os.chown(path, -1, group_id)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        os.close(lock)
        problem = Problem(path=str(path), problem=f"cannot listen here: {error.strerror}")
        raise WorldError([problem]) from error
    except BaseException:
        os.close(lock)
        raise
    return Listener(path=path, socket=listener, lock=lock)


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        hint = nearest(group, [g.gr_name for g in grp.getgrall()])
        problem = Problem(path="group", problem=f"there is no group '{group}'", hint=hint)
        raise SpecError([problem]) from None


def _running(path: Path) -> WorldError:
    hint = "stop it first: headgate down"
    problem = Problem(path=str(path), problem="a controller runs here already", hint=hint)
    return WorldError([problem], code="already_running")


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _running(path) from None


def _clear(path: Path) -> None:
    """Remove a socket without a listener; raise WorldError for any other file or a listener."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        hint = "move or remove it"
        text = "a file that is not a socket is here"
        raise WorldError([Problem(path=str(path), problem=text, hint=hint)])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise _running(path)


class _KnownPeer(H11Protocol):
    """HTTP/1.1 with the peer of the connection in the scope of every request.

    A client has `CLIENT_S` for the head of a request, and for the rest of a body that has its
    response already; the routes limit the time of bodies that they read.
    """

    _late: asyncio.TimerHandle | None = None
    _uid = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows it
        connected = transport.get_extra_info("socket")
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(raw)
        peer, app = Peer(uid=uid, pid=pid), self.app

        async def with_peer(scope: Any, receive: Any, send: Any) -> None:
            scope[PEER] = peer
            await app(scope, receive, send)

        self.app, self._uid = with_peer, uid
        if sum(getattr(other, "_uid", -1) == uid for other in self.connections) > MOST_CONNECTIONS:
            self._reject()
        else:
            self._limit()

    def _reject(self) -> None:
        text = f"you have {MOST_CONNECTIONS} connections: a user has no more at the same time"
        hint = "end some of the programs that use Headgate, or try again when they have ended"
        error = SpecError([Problem(path="connections", problem=text, hint=hint)], code="too_many")
        body = json.dumps(error_body(error)).encode()
        head = (
            f"HTTP/1.1 {status_of(error)} Too Many Requests\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unlimit()

    def _limit(self) -> None:
        """Start or cancel the timeout of the client, by the progress of the request."""
        theirs, responded = self.conn.their_state, self.conn.our_state is h11.DONE
        if theirs is not h11.IDLE and not (responded and theirs is h11.SEND_BODY):
            self._unlimit()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(CLIENT_S, self.transport.close)

    def _unlimit(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Server:
    """Serves an app on a listener, in a thread, from `start` to `stop`."""

    def __init__(self, app: FastAPI, listener: Listener) -> None:
        """The server owns the listener: `stop` closes it."""
        self._app, self._listener = app, listener
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_KnownPeer,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_DRAIN_S,
            )
        )
        sockets = [listener.socket]
        self._thread = threading.Thread(
            target=self._server.run, args=(sockets,), name="headgate-api", daemon=True
        )

    def start(self) -> None:
        """Start to serve requests."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if 0 <= soft < most:  # it is 1024 on many systems: two users could take all of them
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        self._thread.start()

    def stop(self) -> None:
        """Wait some seconds at most for current requests to end, then release the socket."""
        self._app.state.ending.set()  # ends event streams
        self._server.should_exit = True
        with contextlib.suppress(RuntimeError):  # it was never started
            self._thread.join(_STOP_S)
        self._listener.close()
