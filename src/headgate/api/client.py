"""The Python API: a client of the REST API of a Headgate over its Unix socket."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headgate.api import following
from headgate.api.address import socket_path
from headgate.api.connection import Connection, ConnectionLost, Content
from headgate.api.programs import job_of_command
from headgate.api.settings import Format, settle
from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible

if TYPE_CHECKING:
    import pyarrow as pa

Body = dict[str, Any]
_log = logging.getLogger(__name__)
_LONGEST = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # also jobs' ids: a name and a number
_RESPONSE_S = 300.0  # placing a shard of a large dataset takes long


class Client:
    """A running Headgate; every error is the HeadgateError that its controller raised.

    Besides, SpecError `usage` for an invalid name, and WorldError `unreachable` when no controller
    responds. Calls from any thread. Views of jobs, nodes and so on are those of the REST API.
    """

    def __init__(
        self,
        socket: Path | None = None,
        *,
        state: Path | str | None = None,
        timeout_s: float = _RESPONSE_S,
    ) -> None:
        """`state` is the state directory, by default the one that the command line would use.

        `socket` is the path of the socket instead. The first call connects.
        """
        if socket is None:
            given = None if state is None else Path(state)
            socket = socket_path(settle(given, Format.TABLE).state)
        self._http = Connection(socket, timeout_s=timeout_s)

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

    def nodes(self, *, all: bool = False) -> list[Body]:  # noqa: A002  # as the route names it
        """Return the nodes, without `all` only those that are up, drain, or were within an hour."""
        nodes: list[Body] = self._call("GET", "/nodes", {"all": all})["nodes"]
        return nodes

    def queues(self) -> list[Body]:
        """Return the queues."""
        queues: list[Body] = self._call("GET", "/queues")["queues"]
        return queues

    def set_queues(self, text: str, *, dry_run: bool = False) -> Body:
        """Have the queues of a queues file's text and no others; return what changes."""
        return self._call("PUT", "/queues", {"dry_run": dry_run}, text.encode())

    def assign(self, job: str, queue: str, *, dry_run: bool = False) -> Body:
        """Move a job to another queue; its runs continue."""
        return self._call("POST", f"{_job(job)}/queue", {"name": queue, "dry_run": dry_run})

    def links(self) -> Body:
        """Return running jobs that communicate, and the expected load of links; see the route."""
        return self._call("GET", "/links")

    def topology(self) -> Body:
        """Return the topology of the cluster, and the jobs on its leaves."""
        return self._call("GET", "/topology")

    def set_topology(self, text: str, *, dry_run: bool = False) -> Body:
        """Put a topology file's text in force; without text, the tree of racks."""
        query = {"dry_run": dry_run}
        return self._call("PUT", "/topology", query, text.encode())

    def plan(
        self, *, policy: str | None = None, nodes: int | None = None, like: str | None = None
    ) -> Body:
        """Return the starts and preemptions of a hypothetical round now; see the route."""
        return self._call("GET", "/plan", {"policy": policy, "nodes": nodes, "like": like})

    def events(self) -> Iterator[Body]:
        """Yield counts now and after every change, until the controller ends."""
        for line in self._http.lines("/events", {}):
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    # --- jobs ------------------------------------------------------------------------------------

    def jobs(self, **query: str | int | None) -> Body:
        """Return a page of jobs, newest first, and `next`; see the route for the query."""
        return self._call("GET", "/jobs", query)

    def submit(
        self,
        job: str | Path | Mapping[str, Any],
        *,
        key: str | None = None,
        dry_run: bool = False,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a job and return its id; all users may read a public one's logs and results.

        `job` is a job file: its text, its path, or its content. Of a path or a content, files that
        it names are sent first, relative to the file or the current directory; a text is submitted
        unchanged. It comes after the jobs `after` (ids), beside those that the file names. When the
        connection breaks, the request is repeated once under the same key: never two jobs.
        """
        text = job if isinstance(job, str) else self._with_files(job, dry_run=dry_run)
        answer = self.submission(text, key=key, dry_run=dry_run, public=public, after=after)
        return str(answer["id"])

    def submission(
        self,
        text: str,
        *,
        key: str | None = None,
        dry_run: bool = False,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> Body:
        """Submit the text of a job file as `submit` does; return the job's `id`, and `warnings`."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        query = {"dry_run": dry_run, "public": public, "after": [*after]}
        try:
            return self._call("POST", "/jobs", query, text.encode(), headers)
        except ConnectionLost:
            return self._call("POST", "/jobs", query, text.encode(), headers)

    def _with_files(self, job: Path | Mapping[str, Any], *, dry_run: bool) -> str:
        """Send the files of a job, and return the text to submit; warnings are logged."""
        from headgate.api.sending import base_of, send_files
        from headgate.spec.document import read_text

        source, base = (
            (read_text(job), base_of(job)) if isinstance(job, Path) else (job, Path.cwd())
        )
        text, warnings = send_files(self, source, base=base, dry_run=dry_run)
        for warning in warnings:
            _log.warning("%s", warning)
        return text

    def job(self, job: str) -> Body:
        """Return one job."""
        return self._call("GET", _job(job))

    def tasks(self, job: str) -> list[Body]:
        """Return all tasks of a job, by ordinal."""
        return self._pages(f"{_job(job)}/tasks", "tasks")

    def task(self, job: str, ordinal: int) -> Body:
        """Return one task of a job."""
        return self._call("GET", f"{_job(job)}/tasks/{ordinal}")

    def cancel(
        self, job: str, task: int | None = None, *, now: bool = False, dry_run: bool = False
    ) -> Body:
        """Cancel a job, or one task of it alone; `now`: kill its runs without notice."""
        place = _job(job) if task is None else f"{_job(job)}/tasks/{task}"
        return self._call("DELETE", place, {"now": now, "dry_run": dry_run})

    def withdraw_slots(self, job: str) -> Body:
        """Finish the slots of an executor's job that have no run."""
        return self._call("DELETE", f"{_job(job)}/slots")

    def migrate(
        self, job: str, *, leave: str | None = None, to: str | None = None, dry_run: bool = False
    ) -> Body:
        """Move the runs of a job, or those on the node `leave`, to other nodes, or to `to`."""
        query = {"from": leave, "to": to, "dry_run": dry_run}
        query = {name: value for name, value in query.items() if value is not None}
        return self._call("POST", f"{_job(job)}/migrate", query)

    def drain(self, node: str, *, reason: str = "", dry_run: bool = False) -> Body:
        """Let no run start on a node; `reason` is for users whose jobs wait."""
        query = {"reason": reason, "dry_run": dry_run}
        return self._call("POST", f"{_node(node)}/drain", query)

    def label(
        self,
        node: str,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        *,
        dry_run: bool = False,
    ) -> Body:
        """Set labels of a node and remove those of some names; without any, only return them."""
        query = {"add": list(add), "remove": list(remove), "dry_run": dry_run}
        return self._call("POST", f"{_node(node)}/labels", query)

    def set_labels(self, text: str, *, dry_run: bool = False) -> Body:
        """Give nodes the labels of a labels file's text, and no others."""
        return self._call("PUT", "/labels", {"dry_run": dry_run}, text.encode())

    def scaling(self) -> Body:
        """Return the shapes of nodes, the orders on their way, and what would be ordered now."""
        return self._call("GET", "/scaling")

    def resume(self, node: str, *, dry_run: bool = False) -> Body:
        """Let runs start on a draining node again."""
        query = {"dry_run": dry_run}
        return self._call("POST", f"{_node(node)}/resume", query)

    def run(self, command: str | Sequence[str], **options: Any) -> Body:
        """Submit a job of one command, wait for its end and return its view.

        A command in one piece is for the shell, a sequence is a program with its arguments. The
        options are those of `job_of_command`: `name`, `queue`, `gpus`, `cpus`, `memory`,
        `num_nodes`, `time_limit`, `envs`.
        """
        return self.wait(self.submit(job_of_command(command, **options)))

    def changes(self, job: str) -> Iterator[Body]:
        """Yield the view of a job now and after every change, until its end."""
        return following.changes(self, job)

    def wait(self, job: str, *, timeout_s: float | None = None) -> Body:
        """Wait for a job's end and return its view; WorldError `timeout` after `timeout_s` seconds.

        Continues across restarts of the controller that take at most a minute.
        """
        *_, view = following.changes(self, job, timeout_s=timeout_s)
        return view

    def why(self, job: str, task: int | None = None) -> Body:
        """Return the state of a job, or of one of its tasks, and why it waits."""
        return self._call("GET", f"{_job(job)}/explanation", {"task": task})

    def log(self, job: str, task: int, *, attempt: int | None, offset: int) -> Body:
        """Return a piece of a run's log from `offset` (bytes): `text`, `next_offset`, `ended`."""
        query = {"task": task, "attempt": attempt, "offset": offset}
        return self._call("GET", f"{_job(job)}/logs", query)

    def logs(
        self, job: str, task: int | None = None, *, attempt: int | None = None, follow: bool = False
    ) -> Iterator[str]:
        """Yield the output of a task in pieces; with `follow` until it ends, through retries.

        By default of the task that failed, else of one that runs, else of the last that ran, and of
        its last attempt. SpecError `not_finished` for one that has not run, unless `follow`.
        """
        shown, _ = following.shown_task(self, job, task)
        first, ordinal = attempt or max(1, shown["attempts"]), shown["ordinal"]
        if not follow:
            following.need_output(job, shown)
            return following.written(self, job, ordinal, first)
        only = attempt is not None
        pieces = following.followed(self, job, ordinal, first=first, only=only)
        return (text for _, text in following.paused(pieces))

    def result(self, job: str, task: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of the result of a finished task, the job's last one by default."""
        return self._http.pieces(f"{_job(job)}/result", _given({"task": task}))

    def files(self, job: str, task: int = 0) -> Body:
        """Return the files that a task has left on its node: of which `attempt`, and which.

        Of each the `path` in its working directory, `size_bytes` and `checksum`.
        """
        return self._call("GET", f"{_job(job)}/files", {"task": task})

    def files_content(self, job: str, task: int, attempt: int) -> Iterator[bytes]:
        """Yield the bytes of these files, one after the other, in their order."""
        query = {"task": task, "attempt": attempt}
        return self._http.pieces(f"{_job(job)}/files/content", query)

    def fetch_files(
        self, job: str, directory: Path, *, task: int | None = None, overwrite: bool = False
    ) -> list[Body]:
        """Write the files that a job's runs have left into a directory, and return their views.

        Those of a job with several tasks go into one directory per task, named by its ordinal,
        unless one `task` is named. SpecError `exists` when files with other content are there,
        unless `overwrite`; then nothing is written. Every file appears whole or not at all:
        WorldError `files_damaged`, once all others are written, names those that were not intact.
        """
        from headgate.api.receiving import Download  # not for the other calls

        download = Download(self, job, directory, task=task)
        if not overwrite:
            download.need_no_overwriting()
        return download.write()

    def results(self, job: str) -> Iterator[tuple[int, bytes]]:
        """Yield the ordinal and the result of each finished task of a job, in order.

        Of an elastic job not of units that were not needed.
        """
        for task in self.tasks(job):
            if task["state"] == "finished" and task.get("needed", True):
                yield task["ordinal"], b"".join(self.result(job, task["ordinal"]))

    def table(self, name: str) -> pa.Table:
        """Return the present `jobs`, `nodes`, `queues` or `datasets` as an Arrow table.

        `.to_pandas()` makes a data frame of it where pandas is installed. Sizes are bytes, times
        seconds since the epoch. SpecError `usage` for another name.
        """
        from headgate.api.tables import table_of  # pyarrow loads slowly

        return table_of(self, name)

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

    def shared_directory(self, path: str, name: str, content: str) -> Body:
        """Return whether all nodes have the directory of a marker, a file in it; see the route."""
        query = {"path": path, "name": name, "content": content}
        return self._call("GET", "/shared-directory", query)

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
        content: Content = None,
        headers: dict[str, str] | None = None,
    ) -> Body:
        body: Body = self._http.call(method, path, _given(query), content, headers)
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


def _node(name: str) -> str:
    return f"/nodes/{_segment(name, 'a node', 'headgate nodes lists them')}"


def _dataset(name: str) -> str:
    return f"/datasets/{_segment(name, 'a dataset', 'headgate data ls lists them')}"


def _segment(name: str, thing: str, hint: str) -> str:
    """Return a name as a segment of a path; raise SpecError `usage` for an invalid name."""
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= _LONGEST else f"{name[:40]}..."
        problem = Problem(path=shown, problem=f"'{shown}' cannot name {thing}", hint=hint)
        raise SpecError([problem], code="usage")
    return name  # a valid name needs no quoting
