"""What one user does with many slow requests does not keep another one from theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as sockets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.api import bodies
from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.bodies import PacedBody
from headgate.api.client import Client
from headgate.api.deps import PEER, Peer, ThreadPools
from headgate.api.server import Server, listen
from headgate.base.errors import SpecError

GREEDY = 4_000_001  # a user id
PATIENCE_S = 30.0
JOB = "{name: work, tasks: {run: 'true', count: 1}}"
DIGEST = "0" * 64


class AsUid:
    """Requests with a header `x-uid` count as that user's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        uid = dict(scope["headers"]).get(b"x-uid")
        if uid is not None:
            scope[PEER] = Peer(uid=int(uid), pid=0)
        await self._app(scope, receive, send)


@pytest.fixture
def app(controller: Any) -> Any:
    made = make_app(controller)
    made.add_middleware(AsUid)
    return made


@pytest.fixture
def pools(app: Any) -> ThreadPools:
    found: ThreadPools = app.state.pools
    return found


@pytest.fixture
def socket(state: Path, app: Any) -> Iterator[Path]:
    server = Server(app, listen(socket_path(state)))
    server.start()
    yield socket_path(state)
    server.stop()


@pytest.fixture
def client(socket: Path) -> Iterator[Client]:
    """A user with little patience."""
    with Client(socket, timeout_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def greedy(socket: Path) -> Iterator[Callable[..., list[sockets.socket]]]:
    """Open connections of a greedy user, each with a request whose body does not end."""
    with contextlib.ExitStack() as held:

        def opened(count: int, method: str, path: str) -> list[sockets.socket]:
            found = []
            for _ in range(count):
                connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
                held.enter_context(connection)
                connection.settimeout(PATIENCE_S)
                connection.connect(str(socket))
                head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nX-Uid: {GREEDY}\r\n"
                body = b"" if method == "GET" else b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
                connection.sendall(head.encode() + (body or b"\r\n"))
                found.append(connection)
            return found

        yield opened


def until(truth: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not truth():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def waiting(slots: Any) -> int:
    return len(slots._waiting.get(GREEDY, ()))


def is_open(connection: sockets.socket) -> bool:
    """Whether the server has neither responded nor closed the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        connection.settimeout(PATIENCE_S)


def status_of(connection: sockets.socket) -> int:
    with connection.makefile("rb") as response:
        return int(response.readline().split()[1])


def finished_job(client: Client, controller: Any, result: bytes) -> str:
    job = client.submit(JOB)
    controller.end(job, 0, result)
    return job


@pytest.mark.parametrize("path", [f"/packages/{DIGEST}", "/datasets/big/shards/0?replicas=1"])
def test_slow_uploads_of_one_user_delay_no_result_and_no_upload_of_another(
    client: Client, controller: Any, pools: ThreadPools, greedy: Any, path: str
) -> None:
    job = finished_job(client, controller, b"result")
    uploads = greedy(40, "PUT", path)
    # as many as get in are in, and all others are known to the server
    until(lambda: waiting(pools.uploads) == 32, "32 wait")
    assert pools.uploads._held == {GREEDY: 8}
    assert b"".join(client.result(job)) == b"result"
    assert "".join(client.logs(job)) == ""
    client.put_shard("small", 0, [b"abc"], replicas=1)
    client.commit_dataset("small", shards=1)
    assert not client.has_package(DIGEST)
    assert all(is_open(upload) for upload in uploads)
    for upload in uploads:
        upload.sendall(b"0\r\n\r\n")
    assert {status_of(upload) for upload in uploads} <= {200, 409}
    until(lambda: not pools.uploads._held, "all slots are free again")


def test_uploads_whose_clients_have_gone_free_their_slots(
    client: Client, pools: ThreadPools, greedy: Any
) -> None:
    uploads = greedy(12, "PUT", f"/packages/{DIGEST}")
    until(lambda: waiting(pools.uploads) == 4, "4 wait")
    for upload in uploads:
        upload.close()
    until(lambda: not pools.uploads._held, "all slots are free again")
    assert pools.uploads._waiting == {}
    assert client.health()


def test_slow_job_files_of_one_user_delay_no_submission_of_another(
    client: Client, controller: Any, pools: ThreadPools, greedy: Any
) -> None:
    files = greedy(40, "POST", "/jobs")
    until(lambda: waiting(pools.texts) == 8, "8 wait")
    assert finished_job(client, controller, b"") == "job-1"
    assert all(is_open(each) for each in files)


def test_results_that_one_user_does_not_read_delay_none_of_another(
    client: Client, controller: Any, pools: ThreadPools, greedy: Any
) -> None:
    large = finished_job(client, controller, bytes(8 << 20))
    small = finished_job(client, controller, b"small")
    controller.admins.add(Peer(uid=GREEDY, pid=0).user)
    made = []
    result = controller.result

    def counted(job: str, ordinal: int | None) -> Iterator[bytes]:
        made.append(job)
        return (bytes(1 << 20) for _ in range(8)) if job == large else result(job, ordinal)

    controller.result = counted
    downloads = greedy(40, "GET", f"/jobs/{large}/result")
    until(lambda: waiting(pools.downloads) == 24, "24 wait")
    until(lambda: len(made) == 16, "16 have been fetched")
    assert b"".join(client.result(small)) == b"small"
    assert len(client.jobs()["jobs"]) == 2
    assert made == [large] * 16 + [small], "no more of the user's results take room"
    for download in downloads:
        download.close()
    until(lambda: not pools.downloads._held, "all slots are free again")


def test_event_streams_are_limited_by_user(client: Client, pools: ThreadPools, greedy: Any) -> None:
    streams = greedy(33, "GET", "/events")
    statuses = [status_of(stream) for stream in streams]
    assert sorted(statuses) == [200] * 32 + [429]
    counts = client.events()
    next(counts)
    client.submit(JOB)
    assert next(counts)["jobs"]
    for stream in streams:
        stream.close()
    until(lambda: GREEDY not in pools.events._held, "all slots are free again")
    (again,) = greedy(1, "GET", "/events")
    assert status_of(again) == 200


def test_request_beyond_those_that_may_wait_is_rejected(pools: ThreadPools, greedy: Any) -> None:
    pools.uploads._most_waiting = 3
    uploads = greedy(11, "PUT", f"/packages/{DIGEST}")
    until(lambda: waiting(pools.uploads) == 3, "3 wait")
    (rejected,) = greedy(1, "PUT", f"/packages/{DIGEST}")
    with rejected.makefile("rb") as response:
        assert response.readline().split()[1] == b"429"
        while response.readline() != b"\r\n":
            pass
        error = json.loads(response.readline())
    (problem,) = error["problems"]
    assert (error["code"], problem["path"]) == ("too_many", "uploads")
    assert "you have 8 of them, and 3 that wait" in problem["problem"]
    assert problem["hint"]
    assert all(is_open(upload) for upload in uploads)


def test_plans_of_users_take_turns(
    socket: Path, client: Client, controller: Any, pools: ThreadPools, greedy: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opened, usual, computed = threading.Semaphore(0), controller.policy, []

    def policy(text: str | None) -> Any:
        if text is not None:
            computed.append(text)
            assert opened.acquire(timeout=PATIENCE_S)
        return usual(None)

    monkeypatch.setattr(controller, "policy", policy)
    plans = greedy(5, "GET", "/plan?policy=greedy")
    until(lambda: waiting(pools.explanations) == 4, "4 wait")
    threads = [threading.Thread(target=client.plan, kwargs={"policy": "mine"})]
    threads[0].start()
    until(lambda: len(pools.explanations._waiting) == 2, "the other's waits, too")
    for _ in range(6):
        opened.release()
    threads[0].join(PATIENCE_S)
    assert {status_of(plan) for plan in plans} == {200}
    assert computed == ["greedy", "mine", *["greedy"] * 4]


def test_requests_of_one_user_for_what_is_in_memory_leave_room_for_those_of_another(
    client: Client, controller: Any, pools: ThreadPools, greedy: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opened, usual = threading.Event(), controller.info

    def info() -> Any:
        assert opened.wait(PATIENCE_S)
        return usual()

    monkeypatch.setattr(controller, "info", info)
    requests = greedy(60, "GET", "/info")
    until(lambda: waiting(pools.memory) == 56, "56 wait")
    assert client.health()
    assert client.jobs()["jobs"] == []
    opened.set()
    assert {status_of(request) for request in requests} == {200}
    assert pools.memory._held == {}


def test_topology_of_a_user_without_rights_is_rejected_unread(greedy: Any, controller: Any) -> None:
    (put,) = greedy(1, "PUT", "/topology")
    assert status_of(put) == 403


# --- the rate of bodies ---------------------------------------------------------------------------


class Clock:
    """Seconds that pass while a client sends its pieces."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sent(self, *pieces: tuple[float, int]) -> AsyncIterator[bytes]:
        for seconds, size_bytes in pieces:
            self.now += seconds
            yield bytes(size_bytes)


async def received(body: PacedBody, *, storing: Callable[[], None] = lambda: None) -> int:
    size_bytes = 0
    while piece := await body.piece():
        size_bytes += len(piece)
        storing()
    return size_bytes


def test_body_may_be_slow_within_the_grace_and_at_the_least_rate_after_it() -> None:
    clock, rate = Clock(), bodies.LEAST_BYTES_PER_S
    pieces = [(bodies.GRACE_S - 1, 1), *[(1.0, rate)] * 1000]
    body = PacedBody(clock.sent(*pieces), "PUT x", clock)
    assert asyncio.run(received(body)) == 1 + 1000 * rate


def test_body_that_stays_below_the_least_rate_is_rejected_with_its_figures() -> None:
    clock, rate = Clock(), bodies.LEAST_BYTES_PER_S
    pieces = [(1.0, rate // 2)] * 1000
    body = PacedBody(clock.sent(*pieces), "PUT /packages/x", clock)
    with pytest.raises(SpecError) as caught:
        asyncio.run(received(body))
    (problem,) = caught.value.problems
    assert caught.value.code == "timeout"
    assert problem.path == "PUT /packages/x"
    assert clock.now == 2 * bodies.GRACE_S
    assert problem.problem == (
        "15 MiB were received in 120 s of waiting for the client: at least 256 KiB a second are "
        "needed, after 60 s"
    )
    assert problem.hint


def test_time_of_storing_does_not_count() -> None:
    clock = Clock()

    def store() -> None:
        clock.now += 10 * bodies.GRACE_S

    body = PacedBody(clock.sent(*[(0.1, 1 << 20)] * 20), "PUT x", clock)
    assert asyncio.run(received(body, storing=store)) == 20 << 20


def test_body_that_was_fast_may_pause() -> None:
    clock, rate = Clock(), bodies.LEAST_BYTES_PER_S
    pieces = [(0.0, 100 * rate), (bodies.GRACE_S + 99, 1)]
    body = PacedBody(clock.sent(*pieces), "PUT x", clock)
    assert asyncio.run(received(body)) == 100 * rate + 1
