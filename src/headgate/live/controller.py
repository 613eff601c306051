"""The controller: the engine on its journal, the live world around it, and the calls of the API.

It may be killed at any moment: job masters and executors run on, and the next controller replays
the journal, asks again for what was not answered, and goes on.
"""

from __future__ import annotations

import logging
import math
import os
import pwd
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.engine import drive
from headgate.live.claims import Claims
from headgate.live.config import PROBE_PERIOD_S
from headgate.live.datasets import Puts
from headgate.live.durable import DurableEngine
from headgate.live.expiry import Expiry
from headgate.live.flight import fetch
from headgate.live.membership import Membership
from headgate.live.node_supervisor import NodeSupervisor
from headgate.live.private import secret
from headgate.live.ray_nodes import in_short
from headgate.live.records import program_of
from headgate.live.replication import Replicator
from headgate.live.shared import copy_shared
from headgate.live.store import read_pieces
from headgate.live.submission import Submissions
from headgate.live.supervise import supervise
from headgate.live.world import LiveWorld
from headgate.model import Dataset, Job, LogPiece, Queue, RunId, Shard, result_ids
from headgate.planning.certified import Certified, Certifying
from headgate.ports import Policy
from headgate.protocol import (
    Command,
    DatasetRemoved,
    Event,
    JobCancelled,
    NodeLost,
    QueueChanged,
    ReplicaLost,
)
from headgate.state import JobState, Snapshot
from headgate.state.life import ENDED, HOLDING
from headgate.state.lookup import dataset_of, job_row, task_row

log = logging.getLogger(__name__)

_HANDLED_S = 30.0
_LOOK_S = 0.5
_STOP_S = 10.0
_AGENT_S = 30.0


class Controller:
    """Everything that the API asks for; calls come from any thread."""

    def __init__(
        self,
        *,
        state: Path,
        policies: Callable[[str | None], Policy],
        seed: int,
        queues: Sequence[Queue],
        facts: dict[str, Any],
        separate_users: bool = False,
        check_users: bool = False,
        probe_period_s: float = PROBE_PERIOD_S,
        keep_results_s: float = math.inf,
    ) -> None:
        """Open the journal in `state`, rebuild the engine, and take up what was under way.

        `policies(None)` makes the policy in force, `policies(text)` any other. `separate_users` is
        as of `Membership`, `check_users` as of `Submissions`. `keep_results_s` holds for jobs that
        do not say how long after their end they are kept.
        """
        self._state, self._facts, self._policies = state, facts, policies
        self._durable = DurableEngine(state / "journal.db")
        self._engine = self._durable.engine
        self.world = LiveWorld(
            policy=policies(None), seed=seed, root=state / "nodes", program_of=self._program_of
        )
        self._token = token = secret(state / "shard-token")
        self._changed = threading.Condition()
        self._published = self._engine.snapshot()
        view: dict[str, Any] = {"now": self.world.now, "snapshot": self.snapshot}
        engine = {**view, "post": self.world.inbox.post}
        self.membership = Membership(
            root=state / "nodes",
            places=self.world.places,
            **engine,
            token=token,
            separate_users=separate_users,
            probe_period_s=probe_period_s,
        )
        self._replicator = Replicator(
            agents=self.membership.agents,
            reports=self.membership.reports,
            places=self.world.places,
            **engine,
        )
        self._keep_results_s = keep_results_s
        self._expiry = Expiry(default_s=keep_results_s, **engine)
        self._puts = Puts(self.membership, token=token)
        self._claims = Claims()
        self.admins = frozenset({"root", pwd.getpwuid(os.geteuid()).pw_name})
        self._submissions = Submissions(
            claims=self._claims,
            policy=self.world.policy,
            handle=self._handle,
            may_read=self.may_read,
            check_users=check_users,
            **view,
        )
        self._queues = queues
        self._thread = threading.Thread(target=self._drive, name="engine", daemon=True)

    # --- its life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Go on where the journal ends: ask again for what is unanswered, watch the nodes."""
        view = self._published
        self.world.end_others(lambda job: not self._over(view, job))
        self.world.submit(self._engine.outstanding(), self._engine.asked)
        self._thread.start()
        self._set_queues(view)
        self.world.start(self.membership.run())
        for what, work in (
            ("restarting nodes", NodeSupervisor(self._state).run),
            ("copying results", self._replicator.run),
            ("expiring results", self._expiry.run),
        ):
            self.world.start(supervise(what, work))

    def stop(self) -> None:
        """Stop scheduling and close the journal; what runs goes on running."""
        self._submissions.close()
        self.world.inbox.close()
        self._thread.join(timeout=_STOP_S)
        self.world.close()
        if not self._thread.is_alive():  # it may be waiting for room on the journal's disk
            self._durable.close()

    def _set_queues(self, view: Snapshot) -> None:
        wanted = {queue.name: queue for queue in self._queues}
        wanted.setdefault("default", Queue(name="default"))
        known = {view.queue(row).name: view.queue(row) for row in range(len(view.queues.spec))}
        at = self.world.now()
        changed = [q for name, q in wanted.items() if known.get(name) != q]
        if changed:
            self._handle([QueueChanged(at=at, queue=queue) for queue in changed])

    def _drive(self) -> None:
        try:
            drive(
                self._engine,
                self.world,
                record=lambda batch: self._durable.record(self.world.inbox, batch),
                observe=(self._observe,),
            )
        except BaseException:  # the process ends, whatever it was
            # An engine that broke a law must not go on: the next controller starts from the
            # journal, and the log has the story.
            log.exception("the engine stopped")
            os._exit(70)

    def _observe(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Let everyone know what was handled."""
        del commands
        before = self._published
        self._published = self._engine.snapshot()
        for event in batch:
            if isinstance(event, NodeLost):
                self.world.node_lost(event.node)
        for letter in self.world.inbox.batch:
            letter.answer()
        for row in _in_flight(before):
            if self._published.jobs.state[row] in ENDED:
                self.world.job_over(self._published.job(row).id)
        with self._changed:
            self._changed.notify_all()
        self._durable.keep()

    def _over(self, view: Snapshot, job: str) -> bool:
        row = view.names.job_rows.get(job)
        return row is None or view.jobs.state[row] in ENDED

    def _program_of(self, job: str) -> str:
        names = self._engine.state.names
        return program_of(names.jobs[names.job_rows[job]])

    def _handle(self, events: Sequence[Event]) -> None:
        """Post facts of a user and wait until they are durable and handled.

        They are taken back when nobody takes them up: the journal's disk is full, or much is to do.
        """
        handled = self.world.inbox.post(events, from_user=True)
        until = time.monotonic() + _HANDLED_S
        while True:
            try:
                handled.result(timeout=_LOOK_S)
            except FutureTimeout:
                full = self._durable.full
                if (full or time.monotonic() > until) and handled.cancel():
                    raise _not_taken_up(full) from None
            else:
                return

    # --- views -------------------------------------------------------------------------------

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.world.now()

    def info(self) -> Mapping[str, Any]:
        """Return facts about this controller."""
        return {
            **self._facts,
            "pid": os.getpid(),
            "policy": self.world.policy.name,
            "replayed_events": self._durable.replayed_events,
            "journal_full": self._durable.full is not None,
            "journal_missing_events": self._durable.journal.missing_events,
            "stale_answers": self._engine.stale,
            "bandwidth": asdict(self._published.bandwidth),
            "keep_results_s": None if math.isinf(self._keep_results_s) else self._keep_results_s,
        }

    def snapshot(self) -> Snapshot:
        """Return the state after the last handled batch."""
        return self._published

    def policy(self, text: str | None) -> Policy:
        """Return a policy for one answer, never the one at work, which another thread uses."""
        return self._policies(text)

    def certified(self) -> Certified | None:
        """Return what was proven of the plans made; None where the policy has nothing proven."""
        policy = self.world.policy
        return policy.certified if isinstance(policy, Certifying) else None

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Return the version as soon as it is above `version`, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._published.version > version, timeout_s)
        return self._published.version

    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the last report of every node that is up."""
        return dict(self.membership.reports)

    # --- jobs --------------------------------------------------------------------------------

    def submit(self, text: str, *, user: str, key: str | None, public: bool = False) -> str:
        """Submit a job file and return the job's id, once it is durable and handled."""
        return self._submissions.submit(text, user=user, key=key, public=public)

    def check(self, text: str, *, user: str) -> str:
        """Do all that `submit` does short of submitting."""
        return self._submissions.check(text, user=user)

    def may_read(self, owned: Job | Dataset, user: str) -> bool:
        """Say whether a user may read what a job wrote, or a dataset."""
        return owned.public or user == owned.user or user in self.admins

    def cancel(self, job: str, *, user: str, dry_run: bool = False) -> None:
        """Cancel a job that has not ended; SpecError `not_found`, `forbidden`, `already_ended`."""
        view = self._published
        row = job_row(view, job)
        if user not in (view.job(row).user, *self.admins):
            text = f"job {job} belongs to {view.job(row).user}"
            raise SpecError([Problem(path=job, problem=text)], code="forbidden")
        state = JobState(view.jobs.state[row])
        if state in (*ENDED, JobState.STOPPING):
            raise _ended_already(job, state)
        if dry_run:
            return
        self._handle([JobCancelled(at=self.world.now(), job=job, by=user)])
        after = self._published.jobs
        if JobState(after.state[row]) in ENDED and after.message[row] != f"cancelled by {user}":
            raise _ended_already(job, JobState(after.state[row]))  # before it was handled

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        """Return what a run has written from a byte offset on; the last attempt by default."""
        import ray
        from ray.exceptions import RayError

        view = self._published
        row = task_row(view, job_row(view, job), ordinal)
        attempts = view.tasks.attempts[row]
        ended = attempt not in (None, attempts) or view.tasks.state[row] not in HOLDING
        if not attempts:
            over = view.jobs.state[view.tasks.job[row]] in ENDED
            return LogPiece(text="", next_offset=0, ended=over)
        agents = list(self.membership.agents.items())
        if attempt in (None, attempts):
            node = view.node(view.tasks.node[row]).id
            agents = [(name, agent) for name, agent in agents if name == node]
            if not agents:
                raise WorldError(f"the log lies on {node}, which is not up", code="unreachable")
        run = RunId(job, ordinal, attempts if attempt is None else attempt)
        calls = [a.read_log.remote(run, offset=offset) for _, a in agents]
        try:
            data = max(ray.get(calls, timeout=_AGENT_S), key=len)
        except RayError as error:
            log.warning("the log of %s/%d cannot be read: %s", job, ordinal, error)
            text = f"the log cannot be read: {in_short(error)}"
            raise WorldError(text, code="unreachable") from error
        return LogPiece(
            text=data.decode(errors="replace"),
            next_offset=offset + len(data),
            ended=ended and not data,
        )

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        """Return the result of a finished task in pieces, the job's last one by default.

        One in several parts comes whole, part after part. Every node that holds it is tried, then
        the job's shared path.
        """
        view = self._published
        row = job_row(view, job)
        chosen = view.jobs.task_count[row] - 1 if ordinal is None else ordinal
        parts = view.task(task_row(view, row, chosen)).parts
        places = {}
        for shard in result_ids(job, chosen, parts):
            shard_row = view.names.shard_rows.get(shard)
            if shard_row is None or shard_row >= len(view.shards.replicas):
                continue  # it is empty: nobody was told of it
            holders, shared = view.replicas(shard_row), view.shards.shared[shard_row]
            if not holders and not shared:
                text = f"there is no result {shard}"
                raise SpecError([Problem(path=job, problem=text)], code="not_found")
            value = Shard(id=shard, size_bytes=view.shards.size_bytes[shard_row])
            places[value] = [view.node(n).id for n in holders]
        return self._stream(places, view.job(row))

    def _stream(self, places: Mapping[Shard, Sequence[str]], owner: Job) -> Iterator[bytes]:
        """Fetch shards from one of their nodes each, all before the first piece is returned.

        What no node gives is read on the job's shared path, if it has one.
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
        """Fetch a shard from the first of some nodes that gives it; WorldError of the last."""
        known = self.world.places.addresses
        text = f"{shard} lies on {', '.join(nodes)}: not up" if nodes else f"no node has {shard}"
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

    # --- data --------------------------------------------------------------------------------

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str
    ) -> Mapping[str, Any]:
        """Place one shard of a dataset that is being put."""
        with self._claims.using([dataset]):
            return self._puts.put_shard(
                dataset, index, pieces, replicas=replicas, user=user, snapshot=self.snapshot
            )

    def commit_dataset(
        self, dataset: str, *, shards: int, user: str, public: bool = False
    ) -> Dataset:
        """Make a dataset visible, at once and durably; everybody may read a public one."""
        at, puts = self.world.now(), self._puts
        with self._claims.using([dataset]):
            with puts.committing(dataset, shards, user=user, public=public, at=at) as events:
                self._handle(events)
            return self._published.datasets[dataset]

    def abandon_dataset(self, dataset: str, *, user: str) -> None:
        """Remove what was placed of a dataset that will not be committed."""
        self._puts.abandon(dataset, user=user)

    def remove_dataset(self, dataset: str, *, user: str, dry_run: bool = False) -> None:
        """Remove a dataset that no job in flight reads; `not_found`, `forbidden`, `in_use`."""
        with self._claims.removing(dataset):
            self._remove_dataset(dataset, user, dry_run=dry_run)

    def _remove_dataset(self, dataset: str, user: str, *, dry_run: bool) -> None:
        view = self._published
        found = dataset_of(view, dataset)
        if user not in (found.user, *self.admins):
            text = f"dataset {dataset} belongs to {found.user}"
            raise SpecError([Problem(path=dataset, problem=text)], code="forbidden")
        rows = [view.names.shard_rows[shard.id] for shard in found.shards]
        self._refuse_in_use(view, found)
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
            self._puts.remove(view.names.shards[row], nodes)

    def _refuse_in_use(self, view: Snapshot, dataset: Dataset) -> None:
        """Raise SpecError `in_use` for a dataset that a job reads; O(shards of jobs in flight)."""
        shards = {shard.id for shard in dataset.shards}
        for job in (view.job(row) for row in _in_flight(view)):
            if any(shard.id in shards for shard in job.shards):
                text = f"dataset {dataset.name} is read by {job.id}, which has not ended"
                raise SpecError([Problem(path=dataset.name, problem=text)], code="in_use")


def _not_taken_up(full: WorldError | None) -> WorldError:
    if full is not None:
        return WorldError(full.problems, code=full.code)
    return WorldError("the controller is busy; nothing was changed", code="unreachable")


def _in_flight(view: Snapshot) -> list[int]:
    rows: list[int] = np.flatnonzero(~np.isin(view.jobs.state.array(), ENDED)).tolist()
    return rows


def _ended_already(job: str, state: JobState) -> SpecError:
    text = f"job {job} is {state.name.lower()} already"
    return SpecError([Problem(path=job, problem=text)], code="already_ended")
