"""Node agents: one Ray actor per node, which stores and serves shards and reports the node."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from headgate.base.errors import WorldError
from headgate.live.actors.executor import (
    scratch_directory,
    shards_directory,
    token_path,
)
from headgate.live.base.log_limit import LogBytes, read_from
from headgate.live.base.permissions import (
    PRIVATE_UMASK,
    make_traversable,
    remove_tree,
    write_private,
)
from headgate.live.cluster.names import end_actors, names_with
from headgate.live.cluster.ray_nodes import NAMESPACE, NODE_MARK, RayMember
from headgate.live.node.env_cache import sweep
from headgate.live.node.flight import ShardServer, fetch, stat, time_transfer
from headgate.live.node.marker import Marker, Seen, look, mounts_here
from headgate.live.node.node_status import NodeReport, gpu_closeness, probe_node
from headgate.live.node.run_files import (
    Manifest,
    content_of,
    manifest_of,
    written_by,
    written_directory,
)
from headgate.live.node.run_logs import log_path, logs_directory
from headgate.live.node.shared import keep_shared
from headgate.live.node.store import ShardStore, StoredShard, time_disk
from headgate.live.run.outside import OutsideMeter
from headgate.live.run.over_notes import noted, notes_directory
from headgate.live.run.run_env import env_directory
from headgate.live.run.run_limits import remove_groups
from headgate.model import RunId, task_of_result

_AGENT = "headgate-agent:"
_PROBE_SHARD = ".probe"  # on every node, so that bandwidth can be measured between any two
_PROBE_BYTES = 4 << 20
_PROBE_S = 5.0
_SWEEP_S = 600.0
_FRESH_NS = 2_000_000_000  # a shard younger than this may have been stored after a report


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """A node at one moment: its machine, the address of its shard service, what it stores.

    `corrupt` are the ids of shards found corrupt and dropped since the last report: each is
    reported once. `jobs` have results, logs, files of runs or scratch directories on the node, and
    `scratch` are those of them with scratch directories. `at_ns` is the time of the report on the
    node's clock, in nanoseconds since the epoch. `uid` is the user that Headgate runs as there.
    `closeness` is that of its GPUs, and `nvlinks` join two of them, as of `gpu_closeness`. Nodes
    with the same `mounts`, unless that is '', see the same files.
    """

    node: str
    uid: int
    machine: NodeReport
    host: str
    port: int
    shards: tuple[StoredShard, ...]
    corrupt: tuple[str, ...]
    served_bytes: dict[str, int]
    jobs: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    at_ns: int = 0
    closeness: tuple[tuple[int, ...], ...] = ()
    nvlinks: int = 0
    mounts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What to remove from a node.

    Results, logs, files of runs and scratch of `jobs`, the scratch directories of the jobs in
    `scratch`, and `shards` of datasets.
    """

    jobs: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self.jobs or self.scratch or self.shards)


class NodeAgent:
    """Stores one node's shards; `start_agent` makes it a Ray actor.

    Its calls run in threads, so that a long copy does not delay a report.
    """

    def __init__(self, *, node: str, host: str, root: str, token: str) -> None:
        """Open the node's store below `root` and serve it on a free port of `host`.

        The token of the shard services is left on the node for its executors.
        """
        os.umask(PRIVATE_UMASK)  # no other user may read what Headgate writes on a node
        self._node, self._host, self._root, self._token = node, host, Path(root), token
        make_traversable(self._root, node)
        write_private(token_path(self._root, node), token)
        self._store = ShardStore(shards_directory(self._root, node))
        if not self._store.verify(_PROBE_SHARD):
            self._store.put(_PROBE_SHARD, [bytes(_PROBE_BYTES)])
        self._closeness, self._nvlinks = gpu_closeness()
        self._mounts = mounts_here()
        self._outside = None if NODE_MARK in os.environ else OutsideMeter()
        self._logs = logs_directory(self._root, node)
        self._scratch = scratch_directory(self._root, node)
        self._drafts = self._root / node / "copies"
        remove_tree(self._drafts)  # of an agent that died
        self._drafts.mkdir()
        self._written = written_directory(self._root, node)
        self._server = ShardServer(
            self._store,
            host,
            token=token,
            files=lambda run: content_of(written_by(self._root, node, run)),
        )
        threading.Thread(target=self._sweep, daemon=True, name="sweep").start()

    def _sweep(self) -> None:
        """Remove periodically what was prepared for runs and has not been used for long.

        Also control groups that a process left behind which died together with its guards.
        """
        while True:
            remove_groups(self._root)
            sweep(env_directory(self._root, self._node))
            time.sleep(_SWEEP_S)

    def report(self) -> AgentReport:
        """Return the state of the machine and what the node stores."""
        at_ns = time.time_ns()
        shards = tuple(s for s in self._store.list() if s.id != _PROBE_SHARD)
        results = {of[0] for shard in shards if (of := task_of_result(shard.id)) is not None}
        scratch, machine = _jobs_in(self._scratch), probe_node(self._root)
        if self._outside is not None:
            used_bytes = machine.memory_bytes - machine.memory_free_bytes
            machine = replace(machine, outside=self._outside.measure(used_bytes))
        machine = replace(machine, over=noted(notes_directory(self._root, self._node)))
        return AgentReport(
            node=self._node,
            uid=os.geteuid(),
            machine=machine,
            host=self._host,
            port=self._server.port,
            shards=shards,
            corrupt=self._store.take_corrupt(),
            served_bytes=self._server.served_bytes(),
            jobs=tuple(sorted(results | scratch | _jobs_in(self._logs) | _jobs_in(self._written))),
            scratch=tuple(sorted(scratch)),
            at_ns=at_ns,
            closeness=self._closeness,
            nvlinks=self._nvlinks,
            mounts=self._mounts,
        )

    def copy_from(self, shard: str, host: str, port: int) -> StoredShard:
        """Fetch a shard from another node and store it; WorldError as of `fetch`.

        A shard that is stored here with the same content already is not moved again.
        """
        here = self._store.find(shard)
        if (
            here is not None
            and here == stat(host, port, shard, token=self._token)
            and self._store.verify(shard)
        ):
            return here
        draft = self._drafts / f"{time.monotonic_ns()}"
        try:
            fetch(host, port, shard, draft, token=self._token)
            return self._store.adopt(shard, draft)
        finally:
            draft.unlink(missing_ok=True)

    def share_result(self, shard: str, path: str, user: str) -> None:
        """Write a user's result below a path that all nodes see; WorldError of `keep_shared`."""
        if not self._store.verify(shard):
            raise WorldError(f"shard '{shard}' is not on this node", code="shard_absent")
        keep_shared(path, shard, self._store.path(shard), user=user)

    def remove(self, what: Leftovers, reported_ns: int) -> None:
        """Delete leftovers, except shards stored after the report (ns since the epoch)."""
        jobs = set(what.jobs)
        for stored in self._store.list():
            of = task_of_result(stored.id)
            if of is not None and of[0] in jobs:
                self._store.remove(stored.id)
        for shard in what.shards:
            self._store.remove(shard, before_ns=reported_ns - _FRESH_NS)
        for job in what.jobs:
            remove_tree(self._logs / quote(job, safe=""))
            remove_tree(self._written / quote(job, safe=""))
        for job in (*what.jobs, *what.scratch):
            remove_tree(self._scratch / quote(job, safe=""))

    def remove_shard(self, shard: str) -> bool:
        """Delete a shard; return whether it was stored."""
        return self._store.remove(shard)

    def read_log(self, run: RunId, *, offset: int = 0, limit: int = 1 << 20) -> LogBytes:
        """Return up to `limit` bytes of a run's log on this node, empty where there is none."""
        path = log_path(self._root, self._node, run)
        try:
            with path.open("rb") as file:
                return read_from(file, offset, limit)
        except FileNotFoundError:
            return LogBytes(b"", offset)

    def kept_files(self, run: RunId) -> Manifest | None:
        """Return what is kept of the files that a run has written here, None without any."""
        return manifest_of(written_by(self._root, self._node, run))

    def look_at(self, marker: Marker, user: str) -> Seen:
        """Return how a user sees a directory with a marker on this node."""
        return look(marker, user)

    def time_transfer(self, host: str, port: int) -> float:
        """Read from another node's shard service for some seconds at most; return bytes per second.

        The time covers what a task's read does: sending, checking and writing to disk.
        """
        where = self._root / self._node
        return time_transfer(host, port, _PROBE_SHARD, where, token=self._token, limit_s=_PROBE_S)

    def time_disk(self) -> float | None:
        """Read from this node's disk; return bytes per second, None where it cannot be measured."""
        return time_disk(self._store.path(_PROBE_SHARD))


def _jobs_in(directory: Path) -> set[str]:
    """Return the jobs that have a directory of their own in this one."""
    with suppress(FileNotFoundError):
        return {unquote(entry.name) for entry in directory.iterdir()}
    return set()


def agent_name(ray_id: str) -> str:
    """Return the name of a node's agent; a node that returns has another one."""
    return f"{_AGENT}{ray_id}"


def start_agent(member: RayMember, root: Path, *, token: str) -> Any:
    """Return the handle of a node's agent, started if it does not run; it outlives this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return (
        ray.remote(NodeAgent)
        .options(
            name=agent_name(member.ray_id),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=16,
            scheduling_strategy=NodeAffinitySchedulingStrategy(member.ray_id, soft=False),
        )
        .remote(node=member.name, host=member.address, root=str(root), token=token)
    )


def end_agents() -> None:
    """End all node agents of the cluster; their shards stay on disk."""
    end_actors(names_with(_AGENT))
