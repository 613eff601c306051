"""Membership: which nodes are up and which shards they store.

Ray lists the nodes; an agent is started on each, whose report completes the node. Differences from
the state become events: nodes joined and lost, replicas added and lost. A `BandwidthProbe` measures
the bandwidth between nodes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headgate.base.errors import WorldError
from headgate.base.lists import FrozenLists
from headgate.base.text import used_elsewhere
from headgate.journal import Archive
from headgate.live.actors.agent import AgentReport, start_agent
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.base.config import PROBE_PERIOD_S
from headgate.live.base.supervise import supervise
from headgate.live.cluster.holders import Holders
from headgate.live.cluster.ray_nodes import RayMember, members
from headgate.live.membership.bandwidth_probe import BandwidthProbe
from headgate.live.membership.sweep import leftovers, unknown_jobs
from headgate.live.membership.usage import node_reported, report_fault
from headgate.model import Gpu, Node, RayMode, RunId, Shard, task_of_result
from headgate.model.topology.closeness import node_shape
from headgate.protocol import (
    Event,
    GpusWithheld,
    LaunchTask,
    NodeJoined,
    NodeLost,
    ReplicaAdded,
    ReplicaLost,
)
from headgate.state import Snapshot, TaskState
from headgate.state.lookup import known_row, known_shard
from headgate.state.tables import OTHERS

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_REPORT_S = 3.0
_RESPONSE_S = 20.0
_SHARED = (
    "node %s is left out: Headgate runs there as uid %s, not as root, so the jobs of all users "
    "would have the same rights (run Ray there as root, or headgate up --shared-account)"
)


class Membership:
    """Watches the nodes; runs on the event loop that talks with Ray."""

    def __init__(
        self,
        *,
        root: Path,
        reachable: ReachableNodes,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
        token: str,
        archive: Archive,
        separate_users: bool = False,
        holders: Holders | None = None,
        probe_period_s: float = PROBE_PERIOD_S,
    ) -> None:
        """Agents serve shards to processes with the token.

        With `separate_users` only nodes join where Headgate runs as root and can run as each user.
        With `holders`, other programs may be given GPUs by Ray: those that are not held are
        withheld from the jobs.
        """
        self.reports: dict[str, dict[str, Any]] = {}
        self.agents: dict[str, Any] = {}
        self.looked = asyncio.Event()
        """Set when the nodes that were there at the beginning have joined, as far as they do."""
        self.mounts: dict[str, str] = {}  # as of `AgentReport`
        # returns the datasets being put, whose shards no sweep may remove
        self.uploading: Callable[[], Collection[str]] = tuple
        self._root = root
        self._token = token
        self._separate_users = separate_users
        self._left_out: set[str] = set()
        self._holders = holders
        self._reachable = reachable
        reachable.refresh_nodes = self.refresh_nodes
        self._post = post
        self._now = now
        self._snapshot = snapshot
        self._archive = archive
        # by node: the last request to the archive for its sweep, and the result
        self._archived: dict[str, tuple[tuple[tuple[str, ...], int], Mapping[str, bool]]] = {}
        self._sweeps: dict[str, asyncio.Task[None]] = {}
        self._joins: dict[str, asyncio.Task[bool]] = {}  # by Ray's id: nodes that are joining
        self._first: set[str] | None = None  # of the nodes of the first look, those still joining
        self._used: dict[str, Future[None]] = {}  # by node: the last report of its use
        self._faults: dict[str, str] = {}  # by node: what is wrong with its last report
        self._bandwidth_probe = BandwidthProbe(
            agents=self.agents,
            reachable=reachable,
            post=post,
            now=now,
            snapshot=snapshot,
            period_s=probe_period_s,
        )

    async def run(self) -> None:
        """Watch the nodes and probe the bandwidth between them until cancelled."""
        await asyncio.gather(
            supervise("watching the nodes", self._watch),
            supervise("reading the reports of the nodes", self._read_reports),
            supervise("probing bandwidth", self._bandwidth_probe.run),
        )

    async def _watch(self) -> None:
        """Look periodically; a failed look is logged and repeated."""
        while True:
            try:
                if await self._look():
                    self._bandwidth_probe.request_round()
            except Exception:  # no failure of Ray or a node may end the watch
                log.exception("looking at the nodes failed")
            await asyncio.sleep(_LOOK_S)

    async def _read_reports(self) -> None:
        """Process a new report of each node periodically.

        An agent that does not respond is asked again when it has; it delays those of no other node.
        """
        asked: set[str] = set()

        async def refresh(name: str, agent: Any, kept: dict[str, list[str]]) -> None:
            asked.add(name)
            try:
                await self._refresh(name, agent, kept)
            finally:
                asked.discard(name)

        async with asyncio.TaskGroup() as requests:
            while True:
                await asyncio.sleep(_REPORT_S)
                kept = _replicas_by_node(self._snapshot())
                for name in [name for name in self.agents if name not in asked]:
                    requests.create_task(refresh(name, self.agents[name], kept))

    async def refresh_nodes(self, nodes: Iterable[str]) -> None:
        """Process new reports of these nodes, of those that are up."""
        kept = _replicas_by_node(self._snapshot())
        agents = [(name, self.agents[name]) for name in nodes if name in self.agents]
        await asyncio.gather(*(self._refresh(name, agent, kept) for name, agent in agents))

    async def _look(self) -> bool:
        """Post losses and joins of nodes, and other uses of GPUs; return whether any node joined.

        A node that takes long to join joins during later looks.
        """
        present = {member.name: member for member in await asyncio.to_thread(members)}
        self._left_out &= {member.ray_id for member in present.values()}
        incarnations = self._nodes_in_state()
        for name, incarnation in incarnations.items():
            member = present.get(name)
            if member is None or member.ray_id != incarnation:
                await self._lose_node(name)
        for name in [n for n in self.agents if n not in present]:
            self._drop(name)
        self._take_back()
        await self._post_withheld()
        for name, member in present.items():
            known = self._reachable.members.get(name) == member and name in self.agents
            if not known and member.ray_id not in self._joins:
                self._joins[member.ray_id] = asyncio.create_task(self._add_member(member))
        return await self._end_joins()

    async def _end_joins(self) -> bool:
        """Wait for nodes that are joining, for a while; return whether any node has joined."""
        if self._first is None:
            self._first = {*self._joins}
        if self._joins:
            await asyncio.wait(self._joins.values(), timeout=_LOOK_S)
        ended = [ray_id for ray_id, join in self._joins.items() if join.done()]
        joined = [self._joins.pop(ray_id).result() for ray_id in ended]
        self._first.difference_update(ended)
        if not self._first:
            self.looked.set()
        return any(joined)

    async def lend(self, launches: Sequence[LaunchTask]) -> None:
        """Let the programs of these runs have their GPUs from Ray, until they have ended."""
        for launch in launches:
            member = self._reachable.members.get(launch.node)
            if member is not None and self._holders is not None:
                await self._holders.lend(member, launch.gpus)
        await self._post_withheld()

    def _take_back(self) -> None:
        """Hold the GPUs of shared programs that have ended again."""
        if self._holders is None:
            return
        view = self._snapshot()
        for member in self._reachable.members.values():
            row = view.names.node_rows.get(member.name)
            if row is not None and self._holders.lent(member):
                tasks = [task for task in view.holding() if view.tasks.node[task] == row]
                used = [gpu for t in tasks if _is_shared(view, t) for gpu in view.held_gpus(t)]
                self._holders.take_back(member, used)

    async def _post_withheld(self) -> None:
        """Post which GPUs are withheld, of the nodes that are up, where that has changed."""
        if self._holders is None:
            return
        view, members = self._snapshot(), self._reachable.members
        rows = {view.node(row).id: row for row in view.live_nodes()}
        events = [
            event
            for name, row in rows.items()
            if name in members
            for event in self._withheld(members[name], view.withheld_gpus_of(row, OTHERS))
        ]
        if events:
            await asyncio.wrap_future(self._post(events))

    def _withheld(self, member: RayMember, before: Collection[int]) -> Iterator[GpusWithheld]:
        """Yield the event that other GPUs of a node are withheld than before, if so; log it."""
        if self._holders is None or (gpus := self._holders.withheld(member)) == tuple(before):
            return
        lent = self._holders.lent(member)
        if lost := [gpu for gpu in gpus if gpu not in before and gpu not in lent]:
            log.warning("%s", used_elsewhere(member.name, lost))
        for gpu in (gpu for gpu in before if gpu not in gpus):
            log.info("%s: GPU %s is available to jobs now", member.name, gpu)
        yield GpusWithheld(at=self._now(), node=member.name, incarnation=member.ray_id, gpus=gpus)

    def _nodes_in_state(self) -> dict[str, str]:
        """Return the incarnations of the nodes that are up in the state, by name."""
        view = self._snapshot()
        nodes = [view.node(row) for row in view.live_nodes()]
        return {node.id: node.incarnation for node in nodes}

    async def _lose_node(self, name: str) -> None:
        self._drop(name)
        await asyncio.wrap_future(self._post([NodeLost(at=self._now(), node=name)]))

    def _drop(self, name: str) -> None:
        member = self._reachable.members.pop(name, None)
        if member is not None and self._holders is not None:
            self._holders.drop(member.ray_id)
        self._reachable.addresses.pop(name, None)
        self.agents.pop(name, None)
        self.mounts.pop(name, None)
        self.reports.pop(name, None)
        self._used.pop(name, None)
        self._faults.pop(name, None)
        self._archived.pop(name, None)
        self._bandwidth_probe.node_lost(name)

    async def _add_member(self, member: RayMember) -> bool:
        """Add a node and return whether it joined; on failure it is retried at the next look."""
        from ray.exceptions import RayError

        try:
            return await self._connect_agent(member)
        except (RayError, ValueError) as error:  # ValueError: a dying agent has the name
            log.warning("node %s could not be added: %s", member.name, error)
        except Exception:  # any failure: the other nodes are added nevertheless
            log.exception("node %s could not be added", member.name)
        return False

    async def _connect_agent(self, member: RayMember) -> bool:
        """Start a node's agent and post its first report; return whether the node joined."""
        agent = await asyncio.to_thread(start_agent, member, self._root, token=self._token)
        before = _replicas_on(self._snapshot(), member.name)
        report = await self._report(member.name, agent)
        if report is None:
            return False  # retried at the next look
        if self._separate_users and report.uid != 0:
            if member.ray_id not in self._left_out:
                log.error(_SHARED, member.name, report.uid)
                self._left_out.add(member.ray_id)
            return False
        if self._holders is not None:
            await self._holders.hold(member)
        self._reachable.members[member.name] = member
        self._reachable.addresses[member.name] = (report.host, report.port)
        self.agents[member.name] = agent
        self.mounts[member.name] = report.mounts
        self.reports[member.name] = _report_facts(report)
        # the state may have changed while the agent was starting
        joins = self._nodes_in_state().get(member.name) != member.ray_id
        events: list[Event]
        if joins:
            events = [self._joined(member, report), *self._withheld(member, ())]
        else:
            events = [*self._found_replicas(report), *self._missing_replicas(report, before)]
        if events:
            await asyncio.wrap_future(self._post(events))
        self._sweep(report)
        return joins

    def _joined(self, member: RayMember, report: AgentReport) -> NodeJoined:
        """Return the join of a node, with the differences from the replicas that it had before."""
        view, sizes = self._snapshot(), {shard.id: shard.size_bytes for shard in report.shards}
        held = {**_replicas_on(view, member.name), **_away_replicas_on(view, member.name)}
        return NodeJoined(
            at=self._now(),
            node=_node(member, report),
            kept=True,
            without=tuple(shard for shard, size in held.items() if sizes.get(shard) != size),
            holds=tuple(_unknown_shards(view, report, held)),
            order=member.name if view.fleet.is_order(member.name) else "",
        )

    def _found_replicas(self, report: AgentReport) -> list[Event]:
        """Return events of replicas on a node that is up which the state lacks."""
        view, at, node = self._snapshot(), self._now(), report.node
        return [
            ReplicaAdded(at=at, shard=shard, node=node, run=_made_by(view, shard.id))
            for shard in _unknown_shards(view, report, _replicas_on(view, node))
        ]

    def _missing_replicas(self, report: AgentReport, before: Iterable[str]) -> list[Event]:
        """Return losses of the replicas in `before` that a report does not contain.

        `before` was read before the report was requested: a later replica may be missing from it.
        """
        held, at = {shard.id for shard in report.shards}, self._now()
        missed = [shard for shard in before if shard not in held]
        return [ReplicaLost(at=at, shard=shard, node=report.node) for shard in missed]

    def _sweep(self, report: AgentReport) -> None:
        """Make a node remove the leftovers in its report, unless a sweep of it is in progress."""
        uploading = self.uploading()  # first: it still contains datasets that are committed later
        if report.node not in self._sweeps:
            task = asyncio.create_task(self._remove(report, uploading))
            self._sweeps[report.node] = task
            task.add_done_callback(lambda _: self._sweeps.pop(report.node, None))

    async def _remove(self, report: AgentReport, uploading: Collection[str]) -> None:
        from ray.exceptions import RayError

        view = self._snapshot()  # before the archive: jobs that have left the state are archived
        try:
            archived = await self._archived_of(report.node, unknown_jobs(view, report))
            what = leftovers(view, report, uploading, archived)
            if what:
                await self.agents[report.node].remove.remote(what, report.at_ns)
        except (RayError, WorldError, KeyError) as error:  # the next report repeats them
            log.warning("leftovers on %s were not removed: %s", report.node, error)

    async def _archived_of(self, node: str, jobs: tuple[str, ...]) -> Mapping[str, bool]:
        """Return which jobs are archived, and whether their results have expired.

        The archive is read again only when the jobs on the node have changed, or any have expired.
        """
        request = (jobs, self._archive.expiries)
        if node not in self._archived or self._archived[node][0] != request:
            found = await asyncio.to_thread(self._archive.expired, jobs) if jobs else {}
            self._archived[node] = (request, found)
        return self._archived[node][1]

    async def _refresh(self, name: str, agent: Any, kept: dict[str, list[str]]) -> None:
        report = await self._report(name, agent)
        if report is None or self.agents.get(name) is not agent:
            return  # Ray reports the loss of the node, if it is one
        self._reachable.addresses[name] = (report.host, report.port)
        if self._believes(report):
            self.reports[name] = _report_facts(report)
            self._post_used(report)
        events = self._missing_replicas(report, kept.get(name, ()))
        if events:
            await asyncio.wrap_future(self._post(events))
        self._sweep(report)

    def _believes(self, report: AgentReport) -> bool:
        """Return whether a report can be true; one that cannot is logged once, and dropped."""
        fault, name = report_fault(report.machine), report.node
        if fault and self._faults.get(name) != fault:
            log.error("the report of %s is rejected, the last good one stays: %s", name, fault)
        self._faults[name] = fault
        return not fault

    def _post_used(self, report: AgentReport) -> None:
        """Post what is used of a node, if that has moved, without waiting for it to be handled.

        While the journal's disk is full, reports are refused; one per node waits at most.
        """
        waiting = self._used.get(report.node)
        if waiting is None or waiting.done():
            used = node_reported(self._snapshot(), report.node, report.machine, self._now())
            if used is not None:
                self._used[report.node] = self._post([used])

    async def _report(self, name: str, agent: Any) -> AgentReport | None:
        from ray.exceptions import RayError

        try:
            async with asyncio.timeout(_RESPONSE_S):
                report: AgentReport = await agent.report.remote()
        except (RayError, TimeoutError) as error:
            log.warning("the agent of %s does not respond: %s", name, error)
            return None
        if report.corrupt:  # the agent has dropped them: their loss is posted like any other
            log.warning("corrupt on %s: %s", name, ", ".join(report.corrupt))
        return report


def _is_shared(view: Snapshot, task: int) -> bool:
    """Return whether a task is of a program on the Ray cluster that Headgate has joined."""
    ray = view.job(view.tasks.job[task]).program.ray
    return ray is not None and ray.mode is RayMode.SHARED


def _replicas_by_node(view: Snapshot) -> dict[str, list[str]]:
    """Return the shards of which each node that is up has a replica in the state; O(replicas)."""
    names = {row: view.node(row).id for row in view.live_nodes()}
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    replicas = view.shards.replicas.array().tolist()
    for shard, rows in zip(view.names.shards, replicas, strict=False):  # names may be newer
        for row in rows:
            found[names[row]].append(shard)
    return found


def _replicas_on(view: Snapshot, node: str) -> dict[str, int]:
    """Return the shards with a replica on a node, and their sizes in bytes; O(shards)."""
    return _shards_on(view, view.shards.replicas, node)


def _away_replicas_on(view: Snapshot, node: str) -> dict[str, int]:
    """Return the shards with a replica on a lost node, valid again if it returns with them."""
    return _shards_on(view, view.shards.away, node)


def _shards_on(view: Snapshot, lists: FrozenLists, node: str) -> dict[str, int]:
    row = view.names.node_rows.get(node)
    rows = () if row is None else lists.having(row).tolist()
    return {view.names.shards[shard]: view.shards.size_bytes[shard] for shard in rows}


def _unknown_shards(view: Snapshot, report: AgentReport, known: Collection[str]) -> Iterator[Shard]:
    """Yield the valid shards in a node's report that are not in `known`.

    Shards of datasets are valid only on a node that is new to the state: on any other, an unknown
    one may belong to an earlier dataset of the same name.
    """
    parts: dict[str, Shard] = {}
    if report.node not in view.names.node_rows:
        parts = {shard.id: shard for dataset in view.datasets.values() for shard in dataset.shards}
    for held in report.shards:
        if held.id not in known:
            shard = parts.get(held.id) or _result(view, held.id, report.node)
            if shard is not None and shard.size_bytes == held.size_bytes:
                yield shard


def _result(view: Snapshot, shard: str, node: str) -> Shard | None:
    """Return a shard that is (part of) a result of a task whose last run finished on this node."""
    task, row = _task_of(view, shard), known_shard(view, shard)
    if task is None or row is None:
        return None
    here = view.tasks.node[task] == view.names.node_rows.get(node)
    kept = math.isnan(view.jobs.expired_at[view.tasks.job[task]])
    if not (here and kept) or view.tasks.state[task] != TaskState.FINISHED:
        return None
    return Shard(id=shard, size_bytes=view.shards.size_bytes[row])


def _made_by(view: Snapshot, shard: str) -> RunId | None:
    """Return the last run of the task that a result is of; None for any other shard."""
    task = _task_of(view, shard)
    return None if task is None else view.run_id(task)


def _task_of(view: Snapshot, shard: str) -> int | None:
    """Return the row of the task that a shard is a result of, if the state knows its job."""
    of = task_of_result(shard)
    job = None if of is None else known_row(view, of[0])
    if of is None or job is None or of[1] >= view.jobs.task_count[job]:
        return None
    return view.tasks_of(job)[of[1]]


def dataset_shard(dataset: str, index: int, size_bytes: int) -> Shard:
    """Return a shard of a dataset; `is_dataset_shard` recognizes its id."""
    return Shard(id=f"{dataset}:{index:05d}", size_bytes=size_bytes)


def _report_facts(report: AgentReport) -> dict[str, Any]:
    machine = asdict(report.machine)
    del machine["outside"]  # the state has what counts of it
    return {
        **machine,
        "shards": len(report.shards),
        "shard_bytes": sum(shard.size_bytes for shard in report.shards),
        "served_bytes": report.served_bytes,
        "address": f"{report.host}:{report.port}",
    }


def _node(member: RayMember, report: AgentReport) -> Node:
    """Return the node of a member; memory and models of GPUs as labelled, else as reported."""
    seen, models = report.machine.gpus, member.gpu_models
    gpus = tuple(
        Gpu(
            memory_bytes=member.gpu_memory_bytes
            if member.gpu_memory_bytes is not None
            else (seen[i].memory_bytes if i < len(seen) else 0),
            model=models[i] if models else (seen[i].name if i < len(seen) else "virtual"),
        )
        for i in range(member.gpus)
    )
    near = np.array(report.closeness)
    physical = member.gpu_memory_bytes is None and len(near) == member.gpus > 1
    return Node(
        id=member.name,
        rack=member.rack,
        gpus=gpus,
        cpus=max(1, member.cpus),
        memory_bytes=report.machine.memory_bytes or None,
        custom=member.custom,
        incarnation=member.ray_id,
        labels=member.labels,
        shape=node_shape(near, nvlinks=report.nvlinks) if physical else None,
    )
