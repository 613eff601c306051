"""Links: the controller's line to each job master, which brings commands there and outcomes back.

Both directions may be cut at any time. A link keeps every launch until its end has been handled,
sends all of them again to a master that was restarted, and acknowledges an outcome only after the
engine has handled it. So nothing is lost, and since launches are known by their ids, nothing runs
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from headgate.live.master import start_master
from headgate.live.ray_nodes import Member
from headgate.live.records import LaunchRecord, OutcomeKind, OutcomeRecord, launch_record
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

_POLL_S = 5.0
_PAUSE_S = 0.5

Address = tuple[str, int]


class Places:
    """Where the nodes are just now: as Ray knows them, and their shard services.

    `look_at` has nodes looked at now that may have lost what they are believed to hold.
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.addresses: dict[str, Address] = {}
        self.look_at: Callable[[Iterable[str]], Awaitable[None]] = _nobody_looks


async def _nobody_looks(_: Iterable[str]) -> None:
    """Stand in where nobody watches the nodes."""


class JobLink:
    """One job's line; all methods belong to one event loop, `run` is its only task."""

    def __init__(
        self,
        job: str,
        program: str,
        *,
        root: Path,
        places: Places,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
    ) -> None:
        self.job = job
        self._program = program
        self._root = root
        self._places = places
        self._post = post
        self._now = now
        self._launches: dict[RunId, LaunchTask] = {}  # those whose end has not been handled
        self._gangs: dict[RunId, tuple[str, ...]] = {}  # of launches in a gang: its members' nodes
        self._stops: dict[RunId, None] = {}  # launches to be stopped
        self._sent: set[RunId] = set()  # launches that this incarnation of the master knows
        self._stops_sent: set[RunId] = set()
        self._incarnation = ""
        self._acked = 0
        self._wake = asyncio.Event()

    def launch(self, launches: Iterable[LaunchTask], *, gang: tuple[str, ...] = ()) -> None:
        """Bring these launches to the master, now and whenever it forgets them.

        `gang` names the nodes of all members of a gang, in the order of their ordinals.
        """
        for launch in launches:
            self._launches[launch.run] = launch
            if gang:
                self._gangs[launch.run] = gang
        self._wake.set()

    def stop(self, run: RunId) -> None:
        """Have a run ended; how it ended comes as ever."""
        self._stops[run] = None
        self._wake.set()

    def node_lost(self, node: str) -> None:
        """Forget what ran on a node: the engine has given it up."""
        gone = [run for run, launch in self._launches.items() if launch.node == node]
        for run in gone:
            self._forget(run)

    def _forget(self, run: RunId) -> None:
        self._launches.pop(run, None)
        self._gangs.pop(run, None)
        self._stops.pop(run, None)

    async def run(self) -> None:
        """Keep both directions going until cancelled, through every death of the master."""
        from ray.exceptions import RayError

        while True:
            try:
                master = await asyncio.to_thread(start_master, self.job, self._root)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._send(master))
                    both.create_task(self._receive(master))
            except* (RayError, ValueError):  # ValueError: the name was taken by a dying master
                self._renew("")
                await asyncio.sleep(_PAUSE_S)

    def _renew(self, incarnation: str) -> None:
        """Start over with a master that knows nothing yet."""
        self._incarnation, self._acked = incarnation, 0
        self._sent.clear()
        self._stops_sent.clear()
        self._wake.set()

    async def _send(self, master: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            unsent = [launch for i, launch in self._launches.items() if i not in self._sent]
            records = [r for r in map(self._record, unsent) if r is not None]
            if len(records) < len(unsent):  # their nodes are not known yet, or no more: look again
                asyncio.get_running_loop().call_later(_PAUSE_S, self._wake.set)
            if records:
                incarnation = await master.launch.remote(records)
                if incarnation != self._incarnation:
                    self._renew(incarnation)
                    continue
                self._sent.update(record.run for record in records)
            stops = [i for i in self._stops if i in self._sent and i not in self._stops_sent]
            if stops:
                await master.stop.remote(stops)
                self._stops_sent.update(stops)

    def _record(self, launch: LaunchTask) -> LaunchRecord | None:
        """Return what the master needs; None for a node that is gone (the engine will hear so)."""
        members = self._places.members
        gang = self._gangs.get(launch.run, ())
        if launch.node not in members or any(node not in members for node in gang):
            return None
        return launch_record(
            launch,
            program=self._program,
            ray_id=members[launch.node].ray_id,
            addresses=self._places.addresses,
            gang_hosts=[members[node].address for node in gang],
        )

    async def _receive(self, master: Any) -> None:
        while True:
            batch = await master.poll.remote(self._incarnation, self._acked, _POLL_S)
            if batch.incarnation != self._incarnation:
                self._renew(batch.incarnation)
                continue
            news = [(n, outcome) for n, outcome in batch.outcomes if n > self._acked]
            if not news:
                continue
            doubtful = {
                node: None
                for _, outcome in news
                if outcome.kind is OutcomeKind.FAILED and outcome.failure is FailureKind.LOST
                for node in self._sources(outcome.run)
            }
            if doubtful:  # before the run is tried again in the same way
                await self._places.look_at(doubtful)
            events = [self._event(outcome) for _, outcome in news]
            await asyncio.wrap_future(self._post(events))
            for number, outcome in news:
                self._acked = number
                if outcome.kind is not OutcomeKind.STARTED:
                    self._forget(outcome.run)

    def _sources(self, run: RunId) -> list[str]:
        """Return the nodes from which a run was to read; none of one that was given up."""
        found = self._launches.get(run)
        return [] if found is None else [node for read in found.reads for node in read.sources]

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
                return TaskStopped(at=at, run=run, usage=outcome.usage)
