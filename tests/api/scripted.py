"""A controller for tests: the real engine and policies, and a world whose runs the test ends."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headgate.api.archived import record_of
from headgate.app import POLICIES
from headgate.base.errors import Problem, SpecError
from headgate.engine import Engine
from headgate.journal import Archive
from headgate.live.controller.cancelling import need_cancellable
from headgate.live.node.marker import Marker, look
from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.model import Dataset, Gpu, Job, LogPiece, Node, Queue, RunId, Shard
from headgate.model.topology import ClusterTopology
from headgate.planning.moves.requested import requested_move
from headgate.planning.place.choose.setting import size_warnings
from headgate.planning.place.submission_check import check_submission
from headgate.planning.rounds.administration import Administration
from headgate.planning.rounds.decide import decide
from headgate.planning.scaling.draining import drain_request, resume_request
from headgate.ports import Policy, choose_policy
from headgate.ports.capabilities import CertificateStats
from headgate.protocol import (
    Command,
    DatasetAdded,
    DatasetRemoved,
    Decide,
    Event,
    FailureKind,
    GpuUse,
    JobCancelled,
    JobsArchived,
    JobSubmitted,
    KeptFiles,
    LaunchGang,
    LaunchTask,
    Moved,
    MoveRequested,
    NodeJoined,
    NodeReported,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    SlotsWithdrawn,
    StopTask,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
    TopologyChanged,
    Usage,
    WakeAt,
)
from headgate.spec import expand, load_job
from headgate.state import Snapshot, check
from headgate.state.lookup import job_row
from headgate.state.queues import job_admins

ROOT_USER = "root"
NODES = tuple(
    Node(id=f"n{i}", rack=f"r{i % 2}", gpus=(Gpu(memory_bytes=4 << 30),) * 2) for i in range(2)
)
QUEUES = (Queue(name="default"), Queue(name="narrow", weight=2.0, max_jobs_in_flight=1))


class ScriptedController:
    """A controller whose runs start when the policy places them and end when the test ends them.

    `on_launch` may end a run as soon as it starts: it returns the run's outcome, or None.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.engine = Engine()
        self.policy_name, self.stand_in, self.hung_calls = "fifo", None, 0
        self.proven: CertificateStats | None = None
        self.clock = 1_000_000.0
        self.admins = {ROOT_USER}
        self.administration = Administration(
            admins=lambda: self.admins,
            snapshot=self.snapshot,
            now=lambda: self.clock,
            handle=lambda events: self.handle(*events),
            keep_queues=lambda queues: None,
        )
        self.launches: dict[tuple[str, int], LaunchTask] = {}
        self.logs: dict[tuple[str, int, int], str] = {}
        self.results: dict[tuple[str, int], bytes] = {}
        self.files: dict[tuple[str, int], dict[str, bytes]] = {}
        self.kept: KeptFiles | None = None  # of runs that fail
        self.damaged: dict[str, bytes] = {}  # the content of files that is sent instead
        self.keys: dict[tuple[str, str], str] = {}
        self.pending: dict[str, dict[int, bytes]] = {}
        self.shards: dict[str, bytes] = {}
        self.packages: dict[tuple[str, str], bytes] = {}
        self.unshared = {"n0": "No such file or directory", "n1": "No such file or directory"}
        self._files = tempfile.TemporaryDirectory(prefix="hg-archive-")
        self.archive = Archive.open(Path(self._files.name) / "archive.db")
        self.on_launch: Callable[[LaunchTask], bytes | str | None] = lambda launch: None
        self.handle(
            *(QueueChanged(at=self.clock, queue=queue) for queue in QUEUES),
            *(NodeJoined(at=self.clock, node=node) for node in NODES),
            NodeReported(
                at=self.clock, node="n0", cpus_milli=500, memory_bytes=4 << 30,
                gpus=(GpuUse(None, None), GpuUse(1 << 30, 750)),
            ),
        )  # fmt: skip

    # --- control by the test ---------------------------------------------------------------------

    def handle(self, *events: Event) -> None:
        """Process events, and the events of the commands that follow."""
        with self.changed:
            batches: list[tuple[Event, ...]] = [events]
            while batches:
                for command in self.engine.handle(*batches.pop(0)):
                    batches += [(event,) for event in self._carry_out(command)]
            check(self.engine.state)
            self.changed.notify_all()

    def _carry_out(self, command: Command) -> Iterator[Event]:
        match command:
            case Decide():
                plan = decide(self.policy(None), 0, command, self.engine.decision_snapshot())
                yield PlanReady(at=self.clock, seen=command.seen, plan=plan)
            case LaunchTask():
                yield from self._launch(command)
            case LaunchGang():
                for member in command.members:
                    yield from self._launch(member)
            case StopTask():
                yield TaskStopped(at=self.clock, run=command.run)
            case WakeAt(at=at) if at <= self.clock:
                yield TimerFired(at=self.clock, timer=command.timer)

    def _launch(self, launch: LaunchTask) -> Iterator[Event]:
        self.launches[launch.run[:2]] = launch
        yield TaskStarted(at=self.clock, run=launch.run)
        outcome = self.on_launch(launch)
        if outcome is not None:
            yield self._end(launch, outcome)

    def _end(self, launch: LaunchTask, outcome: bytes | str) -> Event:
        if isinstance(outcome, str):
            return TaskFailed(
                at=self.clock,
                run=launch.run,
                kind=FailureKind.ERROR,
                message=outcome,
                usage=Usage(kept=self.kept),
            )
        self.results[launch.run[:2]] = outcome
        return TaskFinished(at=self.clock, run=launch.run, output_bytes=len(outcome))

    def end(self, job: str, ordinal: int, outcome: bytes | str, *, after_s: float = 1.0) -> None:
        """End a run: `outcome` is its result, or the message of its failure."""
        self.clock += after_s
        self.handle(self._end(self.launches[job, ordinal], outcome))

    def move_to_archive(self, *jobs: str) -> None:
        """Archive jobs that have ended."""
        view = self.snapshot()
        rows = [job_row(view, job) for job in jobs]
        self.archive.add([record_of(view, row) for row in rows])
        self.handle(JobsArchived(at=self.clock, jobs=jobs))

    def close(self) -> None:
        """Close the archive."""
        self.archive.close()
        self._files.cleanup()

    # --- the interface of the API ----------------------------------------------------------------

    def now(self) -> float:
        return self.clock

    def log_path(self, run: RunId, node: str) -> str:
        return f"/nodes/{node}/logs/{run.job}/{run.ordinal}.{run.attempt}.log"

    def info(self) -> Mapping[str, Any]:
        bandwidth = asdict(self.engine.state.bandwidth)
        return {
            "policy": self.policy_name, "stand_in": self.stand_in, "hung_calls": self.hung_calls,
            "seed": 0, "pid": os.getpid(), "bandwidth": bandwidth,
        }  # fmt: skip

    def policy(self, text: str | None) -> Policy:
        return choose_policy(POLICIES, self.policy_name, {}, text)

    def certified(self) -> CertificateStats | None:
        return self.proven

    def snapshot(self) -> Snapshot:
        with self.lock:
            return self.engine.snapshot()

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.engine.state.version > version, timeout_s)
            return self.engine.state.version

    def _made(self, text: str, user: str) -> Job:
        state = self.engine.state
        job_id = f"job-{len(state.names.jobs) + 1}"
        datasets = {name: dataset.shards for name, dataset in state.datasets.items()}
        job = expand(load_job(text), job_id=job_id, user=user, datasets=datasets, file_sizes={})
        reason = check_submission(job, [Queue(name=job.queue)], NODES, self.policy(None))
        if reason is not None:
            raise SpecError([Problem(path="resources", problem=str(reason))], code="infeasible")
        return job

    def may_read(self, owned: Job | Dataset, user: str) -> bool:
        return owned.public or user in (owned.user, *self.admins)

    def submit(
        self,
        text: str,
        *,
        user: str,
        key: str | None,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        with self.lock:
            known = self.keys.get((user, key or ""))
            if known is not None:
                return known
            job = self._made(text, user)
            job = replace(job, public=job.public or public, after=(*job.after, *after))
            if key is not None:
                self.keys[user, key] = job.id
            self.handle(JobSubmitted(at=self.clock, job=job))
            return job.id

    def check(self, text: str, *, user: str, after: Sequence[str] = ()) -> Job:
        del after
        with self.lock:
            return self._made(text, user)

    def warnings(self, job: Job) -> Sequence[Problem]:
        return size_warnings(self.policy(None), job)

    def cancel(
        self,
        job: str,
        task: int | None = None,
        *,
        user: str,
        now: bool = False,
        dry_run: bool = False,
    ) -> None:
        with self.lock:
            view = self.snapshot()
            admins = {*self.admins, *job_admins(view, job)}
            need_cancellable(view, self.archive, job, task, user=user, admins=admins, now=now)
            event: Event = JobCancelled(at=self.clock, job=job, by=user, now=now)
            if task is not None:
                event = TaskCancelled(at=self.clock, job=job, ordinal=task, by=user, now=now)
            if not dry_run:
                self.handle(event)

    def withdraw_slots(self, job: str, *, user: str) -> None:
        with self.lock:
            owner = self.engine.state.job(self.engine.state.names.job_rows[job]).user
            if user not in (owner, *self.admins):
                text = f"permission denied: job {job} belongs to {owner}"
                raise SpecError([Problem(path=job, problem=text)], code="forbidden")
            self.handle(SlotsWithdrawn(at=self.clock, job=job))

    def set_topology(
        self, topology: ClusterTopology | None, *, user: str, dry_run: bool = False
    ) -> None:
        if user not in self.admins:
            raise SpecError([Problem(path="topology", problem="denied")], code="forbidden")
        if not dry_run:
            self.handle(TopologyChanged(at=self.clock, topology=topology))

    def migrate(
        self,
        job: str,
        *,
        user: str,
        leave: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
    ) -> Moved:
        with self.lock:
            if user not in self.admins:
                raise SpecError([Problem(path=job, problem="permission denied")], code="forbidden")
            move = requested_move(self.snapshot(), job, user, leave=leave, to=to)
            if not dry_run:
                self.handle(MoveRequested(at=self.clock, move=move))
            return move

    def drain(self, node: str, *, user: str, reason: str = "", dry_run: bool = False) -> None:
        with self.lock:
            self._admin(node, user)
            event = drain_request(self.snapshot(), node, user=user, reason=reason, at=self.clock)
            if event is not None and not dry_run:
                self.handle(event)

    def resume(self, node: str, *, user: str, dry_run: bool = False) -> None:
        with self.lock:
            self._admin(node, user)
            event = resume_request(self.snapshot(), node, user=user, at=self.clock)
            if event is not None and not dry_run:
                self.handle(event)

    def _admin(self, path: str, user: str) -> None:
        if user not in self.admins:
            raise SpecError([Problem(path=path, problem="permission denied")], code="forbidden")

    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        gpu = GpuReport(
            index=1, name="T4", memory_bytes=4 << 30, memory_used_bytes=1 << 30, utilisation=0.75
        )
        report = NodeReport(
            cpus=4,
            cpu_utilisation=0.125,
            memory_bytes=16 << 30,
            memory_free_bytes=12 << 30,
            disk_bytes=20 << 30,
            disk_free_bytes=10 << 30,
            gpus=(gpu,),
        )
        return {"n0": asdict(report)}

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        with self.lock:
            state, past = self.engine.state, self.archive.find(job)
            if past is not None:
                last, running = self.archive.task(past, ordinal).view["attempts"], False
            else:
                row = state.tasks_of(state.names.job_rows[job])[ordinal]
                last = state.tasks.attempts[row]
                running = attempt in (None, last) and state.tasks.grant[row] >= 0
            data = self.logs.get((job, ordinal, attempt or last), "").encode()
        piece = data[offset : offset + 1000]
        after = offset + len(piece)
        return LogPiece(
            text=piece.decode(), next_offset=after, ended=not running and after == len(data)
        )

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        with self.lock:
            state, past = self.engine.state, self.archive.find(job)
            if past is not None:
                last = past.task_count - 1
            else:
                last = len(state.tasks_of(state.names.job_rows[job])) - 1
            data = self.results[job, last if ordinal is None else ordinal]
        return (data[i : i + 7] for i in range(0, len(data), 7))

    def kept_files(self, job: str, ordinal: int) -> Mapping[str, Any]:
        files = [
            {
                "path": path,
                "size_bytes": len(data),
                "checksum": hashlib.blake2b(data, digest_size=16).hexdigest(),
                "executable": False,
            }
            for path, data in self.files[job, ordinal].items()
        ]
        return {"attempt": 1, "node": "n0", "files": files, "unkept": []}

    def kept_content(self, job: str, ordinal: int, attempt: int) -> Iterator[bytes]:
        assert attempt == 1
        data = b"".join(self.damaged.get(path, d) for path, d in self.files[job, ordinal].items())
        return (data[i : i + 7] for i in range(0, len(data), 7))

    def put_package(self, digest: str, pieces: Iterator[bytes], *, user: str) -> Mapping[str, Any]:
        data = b"".join(pieces)
        if hashlib.sha256(data).hexdigest() != digest:
            raise SpecError("the files have changed", code="changed")
        self.packages[user, digest] = data
        return self.use_package(digest, user=user)

    def use_package(self, digest: str, *, user: str) -> Mapping[str, Any]:
        if (user, digest) not in self.packages:
            raise SpecError(f"there is no package {digest}", code="not_found")
        return {"package": digest, "size_bytes": len(self.packages[user, digest])}

    def shared_directory(
        self, path: str, name: str, content: str, *, user: str
    ) -> Mapping[str, Any]:
        found = look(Marker(path=path, name=name, content=content), user)
        problems = {"n0": found.problem} if found.problem else self.unshared
        return {
            "path": path,
            "shared": not problems,
            "inode": 0 if problems else found.inode,
            "nodes": problems,
        }

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str
    ) -> Mapping[str, Any]:
        if replicas > len(NODES):
            raise SpecError([Problem(path="replicas", problem=f"{replicas} on {len(NODES)} nodes")])
        if dataset in self.engine.state.datasets:
            text = f"there is a dataset '{dataset}' already"
            raise SpecError([Problem(path=dataset, problem=text)], code="exists")
        data = b"".join(pieces)
        self.pending.setdefault(dataset, {})[index] = data
        return {"size_bytes": len(data), "nodes": [n.id for n in NODES[:replicas]]}

    def commit_dataset(
        self, dataset: str, *, shards: int, user: str, public: bool = False
    ) -> Dataset:
        parts = self.pending.pop(dataset)
        assert sorted(parts) == list(range(shards))
        made = Dataset(
            name=dataset,
            user=user,
            public=public,
            shards=tuple(
                Shard(id=f"{dataset}:{i:05d}", size_bytes=len(parts[i])) for i in range(shards)
            ),
        )
        for shard, i in zip(made.shards, range(shards), strict=True):
            self.shards[shard.id] = parts[i]
            self.handle(*(ReplicaAdded(at=self.clock, shard=shard, node=n.id) for n in NODES))
        self.handle(DatasetAdded(at=self.clock, dataset=made))
        return made

    def abandon_dataset(self, dataset: str, *, user: str) -> None:
        self.pending.pop(dataset, None)

    def remove_dataset(self, dataset: str, *, user: str, dry_run: bool = False) -> None:
        owner = self.engine.state.datasets[dataset].user
        if user not in (owner, *self.admins):
            text = f"permission denied: dataset {dataset} belongs to {owner}"
            raise SpecError([Problem(path=dataset, problem=text)], code="forbidden")
        if not dry_run:
            self.handle(DatasetRemoved(at=self.clock, name=dataset))
