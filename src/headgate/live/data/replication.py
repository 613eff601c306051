"""Replication of results, in the background, to the number of copies that each job requires.

Results that lack copies are found by the changes of the state since the last look, so a new result
and one that has lost a node are the same case. A copy counts once it is in the state; a node that
already stores the shard is not sent it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from headgate.live.actors.master_client import ReachableNodes
from headgate.live.base.supervise import supervise
from headgate.live.base.user_slots import UserSlots
from headgate.live.node.shared import find_shared
from headgate.live.node.split import NodeSpace, choose_further
from headgate.model import SHARED, Job, RunId, Shard, result_ids, task_of_result
from headgate.protocol import Event, ReplicaAdded, ReplicaLost
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.lookup import known_row, known_shard

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_RETRY_S = 60.0
_PER_LOOK = 1000  # results
_COPY_S = 3600.0  # a stalled transfer ends much earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The copies of a result of a job; `run` is the run that wrote it."""

    job: Job
    shard: Shard
    run: RunId
    holders: tuple[str, ...]
    shared: bool

    @property
    def missing(self) -> int:
        """The number of further nodes that should have a copy."""
        return max(0, self.job.result_replicas - len(self.holders))

    @property
    def misses_shared(self) -> bool:
        """Whether the copy on the job's shared path is missing."""
        return bool(self.job.results_path) and not self.shared


def copies_of(view: Snapshot, row: int) -> Copies | None:
    """Return the copies of a shard that is a result; None for other shards and expired results.

    Also None for a result that no node has, and for one whose job requires no further copies.
    """
    holders = view.replicas(row)
    found = task_of_result(view.names.shards[row]) if holders else None
    job_row = None if found is None else known_row(view, found[0])
    if found is None or job_row is None:
        return None
    job, task = view.job(job_row), view.tasks_of(job_row)[found[1]]
    wanted = job.result_replicas > 1 or job.results_path
    kept = math.isnan(view.jobs.expired_at[job_row])
    if not (wanted and kept and view.tasks.state[task] == TaskState.FINISHED):
        return None
    return Copies(
        job=job,
        shard=Shard(id=view.names.shards[row], size_bytes=view.shards.size_bytes[row]),
        run=view.run_id(task),
        holders=tuple(view.node(node).id for node in holders),
        shared=bool(view.shards.shared[row]),
    )


def lacks_shared_copies(view: Snapshot, job: int) -> bool:
    """Return whether results of a job are still to be copied to its shared path; O(its tasks)."""
    for task in view.tasks_of(job):
        for shard in result_ids(view.job(job).id, view.ordinal(task), view.task(task).parts):
            copies = _copies_of(view, shard)
            if copies is not None and copies.misses_shared:
                return True
    return False


def _copies_of(view: Snapshot, shard: str) -> Copies | None:
    """Return `copies_of` for a shard's name, None if the state has no such shard."""
    row = known_shard(view, shard)
    return None if row is None else copies_of(view, row)


def _owner(view: Snapshot, row: int) -> str:
    """Return the user of the job whose result a shard is, '' if it is none of a known job."""
    found = task_of_result(view.names.shards[row])
    job_row = None if found is None else known_row(view, found[0])
    return "" if job_row is None else view.job(job_row).user


def _lost_shared(view: Snapshot, shard: str) -> bool:
    """Return whether an active job's result should be below its shared path, and is not."""
    found, row = task_of_result(shard), known_shard(view, shard)
    job_row = None if found is None else known_row(view, found[0])
    if row is None or job_row is None:
        return False
    if view.jobs.state[job_row] != JobState.ACTIVE:
        return False
    job, value = view.job(job_row), Shard(id=shard, size_bytes=view.shards.size_bytes[row])
    shared = bool(view.shards.shared[row])
    return shared and find_shared(job.results_path, value, user=job.user) is None


class Replicator:
    """Makes nodes copy results, about one at a time per node; runs on the event loop of Ray.

    A look is O(shards changed since the last one). Results that cannot be copied now are retried
    when nodes join or are lost, and once a minute.
    """

    def __init__(
        self,
        *,
        agents: dict[str, Any],
        reports: dict[str, dict[str, Any]],
        reachable: ReachableNodes,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """`agents`, `reports` and `reachable` are of nodes that are up, kept by `Membership`."""
        self._agents, self._reports, self._reachable = agents, reports, reachable
        self._post, self._now, self._snapshot = post, now, snapshot
        self._seen: Snapshot | None = None
        # by shard: rows move when archived jobs leave the tables
        self._ready: dict[str, None] = {}  # to be checked, in order
        self._waiting: dict[str, None] = {}  # to be checked after nodes have changed
        self._copying: dict[str, asyncio.Task[None]] = {}
        self._busy: Counter[str] = Counter()  # of those, by user
        # nodes where a copy failed, until the shard is in `_waiting`
        self._failed: dict[str, set[str]] = {}
        self._retry_at = 0.0
        self._up: frozenset[str] = frozenset()
        self._checks: set[asyncio.Task[None]] = set()
        self._checking = UserSlots("checks", 2, each=1)  # a path that hangs takes a minute
        self._reported_short: set[str] = set()  # jobs whose missing copies were logged

    async def run(self) -> None:
        """Look periodically until cancelled; may be run again after a look that failed."""
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        self._collect(self._snapshot())
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start copies of ready results, at most as many of a user as nodes, and one more.

        That is for others: copies of a user to a shared path take as long as that lets them.
        """
        view, most = self._snapshot(), max(2, len(self._up))
        for shard in [shard for shard, _ in zip(self._ready, range(_PER_LOOK), strict=False)]:
            if len(self._copying) > most:
                break
            del self._ready[shard]
            if shard in self._copying:  # it is checked again after that copy
                continue
            now = _copies_of(view, shard)
            if now is not None and self._busy[now.job.user] >= most:
                self._ready[shard] = None  # behind those of other users, whose paths respond
            else:
                self._start_copies(shard, now)

    def _collect(self, view: Snapshot) -> None:
        """Add the shards that may lack copies to `_ready`."""
        changes = None if self._seen is None else view.changes(self._seen)
        rows = range(len(view.shards.size_bytes)) if changes is None else changes.shards.tolist()
        names = view.names.shards
        self._ready.update((names[row], None) for row in rows if copies_of(view, row) is not None)
        self._seen = view
        alone: dict[str, list[str]] = {}  # by user
        for row in rows:
            if view.shards.shared[row] and not view.replicas(row) and (user := _owner(view, row)):
                alone.setdefault(user, []).append(names[row])
        for user, shards in alone.items():
            work = partial(self._check_shared, user, shards)
            check = asyncio.create_task(supervise("checking results on shared paths", work))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)
        up = frozenset(self._agents)
        if up != self._up or self._now() >= self._retry_at:
            self._up, self._retry_at = up, self._now() + _RETRY_S
            self._ready.update(self._waiting)
            self._waiting.clear()

    def _start_copies(self, shard: str, now: Copies | None) -> None:
        """Start the copies that a result lacks, or put it in `_waiting` if none is possible."""
        if now is None or not (now.missing or now.misses_shared):
            self._failed.pop(shard, None)
            self._reported_short.discard(shard.rpartition("/")[0])
            return
        source = next((n for n in now.holders if n in self._agents), None)
        targets = self._targets(now, self._failed.get(shard, set()))
        if source is None or not targets:
            if source is not None:  # else its node is just being lost
                self._log_shortage(now, "no other node with room for it is up")
            self._waiting[shard] = None
            self._failed.pop(shard, None)
            return
        self._busy[now.job.user] += 1
        self._copying[shard] = asyncio.create_task(self._make_copies(now, source, targets))

    def _targets(self, now: Copies, failed: Collection[str]) -> tuple[str, ...]:
        places = [
            NodeSpace(
                name, self._reachable.members[name].rack, self._reports[name]["disk_free_bytes"]
            )
            for name in self._agents
            if name not in failed and name in self._reachable.members and name in self._reports
        ]
        turn = zlib.crc32(now.shard.id.encode())  # equal for a repeated copy
        size_bytes = now.shard.size_bytes
        nodes = choose_further(turn, places, now.holders, now.missing, size_bytes=size_bytes)
        return (*nodes, SHARED) if now.misses_shared and SHARED not in failed else nodes

    async def _make_copies(self, before: Copies, source: str, targets: tuple[str, ...]) -> None:
        """Make copies and post each; one that fails is retried on another node."""
        shard = before.shard.id
        try:
            for target in targets:
                problem = await self._make_copy(before, source, target)
                if problem:
                    self._failed.setdefault(shard, set()).add(target)
                    self._log_shortage(before, problem)
        finally:
            del self._copying[shard]
            self._busy -= Counter([before.job.user])  # drops those without any
            self._ready[shard] = None  # checked again for missing copies
        self._start_waiting()  # unless cancelled

    async def _make_copy(self, before: Copies, source: str, target: str) -> str:
        """Make one copy and post it unless the result was replaced meanwhile; return a problem."""
        from ray.exceptions import RayError

        try:
            await asyncio.wait_for(self._copy(before, source, target), _COPY_S)
        except (RayError, TimeoutError, KeyError) as error:  # KeyError: a node was just lost
            where = f"on {target}" if target else f"below {before.job.results_path}"
            cause = getattr(error, "cause", None) or error
            text = str(cause).partition("\n")[0] or type(cause).__name__
            return f"{where}: {text}"
        now = _copies_of(self._snapshot(), before.shard.id)
        if now is not None and (now.run, now.shard) == (before.run, before.shard):
            event = ReplicaAdded(at=self._now(), shard=now.shard, node=target, run=now.run)
            await asyncio.wrap_future(self._post([event]))
        return ""

    def _copy(self, what: Copies, source: str, target: str) -> Awaitable[Any]:
        copied: Awaitable[Any]
        if target == SHARED:
            share = self._agents[source].share_result
            copied = share.remote(what.shard.id, what.job.results_path, what.job.user)
        else:
            copy_from = self._agents[target].copy_from
            copied = copy_from.remote(what.shard.id, *self._reachable.addresses[source])
        return copied

    async def _check_shared(self, user: str, shards: Sequence[str]) -> None:
        """Check that a user's results stored only on a shared path exist while a job needs them.

        If the user has removed them, or the path does not exist, their loss is posted, and their
        tasks run again.
        """
        async with self._checking.slot(user):
            view = self._snapshot()
            lost = await asyncio.to_thread(lambda: [s for s in shards if _lost_shared(view, s)])
        if lost:
            at = self._now()
            events = [ReplicaLost(at=at, shard=shard, node=SHARED) for shard in lost]
            await asyncio.wrap_future(self._post(events))

    def _log_shortage(self, now: Copies, problem: str) -> None:
        """Log missing copies, once per job until one of its results has all copies."""
        if now.job.id in self._reported_short:
            return
        self._reported_short.add(now.job.id)
        log.warning(
            "results of %s: %s has %d of %d copies%s: %s",
            now.job.id, now.shard.id, len(now.holders), now.job.result_replicas,
            ", none on its shared path" if now.misses_shared else "", problem,
        )  # fmt: skip
