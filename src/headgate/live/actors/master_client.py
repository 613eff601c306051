"""The client of an account's master: it delivers the controller's commands, and outcomes back.

Both directions may fail at any time. A client keeps every launch, and every stop, until the engine
has handled the run's end, sends all of them again to a master that was restarted, and acknowledges
an outcome only after the engine has handled it, which is after it became durable. So nothing is
lost, and since runs are identified by their ids, nothing runs twice. At each connection to a master
the client first makes it end the runs that the engine does not know: their launches may have been
lost from the end of the journal.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headgate.live.actors.masters import start_master
from headgate.live.actors.spares import Spares
from headgate.live.base.records import (
    GangRecord,
    LaunchRecord,
    OutcomeKind,
    OutcomeRecord,
    StopRecord,
    launch_record,
)
from headgate.live.cluster.names import executor_name, master_name
from headgate.live.cluster.ray_nodes import RayMember
from headgate.model import RunId
from headgate.protocol import (
    Event,
    FailureKind,
    LaunchTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
)

log = logging.getLogger(__name__)

_POLL_S = 5.0
_PAUSE_S = 0.5
_RESPONSE_S = 60.0
_ADDRESS_S = 30.0  # then a launch is sent although a source has no address

Address = tuple[str, int]


class ReachableNodes:
    """Current Ray ids of nodes and addresses of their shard services, by name of the node.

    `packages` is the address of the controller's packages. `refresh_nodes` requests a report from
    nodes that may have lost shards.
    """

    def __init__(self) -> None:
        self.members: dict[str, RayMember] = {}
        self.addresses: dict[str, Address] = {}
        self.packages: Address | None = None
        self.refresh_nodes: Callable[[Iterable[str]], Awaitable[None]] = _no_watch


async def _no_watch(_: Iterable[str]) -> None:
    """Do nothing: the default while no membership watches the nodes."""


@dataclass(slots=True, kw_only=True)
class _OutstandingRun:
    """A run whose end has not been handled, and the commands that its master has accepted."""

    command: LaunchTask
    gang: tuple[str, ...]  # the nodes of the members of its gang, by ordinal; () without one
    since_s: float  # time of `launch`, in seconds of the event loop
    stopping: bool = False
    now: bool = False  # without notice
    grace_s: float = math.inf  # its grace period at most
    sent: bool = False
    stop_sent: bool = False


class MasterClient:
    """The connection to an account's master; all methods run on one event loop, `run` as a task."""

    def __init__(
        self,
        account: str,
        *,
        root: Path,
        reachable: ReachableNodes,
        spares: Spares,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        log_limit_bytes: int = 0,
        max_processes: int = 0,
    ) -> None:
        """The limits are those of runs launched from now on; 0 is no limit."""
        self._account = account
        self._log_limit_bytes, self._max_processes = log_limit_bytes, max_processes
        self._root = root
        self._reachable = reachable
        self._spares, self._prepared = spares, set[str]()  # nodes with an executor, or to have one
        self._post = post
        self._now = now
        self._outstanding: dict[RunId, _OutstandingRun] = {}
        self._incarnation = ""
        self._reconciled = ""  # the incarnation that has ended unknown runs
        self._acked = 0
        self._wake = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether the ends of all runs have been handled."""
        return not self._outstanding

    def launch(self, launches: Iterable[LaunchTask], *, gang: tuple[str, ...] = ()) -> None:
        """Deliver these launches to the master, again after each restart of it.

        `gang` names the nodes of all members of a gang, in the order of their ordinals.
        """
        now_s = asyncio.get_running_loop().time()
        for launch in launches:
            self._outstanding[launch.run] = _OutstandingRun(
                command=launch, gang=gang, since_s=now_s
            )
        self._wake.set()

    def stop(self, run: RunId, *, now: bool = False, grace_s: float = math.inf) -> None:
        """Stop a launched run, through any incarnation of the master; its end is posted as usual.

        After its grace period, of at most `grace_s` seconds, or `now`, also when it was stopped
        before. Without effect once its end has been handled.
        """
        entry = self._outstanding.get(run)
        if entry is not None:
            if now and not entry.now:
                entry.now, entry.stop_sent = True, False
            if not entry.stopping:
                entry.stopping, entry.grace_s = True, grace_s
            self._wake.set()

    def node_lost(self, node: str) -> None:
        """Drop the runs of a lost node: the engine has ended them."""
        for run in [i for i, entry in self._outstanding.items() if entry.command.node == node]:
            del self._outstanding[run]

    async def run(self) -> None:
        """Send and receive until cancelled; a master that died is restarted.

        May be run again after any failure.
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        while True:
            self._renew("")
            try:
                await self._spares.give(master_name(self._account))
                master = await asyncio.to_thread(start_master, self._account, self._root)
            except (RayError, ValueError) as error:  # ValueError: a dying master has the name
                log.warning("the master of %s could not be started: %s", self._account, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._send(master))
                    both.create_task(self._receive(master))
            except* RayTaskError:  # the master responds, and raised this error
                raise
            except* RayError as group:
                errors = ", ".join(type(error).__name__ for error in group.exceptions)
                log.warning("the master of %s does not respond: %s", self._account, errors)
            except* TimeoutError:  # a restarted master gets its launches again from this client
                log.error("the master of %s hangs; it is restarted", self._account)
                await asyncio.to_thread(partial(ray.kill, master, no_restart=False))
            await asyncio.sleep(_PAUSE_S)

    def _renew(self, incarnation: str) -> None:
        """Start over with a new incarnation of the master: nothing has been sent to it."""
        self._incarnation, self._acked = incarnation, 0
        for entry in self._outstanding.values():
            entry.sent = entry.stop_sent = False
        self._wake.set()

    async def _send(self, master: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._incarnation or self._reconciled != self._incarnation:
                # Before any launch is sent: the master keeps runs that it launches later.
                self._reconciled = await master.keep_only.remote(tuple(self._outstanding))
                if not self._same(self._reconciled):
                    continue
            launches, stops, complete = self._unsent()
            if not complete:
                asyncio.get_running_loop().call_later(_PAUSE_S, self._wake.set)
            await self._prepare(launches)
            if launches and not self._same(await master.launch.remote(launches)):
                continue
            for entry in self._still_outstanding(launch.run for launch in launches):
                entry.sent = True
            if stops and not self._same(await master.stop.remote(stops)):
                continue
            sent = {stop.run: stop.now for stop in stops}
            for entry in self._still_outstanding(sent):
                entry.stop_sent = entry.now == sent[entry.command.run]

    async def _prepare(self, launches: Iterable[LaunchRecord]) -> None:
        """Let spares be the executors of nodes to which nothing was launched before."""
        new = {launch.ray_id: None for launch in launches if launch.ray_id not in self._prepared}
        self._prepared.update(new)
        gifts = (self._spares.give(executor_name(self._account, ray_id), ray_id) for ray_id in new)
        await asyncio.gather(*gifts)

    def _still_outstanding(self, runs: Iterable[RunId]) -> list[_OutstandingRun]:
        return [self._outstanding[run] for run in runs if run in self._outstanding]

    def _same(self, incarnation: str) -> bool:
        """Return whether the master has the same incarnation as before; else start over with it."""
        if incarnation == self._incarnation:
            return True
        self._renew(incarnation)
        return False

    def _unsent(self) -> tuple[list[LaunchRecord], list[StopRecord], bool]:
        """Return the commands to send to the master, and whether they are complete.

        For a run that is to be stopped only the stop is sent.
        """
        launches, stops, complete = [], [], True
        for entry in self._outstanding.values():
            if entry.stopping:
                if entry.stop_sent:
                    continue
                stop = self._stop_record(entry)
                if stop is not None:
                    stops.append(stop)
                complete = complete and stop is not None
            elif not entry.sent:
                record = self._launch_record(entry)
                if record is not None:
                    launches.append(record)
                complete = complete and record is not None
        return launches, stops, complete

    def _stop_record(self, entry: _OutstandingRun) -> StopRecord | None:
        """Return the record of a stop; None while its node is down (its loss will be an event)."""
        launch = entry.command
        member = self._reachable.members.get(launch.node)
        if member is None:
            return None
        return StopRecord(
            run=launch.run,
            node=launch.node,
            ray_id=member.ray_id,
            now=entry.now,
            grace_s=entry.grace_s,
        )

    def _launch_record(self, entry: _OutstandingRun) -> LaunchRecord | None:
        """Return the record of a launch; None while an address that it needs is missing."""
        launch, members = entry.command, self._reachable.members
        if launch.node not in members or any(node not in members for node in entry.gang):
            return None
        waited_s = asyncio.get_running_loop().time() - entry.since_s
        if waited_s < _ADDRESS_S and not self._readable(launch):
            return None
        gang = None
        if entry.gang:
            gang = GangRecord(
                hosts=tuple(members[node].address for node in entry.gang),
                first_node=entry.gang[0],
                first_ray_id=members[entry.gang[0]].ray_id,
            )
        member = members[launch.node]
        return launch_record(
            launch,
            ray_id=member.ray_id,
            addresses=self._reachable.addresses,
            packages=self._reachable.packages,
            gang=gang,
            log_limit_bytes=self._log_limit_bytes,
            max_processes=self._max_processes,
            node_cpus=member.cpus,
            node_gpus=member.gpus,
        )

    def _readable(self, launch: LaunchTask) -> bool:
        """Return whether every shard that a run reads has a source with an address."""
        sources = {launch.node, *self._reachable.addresses}
        return all(not sources.isdisjoint(r.sources) for r in launch.reads if r.sources)

    async def _receive(self, master: Any) -> None:
        while True:
            # not `wait_for`: before Python 3.12 it may lose a cancellation
            async with asyncio.timeout(_POLL_S + _RESPONSE_S):
                batch = await master.poll.remote(self._incarnation, self._acked, _POLL_S)
            if batch.incarnation != self._incarnation:
                self._renew(batch.incarnation)
                continue
            news = [(n, outcome) for n, outcome in batch.outcomes if n > self._acked]
            if not news:
                continue
            suspect_nodes = {
                node: None
                for _, outcome in news
                if outcome.kind is OutcomeKind.FAILED and outcome.failure is FailureKind.LOST
                for node in self._sources(outcome.run)
            }
            if suspect_nodes:  # before the run is retried with the same sources
                await self._reachable.refresh_nodes(suspect_nodes)
            events = [self._event(outcome) for _, outcome in news]
            await asyncio.wrap_future(self._post(events))
            for number, outcome in news:
                self._acked = number
                if outcome.kind is not OutcomeKind.STARTED:
                    self._outstanding.pop(outcome.run, None)

    def _sources(self, run: RunId) -> list[str]:
        """Return the nodes from which a run was to read; none for a dropped run."""
        entry = self._outstanding.get(run)
        reads = () if entry is None else entry.command.reads
        return [node for read in reads for node in read.sources]

    def _event(self, outcome: OutcomeRecord) -> Event:
        at, run = self._now(), outcome.run
        match outcome.kind:
            case OutcomeKind.STARTED:
                return TaskStarted(at=at, run=run)
            case OutcomeKind.FINISHED:
                return TaskFinished(
                    at=at,
                    run=run,
                    output_bytes=outcome.output_bytes,
                    part_bytes=outcome.part_bytes,
                    usage=outcome.usage,
                )
            case OutcomeKind.FAILED:
                return TaskFailed(
                    at=at,
                    run=run,
                    kind=outcome.failure,
                    message=outcome.message,
                    usage=outcome.usage,
                )
            case OutcomeKind.STOPPED:
                message = outcome.message
                return TaskStopped(at=at, run=run, usage=outcome.usage, message=message)
