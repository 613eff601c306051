"""The controller: the engine on its journal, the live world around it, and the calls of the API.

It may be killed at any moment: masters and executors continue to run, and the next controller
replays the journal and repeats outstanding commands.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import pwd
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.engine import drive
from headgate.journal import Archive, Record
from headgate.live.actors.masters import end_earlier_actors
from headgate.live.base.config import ControllerConfig, save_config
from headgate.live.base.permissions import secret
from headgate.live.base.supervise import supervise
from headgate.live.cluster.holders import Holders
from headgate.live.cluster.node_supervisor import NodeSupervisor
from headgate.live.cluster.ordering import Orders
from headgate.live.cluster.providers.make import make_provider
from headgate.live.cluster.ray_nodes import own_address
from headgate.live.controller.cancelling import need_cancellable, need_cancelled
from headgate.live.controller.directories import SharedDirectories
from headgate.live.controller.durable import DurableEngine
from headgate.live.controller.submission import Submissions
from headgate.live.controller.world import LiveWorld
from headgate.live.data.archivist import Archivist
from headgate.live.data.claims import DatasetClaims
from headgate.live.data.datasets import DatasetUploads
from headgate.live.data.expiry import Expiry
from headgate.live.data.outputs import Outputs
from headgate.live.data.replication import Replicator
from headgate.live.membership.membership import Membership
from headgate.live.node.marker import Marker
from headgate.live.node.packages import Packages
from headgate.live.node.run_logs import log_path
from headgate.machine.needed import has_unneeded
from headgate.model import Dataset, Job, LogPiece, Node, Queue, RunId
from headgate.model.queue import DEFAULT
from headgate.model.scaling import Scaling
from headgate.model.topology import ClusterTopology
from headgate.planning.moves.requested import not_admitted, requested_move, was_admitted
from headgate.planning.place.choose.setting import size_warnings
from headgate.planning.rounds.administration import Administration
from headgate.planning.scaling.draining import drain_request, resume_request
from headgate.ports import Policy, capabilities
from headgate.ports.capabilities import CertificateStats
from headgate.protocol import (
    Command,
    DatasetRemoved,
    Event,
    JobCancelled,
    Moved,
    MoveRequested,
    NodeLost,
    QueueChanged,
    ReplicaLost,
    ScalingChanged,
    SlotsWithdrawn,
    TaskCancelled,
    TopologyChanged,
)
from headgate.spec.live_scaling import load_live_scaling
from headgate.spec.topology import mismatches
from headgate.state import Snapshot
from headgate.state.life import ENDED
from headgate.state.lookup import dataset_of, job_row
from headgate.state.queues import job_admins

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

_HANDLED_S = 30.0
_LOOK_S = 0.5
_STOP_S = 10.0


class Controller:
    """The operations of the API; calls come from any thread."""

    def __init__(
        self,
        *,
        state: Path,
        config: ControllerConfig,
        policies: Callable[[str | None], Policy],
        record_of: Callable[[Snapshot, int], Record],
    ) -> None:
        """Open the journal in `state` and rebuild the engine; WorldError as of `DurableEngine`.

        `policies(None)` makes the policy in force, `policies(text)` any other; `record_of` is as of
        `Archivist`.
        """
        self._state, self._policies, self._config = state, policies, config
        self._durable = DurableEngine(state / "journal.db")
        self.archive = self._open_archive()
        self._engine = self._durable.engine
        self.world = LiveWorld(
            policies=policies,
            seed=config.seed,
            root=state / "nodes",
            log_limit_bytes=config.log_limit_bytes,
            max_processes=config.max_processes,
            spares=config.spares,
        )
        token = secret(state / "shard-token")
        self._changed, self._published = threading.Condition(), self._engine.snapshot()
        view: dict[str, Any] = {"now": self.world.now, "snapshot": self.snapshot}
        engine = {**view, "post": self.world.inbox.post}
        separate_users = config.group is not None and not config.shared_account
        self.membership = Membership(
            root=state / "nodes",
            reachable=self.world.reachable,
            archive=self.archive,
            **engine,
            token=token,
            separate_users=separate_users,
            holders=Holders() if config.foreign else None,
            probe_period_s=config.probe_period_s,
        )
        self.world.lend = self.membership.lend
        self._scaling = self._scale(engine)
        self._claims, self._outputs = DatasetClaims(), self._make_outputs(token)
        self._uploads = DatasetUploads(self.membership, token=token)
        self._packages = Packages(state / "packages", token=token, snapshot=self.snapshot)
        self.admins, self.administration = _own_admins(), self._administration()
        self._submissions = Submissions(
            claims=self._claims,
            policy=self.world.policy,
            handle=self._handle,
            may_read=self.may_read,
            check_users=not config.foreign,
            joined=config.foreign,
            trusted=self.admins if separate_users else None,
            archive=self.archive,
            use_package=self.use_package,
            **view,
        )
        self._works = self._background(record_of, engine)
        self._thread = threading.Thread(target=self._drive, name="engine", daemon=True)

    def _scale(self, engine: dict[str, Any]) -> Scaling | None:
        """Connect the provider of nodes; return the catalogue, None without one."""
        if not self._config.scaling:
            return None
        scaling, provider = load_live_scaling(self._config.scaling)
        self.world.orders = Orders(make_provider(provider, self._state), **engine)
        return scaling

    def _make_outputs(self, token: str) -> Outputs:
        return Outputs(
            snapshot=self.snapshot,
            archive=self.archive,
            agents=self.membership.agents,
            reachable=self.world.reachable,
            token=token,
        )

    def _background(
        self, record_of: Callable[[Snapshot, int], Record], engine: dict[str, Any]
    ) -> dict[str, Work]:
        """Return the background work that runs beside the engine, by name."""
        replicator = Replicator(
            agents=self.membership.agents,
            reports=self.membership.reports,
            reachable=self.world.reachable,
            **engine,
        )
        expiry = Expiry(default_s=self._config.keep_results_s, archive=self.archive, **engine)
        self._archivist = Archivist(
            archive=self.archive,
            record_of=record_of,
            retain_s=self._config.retain_s,
            archived=self._submissions.forget,
            **engine,
        )
        return {
            "starting spares": self.world.spares.run,
            "ending idle masters": self.world.end_idle,
            "restarting nodes": NodeSupervisor(self._state).run,
            "copying results": replicator.run,
            "expiring results": expiry.run,
            "archiving jobs": self._archivist.run,
            "expiring packages": self._packages.run,
        }

    # --- start and stop ----------------------------------------------------------------------

    def start(self) -> None:
        """Continue from the journal: repeat outstanding commands and watch the nodes."""
        view = self._published
        self.world.reachable.packages = self._packages.serve(own_address())
        end_earlier_actors()
        self.world.submit(self._engine.outstanding(), self._engine.decision_snapshot)
        self.world.reconcile()
        self._thread.start()
        self._set_queues(view)
        self.world.start(self.membership.run())
        self.world.start(supervise("setting the scaling", lambda: self._set_scaling(view)))
        for what, work in self._works.items():
            self.world.start(supervise(what, work))

    def stop(self) -> None:
        """Stop scheduling and close the journal; runs continue."""
        self._submissions.close()
        self.world.inbox.close()
        self._thread.join(timeout=_STOP_S)
        self.world.close()
        self._packages.close()
        if not self._thread.is_alive():  # it may wait for free space on the journal's disk
            self._durable.close()
            self.archive.close()

    def _administration(self) -> Administration:
        return Administration(
            admins=lambda: self.admins,
            snapshot=self.snapshot,
            now=self.world.now,
            handle=self._handle,
            keep_queues=self._keep_queues,
        )

    def _open_archive(self) -> Archive:
        try:
            return Archive.open(self._state / "archive.db")
        except BaseException:
            self._durable.close()
            raise

    def _set_queues(self, view: Snapshot) -> None:
        wanted = {queue.name: queue for queue in self._config.queues}
        wanted.setdefault(DEFAULT, Queue(name=DEFAULT))
        known = {view.queue(row).name: view.queue(row) for row in range(len(view.queues.spec))}
        at = self.world.now()
        changed = [q for name, q in wanted.items() if known.get(name) != q]
        if changed:
            self._handle([QueueChanged(at=at, queue=queue) for queue in changed])

    async def _set_scaling(self, view: Snapshot) -> None:
        """Change the scaling, after the nodes that are joining have: the floor counts them."""
        if view.fleet.scaling != self._scaling:
            await self.membership.looked.wait()
            event = ScalingChanged(at=self.world.now(), scaling=self._scaling)
            await asyncio.to_thread(self._handle, [event])

    def _drive(self) -> None:
        try:
            drive(
                self._engine,
                self.world,
                record=lambda batch: self._durable.record(self.world.inbox, batch),
                observe=(self._observe,),
            )
        except BaseException:  # any failure ends the process
            # An engine that broke an invariant must not continue: the next controller starts from
            # the journal, and the log has the history.
            log.exception("the engine stopped")
            os._exit(70)

    def _observe(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Publish the state after a batch and resolve what waits for its events."""
        del commands
        self._published = self._engine.snapshot()
        for event in batch:
            if isinstance(event, NodeLost):
                self.world.node_lost(event.node)
        for posted in self.world.inbox.batch:
            posted.resolve()
        with self._changed:
            self._changed.notify_all()
        self._durable.save_periodically()

    def _handle(self, events: Sequence[Event]) -> None:
        """Post events of a user and wait until they are durable and handled.

        They are withdrawn when the engine does not process them: the journal's disk is full, or it
        is overloaded. WorldError then.
        """
        handled = self.world.inbox.post(events, from_user=True)
        until = time.monotonic() + _HANDLED_S
        while True:
            try:
                handled.result(timeout=_LOOK_S)
            except TimeoutError:
                full = self._durable.full
                if (full or time.monotonic() > until) and handled.cancel():
                    raise _not_handled(full) from None
            else:
                return

    # --- views -------------------------------------------------------------------------------

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.world.now()

    def info(self) -> Mapping[str, Any]:
        """Return facts about this controller."""
        return {
            "state": str(self._state),
            "ray_address": self._config.ray_address,
            "seed": self._config.seed,
            "log_limit_bytes": self._config.log_limit_bytes,
            "max_processes": self._config.max_processes,
            "pid": os.getpid(),
            "policy": self.world.policy.name,
            "stand_in": self.world.deciding.stand_in,
            "hung_calls": self.world.deciding.hung_calls,
            "replayed_events": self._durable.replayed_events,
            "journal_full": self._durable.full is not None,
            "journal_missing_events": self._durable.journal.missing_events,
            "stale_answers": self._engine.stale,
            "bandwidth": asdict(self._published.bandwidth),
            "keep_results_s": _finite(self._config.keep_results_s),
            "retain_s": _finite(self._config.retain_s),
        }

    def snapshot(self) -> Snapshot:
        """Return the state after the last handled batch."""
        return self._published

    def policy(self, text: str | None) -> Policy:
        """Return a policy for one request, never the one in force, which another thread uses."""
        deciding = self.world.deciding
        copied = deciding.warm_copy() if text is None else None
        return self._policies(text or deciding.stand_in) if copied is None else copied

    def certified(self) -> CertificateStats | None:
        """Return how many plans were certified; None for a policy without certificates."""
        policy = self.world.deciding.policy
        return None if policy is None else capabilities(policy).certified

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Return the version once it exceeds `version`, or after `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._published.version > version, timeout_s)
        return self._published.version

    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the last report of every node that is up."""
        return dict(self.membership.reports)

    # --- jobs --------------------------------------------------------------------------------

    def submit(
        self,
        text: str,
        *,
        user: str,
        key: str | None,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a job file and return the job's id, once it is durable and handled."""
        return self._submissions.submit(text, user=user, key=key, public=public, after=after)

    def check(self, text: str, *, user: str, after: Sequence[str] = ()) -> Job:
        """Return the job as it would be; errors as of `submit`. Nothing is submitted."""
        return self._submissions.check(text, user=user, after=after)

    def warnings(self, job: Job) -> Sequence[Problem]:
        """Return a warning of a number of GPUs that the placer in force rounds up."""
        return size_warnings(self.world.policy, job)

    def may_read(self, owned: Job | Dataset, user: str) -> bool:
        """Return whether a user may read a job's results and logs, or a dataset."""
        return owned.public or user == owned.user or user in self.admins

    def cancel(
        self,
        job: str,
        task: int | None = None,
        *,
        user: str,
        now: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Cancel a job that has not ended, or one task of it; SpecError as of `need_cancellable`.

        With `now` its runs get no notice, also those of a job that is being stopped.
        """
        before = self._published
        admins = self.admins.union(job_admins(before, job))
        need_cancellable(before, self.archive, job, task, user=user, admins=admins, now=now)
        if dry_run:
            return
        at = self.world.now()
        event: Event = JobCancelled(at=at, job=job, by=user, now=now)
        if task is not None:
            event = TaskCancelled(at=at, job=job, ordinal=task, by=user, now=now)
        self._handle([event])
        need_cancelled(before, self._published, job, task, user=user)

    def withdraw_slots(self, job: str, *, user: str) -> None:
        """Finish the slots of a job that have no run; SpecError `not_found`, `forbidden`."""
        view = self._published
        row = job_row(view, job)
        owner = view.job(row).user
        if user not in (owner, *self.admins):
            text = f"permission denied: job {job} belongs to {owner}"
            raise SpecError([Problem(path=job, problem=text)], code="forbidden")
        if has_unneeded(view, row):
            self._handle([SlotsWithdrawn(at=self.world.now(), job=job)])

    def migrate(
        self,
        job: str,
        *,
        user: str,
        leave: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Move runs of a job to other nodes; SpecError `not_found`, `forbidden`, `not_movable`."""
        self.administration.allow(job, user, "move runs")
        move = requested_move(self._published, job, user, leave=leave, to=to)
        if not dry_run:
            self._handle([MoveRequested(at=self.world.now(), move=move)])
            if not was_admitted(self._published, move):
                raise not_admitted(job)
        return move

    def drain(self, node: str, *, user: str, reason: str = "", dry_run: bool = False) -> None:
        """Let no run start on a node; SpecError `not_found`, `forbidden`."""
        self.administration.allow(node, user, "drain nodes")
        at = self.world.now()
        event = drain_request(self._published, node, user=user, reason=reason, at=at)
        if event is not None and not dry_run:
            self._handle([event])

    def resume(self, node: str, *, user: str, dry_run: bool = False) -> None:
        """Let runs start on a draining node again; SpecError also `in_use`."""
        self.administration.allow(node, user, "resume nodes")
        event = resume_request(self._published, node, user=user, at=self.world.now())
        if event is not None and not dry_run:
            self._handle([event])

    def _keep_queues(self, queues: Sequence[Queue]) -> None:
        self._config = replace(self._config, queues=tuple(queues))
        save_config(self._state, self._config)

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        """Return a run's output from a byte offset on; the last attempt by default."""
        return self._outputs.log(job, ordinal, attempt=attempt, offset=offset)

    def log_path(self, run: RunId, node: str) -> str:
        """Return the file with the output of a run on its node."""
        return str(log_path(self._state / "nodes", node, run))

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        """Return the result of a finished task in pieces, the job's last one by default."""
        return self._outputs.result(job, ordinal)

    def kept_files(self, job: str, ordinal: int) -> Mapping[str, Any]:
        """Return the files that the last run of a task which left any has left on its node."""
        return self._outputs.kept_files(job, ordinal)

    def kept_content(self, job: str, ordinal: int, attempt: int) -> Iterator[bytes]:
        """Return the bytes of these files, one after the other, while they are of this attempt."""
        return self._outputs.kept_content(job, ordinal, attempt)

    def set_topology(
        self, topology: ClusterTopology | None, *, user: str, dry_run: bool = False
    ) -> None:
        """Put a topology in force, durably; SpecError `forbidden` for other users than admins."""
        if user not in self.admins:
            text = f"permission denied: {user} may not change the cluster's topology"
            raise SpecError([Problem(path="topology", problem=text)], code="forbidden")
        problems = mismatches(topology, self._live_nodes()) if topology is not None else []
        if problems:
            raise SpecError(Problem(path="topology", problem=p, hint=hint) for p, hint in problems)
        if not dry_run:
            self._handle([TopologyChanged(at=self.world.now(), topology=topology)])

    def _live_nodes(self) -> list[Node]:
        view = self._published
        return [view.node(row) for row in view.live_nodes()]

    # --- data --------------------------------------------------------------------------------

    def put_package(self, digest: str, pieces: Iterator[bytes], *, user: str) -> Mapping[str, Any]:
        """Store the files of a working directory for jobs of this user; return their size."""
        return self._packages.put(digest, pieces, user=user)

    def use_package(self, digest: str, *, user: str) -> Mapping[str, Any]:
        """Return the size of a package that this user has sent; `not_found` without one."""
        return self._packages.use(digest, user=user)

    def shared_directory(
        self, path: str, name: str, content: str, *, user: str
    ) -> Mapping[str, Any]:
        """Return whether all nodes that are up have a directory, as `SharedDirectories.check`."""
        directories = SharedDirectories(
            snapshot=self.snapshot, agents=self.membership.agents, mounts=self.membership.mounts
        )
        return directories.check(Marker(path=path, name=name, content=content), user=user)

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str
    ) -> Mapping[str, Any]:
        """Store one shard of a dataset that is being put on `replicas` nodes."""
        with self._claims.using([dataset]):
            return self._uploads.put_shard(
                dataset, index, pieces, replicas=replicas, user=user, snapshot=self.snapshot
            )

    def commit_dataset(
        self, dataset: str, *, shards: int, user: str, public: bool = False
    ) -> Dataset:
        """Make a dataset visible, atomically and durably; every user may read a public one."""
        at, uploads = self.world.now(), self._uploads
        with self._claims.using([dataset]):
            with uploads.committing(dataset, shards, user=user, public=public, at=at) as events:
                self._handle(events)
            return self._published.datasets[dataset]

    def abandon_dataset(self, dataset: str, *, user: str) -> None:
        """Remove the stored shards of a dataset that will not be committed."""
        self._uploads.abandon(dataset, user=user)

    def remove_dataset(self, dataset: str, *, user: str, dry_run: bool = False) -> None:
        """Remove a dataset that no job in flight reads; `not_found`, `forbidden`, `in_use`."""
        with self._claims.removing(dataset):
            self._remove_dataset(dataset, user, dry_run=dry_run)

    def _remove_dataset(self, dataset: str, user: str, *, dry_run: bool) -> None:
        view = self._published
        found = dataset_of(view, dataset)
        if user not in (found.user, *self.admins):
            text = f"permission denied: dataset {dataset} belongs to {found.user}"
            raise SpecError([Problem(path=dataset, problem=text)], code="forbidden")
        rows = [view.names.shard_rows[shard.id] for shard in found.shards]
        self._reject_in_use(view, found)
        if dry_run:
            return
        at = self.world.now()
        holders = {row: tuple(view.node(n).id for n in view.replicas(row)) for row in rows}
        events: list[Event] = [DatasetRemoved(at=at, name=dataset)]
        for row, nodes in holders.items():
            shard = view.names.shards[row]
            events += [ReplicaLost(at=at, shard=shard, node=node) for node in nodes]
        self._handle(events)
        for row, nodes in holders.items():
            self._uploads.remove(view.names.shards[row], nodes)

    def _reject_in_use(self, view: Snapshot, dataset: Dataset) -> None:
        """Raise SpecError `in_use` if a job in flight reads a dataset; O(shards of those jobs)."""
        shards = {shard.id for shard in dataset.shards}
        for job in (view.job(row) for row in _in_flight(view)):
            if any(shard.id in shards for shard in job.shards):
                text = f"dataset {dataset.name} is read by {job.id}, which has not ended"
                raise SpecError([Problem(path=dataset.name, problem=text)], code="in_use")


def _not_handled(full: WorldError | None) -> WorldError:
    if full is not None:
        return WorldError(full.problems, code=full.code)
    return WorldError("the controller is busy; nothing was changed", code="unreachable")


def _in_flight(view: Snapshot) -> list[int]:
    rows: list[int] = np.flatnonzero(~np.isin(view.jobs.state.array(), ENDED)).tolist()
    return rows


def _finite(seconds: float) -> float | None:
    """Return a duration as a value of JSON: None for one without end."""
    return None if math.isinf(seconds) else seconds


def _own_admins() -> frozenset[str]:
    """Return root and the user of this process."""
    return frozenset({"root", pwd.getpwuid(os.geteuid()).pw_name})
