"""A scripted controller behind the real app, served on a real Unix socket."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn.server

from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.client import Client
from headgate.api.server import Server, listen

_SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
scripted = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(scripted)

_PROMPT = SimpleNamespace(**vars(asyncio))
_PROMPT.sleep = lambda delay_s: asyncio.sleep(delay_s / 10)


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="hg-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def controller() -> Iterator[Any]:
    found = scripted.ScriptedController()
    yield found
    found.close()


@pytest.fixture
def socket(state: Path, controller: Any) -> Iterator[Path]:
    """The socket of a running server, which ends soon: else it would sleep for .1 s twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", _PROMPT)
        server = Server(make_app(controller), listen(socket_path(state)))
        server.start()
        yield socket_path(state)
        server.stop()


@pytest.fixture
def client(socket: Path) -> Iterator[Client]:
    with Client(socket) as found:
        yield found
