"""The socket: the user at the other end, permissions, and sockets of dead processes."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.api import server as server_module
from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.client import Client
from headgate.api.server import Server, listen
from headgate.base.errors import SpecError, WorldError

OTHER_UID = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")


def as_uid(uid: int, socket: Path, body: str) -> str:
    """Run some lines with a `client` under another user and return what they print."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from headgate.api.client import Client\n"
        "from headgate.base.errors import HeadgateError\n"
        # The first call imports all modules: the other user may not read Python's directory.
        f"Client(Path({str(socket)!r})).health()\n"
        f"os.setgid({uid}); os.setuid({uid})\n"
        f"client = Client(Path({str(socket)!r}))\n" + textwrap.dedent(body)
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_user_of_a_job_is_the_peer_of_the_socket(client: Client) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    assert client.info()["you"] == me
    assert client.job(client.submit("{run: 'true'}"))["user"] == me


@needs_root
def test_users_see_all_jobs_and_cancel_only_their_own(client: Client, socket: Path) -> None:
    socket.chmod(0o666)
    mine = client.submit("{run: 'true'}")
    theirs = as_uid(OTHER_UID, socket, "print(client.submit('{run: \"true\"}'))")
    assert client.job(theirs)["user"] == pwd.getpwuid(OTHER_UID).pw_name
    outcome = as_uid(
        OTHER_UID,
        socket,
        f"""
        print(len(client.jobs()['jobs']))
        try:
            client.cancel({mine!r})
        except HeadgateError as error:
            print(error.code)
        client.cancel({theirs!r})
        """,
    )
    assert outcome.split() == ["2", "forbidden"]
    assert client.job(mine)["state"] == "active"
    assert client.job(theirs)["state"] == "cancelled"


@needs_root
def test_a_user_without_a_name_is_shown_by_id(socket: Path) -> None:
    socket.chmod(0o666)
    assert as_uid(3_999_999, socket, "print(client.info()['you'])") == "uid:3999999"


@needs_root
def test_a_user_outside_the_group_is_rejected_with_a_message(socket: Path) -> None:
    outcome = as_uid(
        OTHER_UID,
        socket,
        """
        try:
            client.health()
        except HeadgateError as error:
            print(error.code, error.problems[0].problem)
        """,
    )
    assert outcome == "unreachable permission denied"


def test_the_socket_is_accessible_to_its_owner_and_group(socket: Path) -> None:
    assert stat.S_IMODE(socket.stat().st_mode) == 0o660


@needs_root
def test_members_of_a_configured_group_may_submit(state: Path, controller: Any) -> None:
    server = Server(
        make_app(controller), listen(socket_path(state), group=grp.getgrgid(OTHER_UID).gr_name)
    )
    server.start()
    job = as_uid(OTHER_UID, socket_path(state), "print(client.submit('{run: x}'))")
    server.stop()
    assert controller.engine.state.names.jobs[0].id == job


def test_an_unknown_group_is_rejected(state: Path) -> None:
    with pytest.raises(SpecError, match="there is no group"):
        listen(socket_path(state), group="no-such-group-here")
    assert not socket_path(state).exists()


def test_the_socket_of_a_running_server_is_not_replaced(
    state: Path, socket: Path, client: Client
) -> None:
    with pytest.raises(WorldError) as there:
        listen(socket)
    assert there.value.code == "already_running"
    assert client.health()["status"] == "ok"


def test_the_socket_of_a_dead_process_is_replaced(state: Path, controller: Any) -> None:
    path = socket_path(state)
    program = (
        "import os\nfrom pathlib import Path\nfrom headgate.api.server import listen\n"
        f"listen(Path({str(path)!r}))\nos._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert path.is_socket()
    with Client(path) as client, pytest.raises(WorldError) as dead:
        client.health()
    assert dead.value.code == "unreachable"
    server = Server(make_app(controller), listen(path))
    server.start()
    with Client(path) as client:
        assert client.health()["status"] == "ok"
    server.stop()
    assert not path.exists()


def test_a_file_that_is_not_a_socket_is_kept(state: Path) -> None:
    path = socket_path(state)
    path.write_text("mine")
    with pytest.raises(WorldError, match="not a socket"):
        listen(path)
    assert path.read_text() == "mine"


def test_listen_releases_its_lock_after_a_failure(state: Path) -> None:
    path = socket_path(state)
    path.write_text("in the way")
    with pytest.raises(WorldError):
        listen(path)
    path.unlink()
    listen(path).close()


@contextlib.contextmanager
def connections(path: Path, count: int) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        for _ in range(count):
            client = held.enter_context(Client(path))
            client.health()  # its connection is kept
        yield


@pytest.mark.parametrize("call", ["info", "submit", "put"])
def test_connection_beyond_those_of_a_user_gets_an_error(
    socket: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    with Client(socket) as client:
        calls: dict[str, Callable[[], object]] = {
            "info": client.info,
            "submit": lambda: client.submit("{run: 'true'}"),
            "put": lambda: client.put_shard("d", 0, [bytes(1 << 20)] * 8, replicas=1),
        }
        with connections(socket, 3):
            with pytest.raises(SpecError) as caught:
                calls[call]()
            (problem,) = caught.value.problems
            assert (caught.value.code, problem.path) == ("too_many", "connections")
            assert "you have 3 connections" in problem.problem
            assert problem.hint
        assert client.info()["you"], "others have ended"


@needs_root
def test_connections_of_one_user_are_not_those_of_another(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket.chmod(0o666)
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    body = f"""
        clients = [Client(Path({str(socket)!r})) for _ in range(3)]
        print([each.health()["status"] for each in clients])
    """
    with connections(socket, 2):
        assert as_uid(OTHER_UID, socket, body) == "['ok', 'ok', 'ok']"


def test_a_missing_controller_is_unreachable_with_a_hint(state: Path) -> None:
    with Client(socket_path(state)) as client, pytest.raises(WorldError) as caught:
        client.jobs()
    assert caught.value.code == "unreachable"
    assert "headgate up" in caught.value.problems[0].hint


def test_a_path_too_long_for_a_socket_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="107"):
        socket_path(tmp_path / ("x" * 107))


def test_stopping_ends_event_streams(state: Path, controller: Any) -> None:
    server = Server(make_app(controller), listen(socket_path(state)))
    server.start()
    with Client(socket_path(state)) as client:
        events = client.events()
        next(events)
        server.stop()
        with pytest.raises((WorldError, StopIteration)):
            next(events)
