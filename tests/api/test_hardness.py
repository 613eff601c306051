"""Invalid, slow and concurrent requests: every response is bounded in time and size."""

from __future__ import annotations

import contextlib
import json
import socket as sockets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.absurd_input import checked, requests

from headgate.api import bodies, server, views
from headgate.api.client import Client
from headgate.base.errors import SpecError, WorldError
from headgate.protocol import Refusal
from headgate.protocol.reasons import NoFreeGpu

JOB = "{name: work, tasks: {run: 'true', count: 2}}"


@pytest.fixture
def http(socket: Path, controller: Any) -> Iterator[httpx.Client]:
    """Raw HTTP, with a dataset, a running job and queued ones."""
    with Client(socket) as client:
        client.put_shard("ints", 0, [b"abc"], replicas=1)
        client.commit_dataset("ints", shards=1)
        client.submit(JOB)
        client.submit("{run: 'true', queue: narrow}")
        client.submit("{run: 'true', queue: narrow}")
    transport = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=transport, base_url="http://headgate/api/v1", timeout=60) as found:
        yield found


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_request_causes_an_internal_error(
    http: httpx.Client, controller: Any, data: Any
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise SpecError("no such put", code="not_found")

    controller.commit_dataset = none
    names = ["job-1", "job-2", "job-3", "ints"]
    method, target, query, content = data.draw(requests(names))
    if not target.endswith("/result"):  # the scripted controller has no results
        checked(http.request(method, target, params=query, content=content))


@pytest.mark.parametrize("path", ["/jobs", "/jobs/job-1/tasks", "/datasets/ints/shards"])
@pytest.mark.parametrize("cursor", ["9" * 5000, "4", "10", "1" + "0" * 12, "-1", "", "x", "0x1"])
def test_an_invalid_cursor_is_rejected(http: httpx.Client, path: str, cursor: str) -> None:
    response = http.get(path, params={"cursor": cursor})
    assert response.status_code == 400
    assert [p["path"] for p in response.json()["problems"]] == ["cursor"]


@pytest.mark.parametrize("offset", ["9" * 30, "9" * 5000, "-1"])
def test_an_invalid_offset_is_rejected(http: httpx.Client, offset: str) -> None:
    response = http.get("/jobs/job-1/logs", params={"offset": offset})
    assert response.status_code == 400
    (problem,) = response.json()["problems"]
    assert problem["path"] == "offset"
    assert "openapi.json" in problem["hint"]


def test_an_unknown_name_among_many_has_a_short_error(client: Client, controller: Any) -> None:
    state = controller.engine.state
    state.datasets = {f"data-{i}": None for i in range(20_000)}
    with pytest.raises(SpecError) as found:
        client.dataset("something.else")
    assert len(str(found.value)) < 1000
    assert "and 19980 more" in str(found.value)


def test_a_page_of_jobs_reads_the_refusals_once(client: Client, controller: Any) -> None:
    class Counted(tuple[int, ...]):
        __slots__ = ()
        looked = 0

        def __iter__(self) -> Iterator[int]:
            Counted.looked += 1
            return super().__iter__()

        def __contains__(self, job: object) -> bool:
            Counted.looked += 1
            return super().__contains__(job)

    for _ in range(30):
        client.submit("{tasks: {run: 'true', count: 4}}")
    reason = NoFreeGpu(total_gpus=4, free_gpus=0, needed_gpus=1)
    controller.engine.state.version += 1  # a snapshot of it, as of any change, is new
    controller.engine.state.refusals = (Refusal(reason=reason, jobs=Counted(range(30))),)
    jobs = client.jobs()["jobs"]
    assert {job["reason"] for job in jobs[:20]} == {str(reason)}
    assert Counted.looked == 1


def test_job_views_are_computed_once_per_version_and_durations_continue(
    client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[int] = []
    explain = views.explain

    def counted(view: Any, row: int, *arguments: Any, **options: Any) -> Any:
        explained.append(row)
        return explain(view, row, *arguments, **options)

    monkeypatch.setattr(views, "explain", counted)
    for _ in range(4):
        client.submit(JOB)
    first = client.jobs()["jobs"]
    controller.clock += 7
    second = client.jobs()["jobs"]
    assert sorted(explained) == [0, 1, 2, 3]
    assert [job["wait_s"] for job in second] == [7.0, 7.0, 0.0, 0.0]
    assert [job["run_s"] for job in second] == [None, None, 7.0, 7.0]
    assert [job | {"wait_s": 0, "run_s": 0} for job in first] == [
        job | {"wait_s": 0, "run_s": 0} for job in second
    ]
    controller.end("job-1", 0, b"")
    assert client.job("job-1")["tasks"]["finished"] == 1


# --- slow clients ---------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(path: Path, sent: bytes) -> Iterator[sockets.socket]:
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as found:
        found.settimeout(60)
        found.connect(str(path))
        found.sendall(sent)
        yield found


def read(connection: sockets.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            found += piece
    return bytes(found)


def head(method: str, path: str, length: int) -> bytes:
    return (
        f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
    )


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_whose_head_never_ends_is_closed(
    socket: Path, client: Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "CLIENT_S", 0.1)
    with connected(socket, sent) as connection:
        assert read(connection) == b""
    assert client.health()


def test_a_connection_whose_second_head_never_ends_is_closed(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENT_S", 0.2)
    whole = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(socket, whole) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(b"GET /")
            time.sleep(0.05)
        read(connection)


def test_a_slow_response_does_not_close_the_connection(
    client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENT_S", 0.1)
    submit = controller.submit

    def slow(*arguments: Any, **options: Any) -> str:
        time.sleep(0.5)
        return str(submit(*arguments, **options))

    monkeypatch.setattr(controller, "submit", slow)
    assert client.submit(JOB) == "job-1"


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/jobs"), ("PUT", "/datasets/ints/shards/0?replicas=1")]
)
def test_a_body_that_never_ends_is_a_timeout(
    socket: Path,
    client: Client,
    controller: Any,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
) -> None:
    monkeypatch.setattr(bodies, "TEXT_S", 0.2)
    monkeypatch.setattr(bodies, "GRACE_S", 0.2)
    monkeypatch.setattr(server, "CLIENT_S", 0.2)
    with connected(socket, head(method, path, 1000) + b"run: x") as connection:
        response = read(connection)
    assert response.startswith(b"HTTP/1.1 408")
    error = json.loads(response.partition(b"\r\n\r\n")[2])
    assert error["code"] == "timeout"
    assert error["problems"][0]["problem"]
    assert client.jobs()["jobs"] == []
    assert controller.pending == {}


def test_a_client_that_sends_after_its_response_is_disconnected(
    socket: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENT_S", 0.2)
    response = b""
    with connected(socket, head("POST", "/jobs", 1 << 40)) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100_000):
                connection.sendall(bytes(1 << 16))
        response = read(connection)
    assert response.startswith(b"HTTP/1.1 413")
    assert client.health()


def test_a_rejected_job_file_keeps_the_connection_usable(client: Client) -> None:
    for _ in range(3):
        with pytest.raises(SpecError) as found:
            client.submit("x" * (5 << 20))
        assert found.value.code == "too_large"
    assert client.submit(JOB) == "job-1"


# --- concurrent requests --------------------------------------------------------------------------


def test_submissions_that_wait_for_the_journal_do_not_delay_reads(
    socket: Path, client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, waiting = threading.Event(), threading.Semaphore(0)

    def stuck(*_: Any, **__: Any) -> str:
        waiting.release()
        assert opened.wait(60)
        raise WorldError("the disk is full", code="journal_full")

    monkeypatch.setattr(controller, "submit", stuck)
    job = "job-1"

    def submit() -> str:
        with Client(socket) as other:
            try:
                other.submit(JOB)
            except WorldError as error:
                return error.code
        return job

    with ThreadPoolExecutor(32) as threads:
        calls = [threads.submit(submit) for _ in range(32)]
        for _ in calls:
            assert waiting.acquire(timeout=60)
        assert client.jobs()["jobs"] == []
        opened.set()
    assert {call.result() for call in calls} == {"journal_full"}


def test_plans_wait_for_each_other_without_taking_threads(
    socket: Path, client: Client, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, opened = threading.Event(), threading.Event()
    usual = controller.policy

    def policy(text: str | None) -> Any:
        called.set()
        assert opened.wait(60)
        return usual(text)

    monkeypatch.setattr(controller, "policy", policy)

    def plan() -> Any:
        with Client(socket) as other:
            return other.plan()

    with ThreadPoolExecutor(50) as threads:
        calls = [threads.submit(plan) for _ in range(50)]
        assert called.wait(60)
        for _ in range(20):
            assert client.health()["status"] == "ok"
        opened.set()
    assert all(call.result()["what_if"] for call in calls)


def test_counts_are_computed_once_for_all_watchers(
    socket: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    counts_view = views.counts_view

    def counted(snapshot: Any) -> Any:
        computed.append(snapshot.version)
        return counts_view(snapshot)

    monkeypatch.setattr(views, "counts_view", counted)
    begun = threading.Barrier(11)

    def watch() -> None:
        with Client(socket) as other:
            for number, counts in enumerate(other.events()):
                if number == 0:
                    begun.wait(60)
                if counts["jobs"]:
                    return

    with ThreadPoolExecutor(10) as threads:
        calls = [threads.submit(watch) for _ in range(10)]
        begun.wait(60)
        client.submit(JOB)
    assert [call.exception() for call in calls] == [None] * 10
    assert len(computed) == len(set(computed))
