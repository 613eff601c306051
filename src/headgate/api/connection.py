"""HTTP/1.1 over a Unix socket, with the standard library alone: clients must start fast."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from headgate.api.errors import error_from
from headgate.base.errors import HeadgateError, Problem, WorldError

Content = bytes | Iterable[bytes] | None
_CONNECT_S = 5.0
_PIECE_BYTES = 1 << 16
_ROOT = "/api/v1"


class ConnectionLost(WorldError):
    """The connection broke during a request, which may or may not have taken effect."""


class _HTTP(HTTPConnection):
    """A connection to the socket `path`; each response must arrive within `timeout_s`."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("headgate")
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(_CONNECT_S)
            connected.connect(str(self._path))
            connected.settimeout(self._timeout_s)
        except BaseException:
            connected.close()
            raise
        self.sock = connected

    @property
    def usable(self) -> bool:
        """Whether the server has not closed this idle connection."""
        return self.sock is not None and not select.select([self.sock], [], [], 0)[0]


class Connection:
    """Requests to one server, from any thread; idle connections are kept for later requests.

    Every call raises the error that the server responded with, or WorldError `unreachable`.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        """`path` is that of the socket; the first request connects."""
        self._path, self._timeout_s = path, timeout_s
        self._idle: deque[_HTTP] = deque()

    def close(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        content: Content = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON value of a response."""
        with contextlib.ExitStack() as closing:
            http = self._connected(closing)
            whole = self._send(http, method, _target(path, query), content, headers or {})
            with self._translated():
                response = http.getresponse()
                body = response.read()
            if whole:
                self._keep(http, response, closing)
        if response.status >= 400:
            raise _error(response.status, body)
        try:
            return json.loads(body)
        except ValueError:
            raise _foreign(response.status) from None

    def lines(self, path: str, query: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of a response while they arrive."""
        with self._opened(path, query) as response:
            while line := self._read(response.readline):
                yield line.decode().rstrip("\r\n")

    def pieces(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the body of a response in pieces."""
        with self._opened(path, query) as response:
            while piece := self._read(lambda: response.read1(_PIECE_BYTES)):
                yield piece

    @contextlib.contextmanager
    def _opened(self, path: str, query: Mapping[str, Any]) -> Iterator[HTTPResponse]:
        with contextlib.ExitStack() as closing:
            http = self._connected(closing)
            self._send(http, "GET", _target(path, query), None, {})
            with self._translated():
                response = http.getresponse()
                body = response.read() if response.status >= 400 else b""
            if response.status >= 400:
                self._keep(http, response, closing)
                raise _error(response.status, body)
            yield response
            self._keep(http, response, closing)

    def _keep(self, http: _HTTP, response: HTTPResponse, closing: contextlib.ExitStack) -> None:
        """Keep a connection for later requests if its response was read to the end."""
        if response.isclosed() and http.sock is not None:
            closing.pop_all()
            self._idle.append(http)

    def _connected(self, closing: contextlib.ExitStack) -> _HTTP:
        """Return a connection, closed with `closing`."""
        with contextlib.suppress(IndexError):
            while True:
                kept = self._idle.pop()
                if kept.usable:
                    closing.callback(kept.close)
                    return kept
                kept.close()
        http = _HTTP(self._path, self._timeout_s)
        closing.callback(http.close)
        try:
            http.connect()
        except PermissionError as error:
            hint = "ask an administrator to add you to the group"
            raise self._failed("permission denied", hint) from error
        except OSError as error:
            raise self._failed("no Headgate is running here", "start one: headgate up") from error
        return http

    def _send(
        self, http: _HTTP, method: str, target: str, content: Content, headers: Mapping[str, str]
    ) -> bool:
        """Send a request, and return whether the server has read all of it.

        An error of the iterable `content` is raised unchanged.
        """
        http.putrequest(method, target)
        for name, value in headers.items():
            http.putheader(name, value)
        if content is None or isinstance(content, bytes):
            http.putheader("Content-Length", str(len(content or b"")))
            return self._sent(lambda: http.endheaders(content))
        http.putheader("Transfer-Encoding", "chunked")
        if not self._sent(http.endheaders):
            return False
        for piece in content:
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
            if piece and not self._sent(partial(http.send, chunk)):
                return False
        return self._sent(partial(http.send, b"0\r\n\r\n"))

    def _sent(self, send: Callable[[], None]) -> bool:
        """Send a part of a request; return False if the server reads no more: it has responded."""
        with self._translated():
            try:
                send()
            except ConnectionError:
                return False
        return True

    def _read(self, call: Callable[[], bytes]) -> bytes:
        with self._translated():
            return call()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of a connection into WorldError `unreachable`."""
        try:
            yield
        except TimeoutError as error:
            hint = "the controller's log, beside the socket, may say why"
            raise self._failed("Headgate does not respond in time", hint) from error
        except (OSError, HTTPException) as error:
            hint = "the controller may have ended: headgate up starts it again"
            raise self._failed("the connection was lost", hint, ConnectionLost) from error

    def _failed(self, text: str, hint: str, family: type[WorldError] = WorldError) -> WorldError:
        problem = Problem(path=str(self._path), problem=text, hint=hint)
        return family([problem], code="unreachable")


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items()}
    return f"{_ROOT}{path}?{urlencode(given, doseq=True)}" if given else f"{_ROOT}{path}"


def _error(status: int, body: bytes) -> HeadgateError:
    try:
        return error_from(status, json.loads(body))
    except (ValueError, KeyError, TypeError):
        return _foreign(status)


def _foreign(status: int) -> WorldError:
    return WorldError(f"the response is not from Headgate (HTTP {status})", code="unreachable")
