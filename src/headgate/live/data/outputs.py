"""Logs, results and files of jobs, read from nodes or a shared path.

The state contains where a job's results are stored; for an archived job the archive does.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import whole_characters
from headgate.journal import Archive, ArchivedJob
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.cluster.ray_nodes import short_error
from headgate.live.node.flight import fetch, stream_files
from headgate.live.node.shared import copy_shared
from headgate.live.node.store import read_pieces
from headgate.model import Job, LogPiece, RunId, Shard, result_ids
from headgate.state import Snapshot
from headgate.state.life import ENDED, HOLDING
from headgate.state.lookup import job_row, known_row, known_shard, task_row

log = logging.getLogger(__name__)

_AGENT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastRun:
    """The last run of a task: attempt (0 before the first), node, whether it holds a grant."""

    attempt: int
    node: str
    holds: bool
    job_ended: bool


class Outputs:
    """Reads logs, results and files; calls come from any thread and block while data moves."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        archive: Archive,
        agents: Mapping[str, Any],
        reachable: ReachableNodes,
        token: str,
    ) -> None:
        """`agents` and `reachable` are of the nodes that are up, maintained by `Membership`."""
        self._snapshot, self._archive = snapshot, archive
        self._agents, self._reachable, self._token = agents, reachable, token

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        """Return a run's output from a byte offset on; the last attempt by default.

        WorldError `unreachable` if its node is down; SpecError `not_found`.
        """
        import ray
        from ray.exceptions import RayError

        last = self._last_run(job, ordinal)
        if not last.attempt:
            return LogPiece(text="", next_offset=0, ended=last.job_ended)
        ended = attempt not in (None, last.attempt) or not last.holds
        agents = list(self._agents.items())
        if attempt in (None, last.attempt):
            agents = [(name, agent) for name, agent in agents if name == last.node]
            if not agents:
                text = f"the log is on {last.node}, which is not up"
                raise WorldError(text, code="unreachable")
        run = RunId(job, ordinal, last.attempt if attempt is None else attempt)
        calls = [a.read_log.remote(run, offset=offset) for _, a in agents]
        try:
            data, next_offset = max(ray.get(calls, timeout=_AGENT_S), key=lambda p: len(p.data))
        except RayError as error:
            log.warning("the log of %s/%d cannot be read: %s", job, ordinal, error)
            text = f"the log cannot be read: {short_error(error)}"
            raise WorldError(text, code="unreachable") from error
        whole = whole_characters(data)  # the rest belongs to the next piece, if there is one
        rest = len(data) - whole if whole or not ended else 0
        data = data[: len(data) - rest]
        return LogPiece(
            text=data.decode(errors="replace"),
            next_offset=next_offset - rest,
            ended=ended and not data,
        )

    def _last_run(self, job: str, ordinal: int) -> _LastRun:
        view = self._snapshot()
        past = self._archived(view, job)
        if past is not None:
            task = self._archive.task(past, ordinal).view
            attempt, node = task["attempts"], task["node"] or ""
            return _LastRun(attempt=attempt, node=node, holds=False, job_ended=True)
        row = task_row(view, job_row(view, job), ordinal)
        node_row = view.tasks.node[row]
        return _LastRun(
            attempt=view.tasks.attempts[row],
            node="" if node_row < 0 else view.node(node_row).id,
            holds=view.tasks.state[row] in HOLDING,
            job_ended=view.jobs.state[view.tasks.job[row]] in ENDED,
        )

    def kept_files(self, job: str, ordinal: int) -> dict[str, Any]:
        """Return the files that the last run of a task which left any has left on its node.

        SpecError `not_found` without any, WorldError `unreachable` where its node is not up.
        """
        import ray
        from ray.exceptions import RayError

        attempt, node = self._kept_run(job, ordinal)
        agent = self._agents.get(node)
        if agent is None:
            raise _files_not_up(job, ordinal, node)
        try:
            found = agent.kept_files.remote(RunId(job, ordinal, attempt))
            manifest = ray.get(found, timeout=_AGENT_S)
        except RayError as error:
            log.warning("the files of %s/%d cannot be listed: %s", job, ordinal, error)
            text = f"the files of task {ordinal} cannot be listed: {short_error(error)}"
            raise WorldError(text, code="unreachable") from error
        listed = () if manifest is None else manifest.files
        return {
            "attempt": attempt,
            "node": node,
            "files": [asdict(file) for file in listed],
            "unkept": []
            if manifest is None
            else [{"path": path, "why": why} for path, why in manifest.unkept],
        }

    def kept_content(self, job: str, ordinal: int, attempt: int) -> Iterator[bytes]:
        """Yield the bytes of these files, one after the other; errors as of `kept_files`.

        SpecError `not_found` where a later run has left others.
        """
        last, node = self._kept_run(job, ordinal)
        if last != attempt:
            text = f"the files of attempt {attempt} were replaced by those of attempt {last}"
            raise SpecError([Problem(path=f"{job}/{ordinal}", problem=text)], code="not_found")
        if node not in self._reachable.addresses:
            raise _files_not_up(job, ordinal, node)
        address = self._reachable.addresses[node]
        return stream_files(*address, RunId(job, ordinal, attempt), token=self._token)

    def _kept_run(self, job: str, ordinal: int) -> tuple[int, str]:
        """Return the attempt that has left the files of a task, and its node."""
        view = self._snapshot()
        past = self._archived(view, job)
        if past is not None:  # archives of earlier releases have no files
            kept = self._archive.task(past, ordinal).view.get("files")
            found = None if kept is None else (kept["attempt"], kept["node"])
        else:
            run = view.tasks.kept[task_row(view, job_row(view, job), ordinal)]
            found = None if run is None else (run.attempt, run.node)
        if found is None:
            text = f"no run of task {ordinal} has left files"
            raise SpecError([Problem(path=job, problem=text)], code="not_found")
        return found

    def _archived(self, view: Snapshot, job: str) -> ArchivedJob | None:
        return None if known_row(view, job) is not None else self._archive.find(job)

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        """Return the result of a finished task in pieces, the job's last one by default.

        Parts follow each other in order. Every node with a replica is tried, then the job's shared
        path. SpecError `not_found`, WorldError `unreachable`.
        """
        view = self._snapshot()
        past = self._archived(view, job)
        if past is not None:
            return self._stream(self._archived_places(past, ordinal), past.job)
        row = job_row(view, job)
        chosen = view.jobs.task_count[row] - 1 if ordinal is None else ordinal
        parts = view.task(task_row(view, row, chosen)).parts
        places = {}
        for shard in result_ids(job, chosen, parts):
            shard_row = known_shard(view, shard)
            if shard_row is None:
                continue  # empty: no run has reported it
            holders, shared = view.replicas(shard_row), view.shards.shared[shard_row]
            if not holders and not shared:
                raise _no_result(job, shard)
            value = Shard(id=shard, size_bytes=view.shards.size_bytes[shard_row])
            places[value] = [view.node(n).id for n in holders]
        return self._stream(places, view.job(row))

    def _archived_places(self, job: ArchivedJob, ordinal: int | None) -> dict[Shard, Sequence[str]]:
        chosen = job.task_count - 1 if ordinal is None else ordinal
        parts = self._archive.task(job, chosen).parts
        places: dict[Shard, Sequence[str]] = {}
        for shard, part in zip(result_ids(job.job.id, chosen, len(parts)), parts, strict=True):
            if part is None:
                continue
            if not part.nodes and not part.shared:
                raise _no_result(job.job.id, shard)
            places[Shard(id=shard, size_bytes=part.size_bytes)] = part.nodes
        return places

    def _stream(self, places: Mapping[Shard, Sequence[str]], owner: Job) -> Iterator[bytes]:
        """Fetch each shard from one of its nodes, all before the first piece is returned.

        A shard that no node provides is read from the job's shared path, if it has one.
        """
        directory = tempfile.TemporaryDirectory(prefix="headgate-result-")
        paths: list[Path] = []
        try:
            for shard, nodes in places.items():
                to = Path(directory.name) / str(len(paths))
                try:
                    self._fetch(shard.id, nodes, to)
                except WorldError as error:
                    path = owner.results_path
                    if not path or not copy_shared(path, shard, to, user=owner.user):
                        where = f"{error}" + (f"; nor below {path}" if path else "")
                        raise WorldError(where, code="unreachable") from error
                paths.append(to)
        except BaseException:
            directory.cleanup()
            raise

        def pieces() -> Iterator[bytes]:
            with directory:
                for path in paths:
                    yield from read_pieces(path)

        return pieces()

    def _fetch(self, shard: str, nodes: Sequence[str], to: Path) -> None:
        """Fetch a shard from the first node that provides it; WorldError of the last one."""
        known = self._reachable.addresses
        text = f"{shard} is on {', '.join(nodes)}: not up" if nodes else f"no node has {shard}"
        failure = WorldError(text, code="unreachable")
        for node in nodes:
            if node in known:
                try:
                    fetch(*known[node], shard, to, token=self._token)
                except WorldError as error:
                    failure = error
                else:
                    return
        raise failure


def _files_not_up(job: str, ordinal: int, node: str) -> WorldError:
    text = f"its files are on {node}, which is not up"
    return WorldError([Problem(path=f"{job}/{ordinal}", problem=text)], code="unreachable")


def _no_result(job: str, shard: str) -> SpecError:
    return SpecError([Problem(path=job, problem=f"there is no result {shard}")], code="not_found")
