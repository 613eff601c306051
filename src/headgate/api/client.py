"""A client of the REST API over its Unix socket."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from headgate.api.errors import error_from
from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError
from headgate.base.text import visible

Body = dict[str, Any]
_CONNECT_S = 5.0
_LONGEST = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # also jobs' ids: a name and a number
_RESPONSE_S = 300.0  # placing a shard of a large dataset takes long


class Client:
    """One method per route; every error is the HeadgateError that the controller raised.

    Besides, SpecError `usage` for an invalid name, and WorldError `unreachable` when no controller
    responds at the socket.
    """

    def __init__(self, path: Path, *, timeout_s: float = _RESPONSE_S) -> None:
        """`path` is that of the socket; the first call connects."""
        self._socket, self._probed = path, False
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)),
            base_url="http://headgate/api/v1",
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    # --- the controller --------------------------------------------------------------------------

    def health(self) -> Body:
        """Return immediately if the controller responds."""
        return self._call("GET", "/health")

    def info(self) -> Body:
        """Return facts about the controller, and the user that it sees as the caller."""
        return self._call("GET", "/info")

    def nodes(self) -> list[Body]:
        """Return the nodes."""
        nodes: list[Body] = self._call("GET", "/nodes")["nodes"]
        return nodes

    def queues(self) -> list[Body]:
        """Return the queues."""
        queues: list[Body] = self._call("GET", "/queues")["queues"]
        return queues

    def plan(
        self, *, policy: str | None = None, nodes: int | None = None, like: str | None = None
    ) -> Body:
        """Return the starts and preemptions of a hypothetical round now; see the route."""
        return self._call("GET", "/plan", {"policy": policy, "nodes": nodes, "like": like})

    def events(self) -> Iterator[Body]:
        """Yield counts now and after every change, until the controller ends."""
        with self._stream("/events", {}) as response:
            for line in self._translated(response.iter_lines()):
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    # --- jobs ------------------------------------------------------------------------------------

    def jobs(self, **query: str | int | None) -> Body:
        """Return a page of jobs, newest first, and `next`; see the route for the query."""
        return self._call("GET", "/jobs", query)

    def submit(
        self,
        text: str,
        *,
        key: str | None = None,
        dry_run: bool = False,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a job file's text and return the job's id; all users may read a public one's logs.

        It comes after the jobs `after` (ids), beside those that the file names.

        When the connection breaks, the request is repeated once under the same key: never two jobs.
        """
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        query = {"dry_run": dry_run, "public": public, "after": [*after]}
        try:
            response = self._call("POST", "/jobs", query, text.encode(), headers)
        except _ConnectionLost:
            response = self._call("POST", "/jobs", query, text.encode(), headers)
        return str(response["id"])

    def job(self, job: str) -> Body:
        """Return one job."""
        return self._call("GET", _job(job))

    def tasks(self, job: str) -> list[Body]:
        """Return all tasks of a job, by ordinal."""
        return self._pages(f"{_job(job)}/tasks", "tasks")

    def task(self, job: str, ordinal: int) -> Body:
        """Return one task of a job."""
        return self._call("GET", f"{_job(job)}/tasks/{ordinal}")

    def cancel(self, job: str, *, now: bool = False, dry_run: bool = False) -> Body:
        """Cancel a job; `now`: kill its runs without notice."""
        return self._call("DELETE", _job(job), {"now": now, "dry_run": dry_run})

    def explanation(self, job: str, task: int | None = None) -> Body:
        """Return the state of a job, or of one of its tasks, and why it waits."""
        return self._call("GET", f"{_job(job)}/explanation", {"task": task})

    def log(self, job: str, task: int, *, attempt: int | None, offset: int) -> Body:
        """Return a piece of a run's log from `offset` (bytes): `text`, `next_offset`, `ended`."""
        query = {"task": task, "attempt": attempt, "offset": offset}
        return self._call("GET", f"{_job(job)}/logs", query)

    def result(self, job: str, task: int | None) -> Iterator[bytes]:
        """Yield the bytes of a result."""
        with self._stream(f"{_job(job)}/result", {"task": task}) as response:
            yield from self._translated(response.iter_bytes())

    # --- packages --------------------------------------------------------------------------------

    def has_package(self, digest: str) -> bool:
        """Return whether the controller has this package of the caller; it keeps it for days."""
        try:
            self._call("GET", f"/packages/{digest}")
        except SpecError as error:
            if error.code != "not_found":
                raise
            return False
        return True

    def put_package(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Upload a package; SpecError `changed` if the pieces are not those of the digest."""
        self._call("PUT", f"/packages/{digest}", None, pieces)

    # --- datasets --------------------------------------------------------------------------------

    def datasets(self) -> list[Body]:
        """Return the datasets by name."""
        datasets: list[Body] = self._call("GET", "/datasets")["datasets"]
        return datasets

    def dataset(self, name: str) -> Body:
        """Return one dataset."""
        return self._call("GET", _dataset(name))

    def shards(self, dataset: str) -> list[Body]:
        """Return all shards of a dataset, in order, with the nodes that hold them."""
        return self._pages(f"{_dataset(dataset)}/shards", "shards")

    def put_shard(
        self, dataset: str, index: int, pieces: Iterable[bytes], *, replicas: int
    ) -> Body:
        """Place one shard; an error of `pieces` is raised unchanged."""
        path = f"{_dataset(dataset)}/shards/{index}"
        return self._call("PUT", path, {"replicas": replicas}, pieces)

    def commit_dataset(self, dataset: str, *, shards: int, public: bool = False) -> Body:
        """Make a dataset visible; jobs of all users may read a public one."""
        query = {"shards": shards, "public": public}
        return self._call("POST", f"{_dataset(dataset)}/commit", query)

    def abandon_dataset(self, dataset: str) -> None:
        """Remove the shards placed for a dataset that is not committed."""
        self._call("POST", f"{_dataset(dataset)}/abandon")

    def remove_dataset(self, dataset: str, *, dry_run: bool = False) -> None:
        """Remove a dataset."""
        self._call("DELETE", _dataset(dataset), {"dry_run": dry_run})

    # --- requests --------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Body:
        with self._translated_errors():
            response = self._http.request(
                method, path, params=_given(query), content=content, headers=headers
            )
        if response.is_error:
            raise _error(response)
        body: Body = response.json()
        return body

    def _pages(self, path: str, key: str) -> list[Body]:
        """Return the entries of all pages of a route."""
        entries: list[Body] = []
        cursor: str | None = None
        while True:
            page = self._call("GET", path, {"cursor": cursor})
            entries += page[key]
            cursor = page["next"]
            if cursor is None:
                return entries

    @contextlib.contextmanager
    def _stream(self, path: str, query: dict[str, Any]) -> Iterator[httpx.Response]:
        with contextlib.ExitStack() as stack:
            with self._translated_errors():
                request = self._http.stream("GET", path, params=_given(query))
                response = stack.enter_context(request)
                if response.is_error:
                    response.read()
                    raise _error(response)
            yield response

    def _translated(self, pieces: Iterator[Any]) -> Iterator[Any]:
        with self._translated_errors():
            yield from pieces

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate connection errors into WorldError `unreachable`."""
        self._probe_connection()
        try:
            yield
        except httpx.ConnectError as error:
            raise self._not_running() from error
        except httpx.TimeoutException as error:
            hint = "the controller's log, beside the socket, may say why"
            raise self._failed("Headgate does not respond in time", hint) from error
        except httpx.TransportError as error:
            hint = "the controller may have ended: headgate up starts it again"
            raise self._failed("the connection was lost", hint, _ConnectionLost) from error

    def _probe_connection(self) -> None:
        """Connect once directly: httpx reports less of a failure, and leaves its socket open."""
        if self._probed:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self._socket))
            except PermissionError as error:
                hint = "ask an administrator to add you to the group"
                raise self._failed("permission denied", hint) from error
            except OSError as error:
                raise self._not_running() from error
        self._probed = True

    def _not_running(self) -> WorldError:
        return self._failed("no Headgate is running here", "start one: headgate up")

    def _failed(self, text: str, hint: str, family: type[WorldError] = WorldError) -> WorldError:
        problem = Problem(path=str(self._socket), problem=text, hint=hint)
        return family([problem], code="unreachable")


class _ConnectionLost(WorldError):
    """The connection broke during a request, which may or may not have taken effect."""


def _given(query: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parameters that are given; raise SpecError for a text that cannot be a name."""
    given = {key: value for key, value in (query or {}).items() if value is not None}
    problems = []
    values = [(k, v) for k, each in given.items() for v in (each if type(each) is list else [each])]
    for key, value in values:
        if isinstance(value, str) and len(value) > _LONGEST:
            text = f"has {len(value)} characters, at most {_LONGEST} are allowed"
            problems.append(Problem(path=key, problem=text))
        elif isinstance(value, str) and visible(value) != value:
            text = f"'{value}' contains characters that are invalid in names"
            problems.append(Problem(path=key, problem=text))
    if problems:
        raise SpecError(problems, code="usage")
    return given


def _job(job: str) -> str:
    return f"/jobs/{_segment(job, 'a job', 'headgate jobs lists them')}"


def _dataset(name: str) -> str:
    return f"/datasets/{_segment(name, 'a dataset', 'headgate data ls lists them')}"


def _segment(name: str, thing: str, hint: str) -> str:
    """Return a name as a segment of a path; raise SpecError `usage` for an invalid name."""
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= _LONGEST else f"{name[:40]}..."
        problem = Problem(path=shown, problem=f"'{shown}' cannot name {thing}", hint=hint)
        raise SpecError([problem], code="usage")
    return name  # a valid name needs no quoting


def _error(response: httpx.Response) -> HeadgateError:
    try:
        return error_from(response.status_code, response.json())
    except (ValueError, KeyError, TypeError):
        text = f"the response is not from Headgate (HTTP {response.status_code})"
        return WorldError(text, code="unreachable")
