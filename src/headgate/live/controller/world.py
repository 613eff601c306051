"""The live world: sends commands to masters and the policy's thread, and collects events.

Two threads are involved. The engine's thread takes batches of events from the inbox, records and
handles them, and calls `submit`. All calls to Ray are made on an event loop in another thread;
`submit` only passes commands to it. Work on that loop is supervised: a failure is logged and the
work restarts; if the loop itself ends, so does the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from headgate.live.actors.master_client import MasterClient, ReachableNodes
from headgate.live.actors.masters import accounts_with_actors, end_account
from headgate.live.actors.spares import Spares
from headgate.live.base.supervise import Backoff, supervise
from headgate.live.cluster.ordering import Orders
from headgate.live.controller.inbox import Inbox
from headgate.live.controller.policy_thread import DEADLINE_S, PolicyThread
from headgate.model import RayMode
from headgate.ports import Policy
from headgate.protocol import (
    AddNode,
    Command,
    Decide,
    Event,
    LaunchGang,
    LaunchTask,
    RemoveNode,
    StopTask,
    TimerFired,
    WakeAt,
)
from headgate.state import Snapshot

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_LOOK_S = 1.0
_KEEP_S = 10.0  # without a run: then an account's master and executors end


class LiveWorld:
    """Carries commands out on Ray."""

    def __init__(
        self,
        *,
        policies: Callable[[str | None], Policy],
        seed: int,
        root: Path,
        decide_s: float = DEADLINE_S,
        log_limit_bytes: int = 0,
        max_processes: int = 0,
        spares: int = 0,
    ) -> None:
        """`policies(None)` makes the policy in force; a decision of more than `decide_s` s fails.

        The middle of a log of more than `log_limit_bytes` is dropped, and a run has at most
        `max_processes` processes and threads; 0 is no limit. So many `spares` are kept on each
        node; see `Spares`.
        """
        self._log_limit_bytes, self._max_processes = log_limit_bytes, max_processes
        self.inbox = Inbox()
        self.reachable = ReachableNodes()
        self.spares = Spares(root, self.reachable.members, per_node=spares)
        self.policy = policies(None)
        """The policy in force, for checks of submissions: it never decides."""
        self._root = root
        self._clients: dict[str, tuple[MasterClient, asyncio.Task[None]]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}  # accounts whose actors are ended
        self._works: set[asyncio.Task[None]] = set()
        self.deciding = PolicyThread(
            policies, seed=seed, post=self.inbox.post, now=self.now, deadline_s=decide_s
        )
        # called with the launches of a job that runs on the Ray cluster of its nodes
        self.lend: Callable[[Sequence[LaunchTask]], Coroutine[Any, Any, None]] | None = None
        self.orders: Orders | None = None  # of a cluster that scales
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="ray", daemon=True)
        self._thread.start()

    # --- the world protocol ------------------------------------------------------------------

    def now(self) -> float:
        """Return seconds since the epoch, never less than before."""
        return self.inbox.now()

    def events(self) -> Iterator[tuple[Event, ...]]:
        """Yield batches of posted events until the world is closed."""
        return self.inbox.batches()

    def submit(self, commands: Sequence[Command], snapshot: Callable[[], Snapshot]) -> None:
        """Pass commands to the event loop and the policy's thread; returns immediately."""
        launches: dict[str, list[LaunchTask]] = {}
        stops: list[StopTask] = []
        for command in commands:
            match command:
                case LaunchTask():
                    launches.setdefault(command.run.job, []).append(command)
                case LaunchGang():
                    self._call(self._launch, command.members, command.nodes)
                case AddNode() | RemoveNode():
                    self._call(self._order, command)
                case StopTask():
                    stops.append(command)
                case Decide():
                    self.deciding.decide(command, snapshot())
                case WakeAt():
                    self._call(self._wake_at, command)
                case _:
                    raise TypeError(f"no such command: {command!r}")
        for members in launches.values():
            self._call(self._launch, members, ())
        for stop in stops:  # after the launches, which create the client of the master
            self._call(self._stop, stop)

    # --- for the controller ------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine on the event loop of Ray; a failure is logged."""
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.add_done_callback(_log_failure)
        return done

    def node_lost(self, node: str) -> None:
        """Drop the runs of a lost node from all clients of masters."""
        self._call(self._node_lost, node)

    def reconcile(self) -> None:
        """Make the masters of an earlier controller stop runs that the engine does not know.

        To be called at start-up, after all outstanding launches were submitted.
        """
        for account in accounts_with_actors():
            self._call(self._client, account)

    async def end_idle(self) -> None:
        """End the actors of accounts that have had no run for some time, until cancelled."""
        idle_since_s: dict[str, float] = {}
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._loop.time()
            idle = [account for account, (client, _) in self._clients.items() if client.idle]
            idle_since_s = {account: idle_since_s.get(account, now_s) for account in idle}
            for account, since_s in idle_since_s.items():
                if now_s - since_s >= _KEEP_S:
                    self._end(account)

    def close(self) -> None:
        """Stop decisions and calls to Ray; all actors run on. The engine must have ended."""
        self._closing = True
        self.deciding.close()
        with suppress(TimeoutError):  # work that ignores its cancellation ends with the process
            self.start(_cancel_others()).result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    # --- on the loop -------------------------------------------------------------------------

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException:  # any failure ends the process
            log.exception("the thread that talks with Ray failed")
        if not self._closing:
            # Without it no command is executed and no end of a run arrives. The next controller
            # starts from the journal, and the reason is logged.
            log.critical("the thread that talks with Ray ended")
            os._exit(70)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call an idempotent function on the loop until it succeeds."""
        self._loop.call_soon_threadsafe(self._try_call, Backoff(), function, arguments)

    def _try_call(
        self, backoff: Backoff, function: Callable[..., object], arguments: tuple[object, ...]
    ) -> None:
        try:
            function(*arguments)
        except Exception:  # a command that is not executed would hold its GPUs forever
            pause_s = backoff.failed(after_s=0)
            log.exception("%s failed; it is repeated in %.1f s", function.__name__, pause_s)
            self._loop.call_later(pause_s, self._try_call, backoff, function, arguments)

    def _launch(self, launches: Sequence[LaunchTask], gang: tuple[str, ...]) -> None:
        program = launches[0].program
        assert program is not None, "a live job has one"
        self._client(program.user).launch(launches, gang=gang)
        ray = program.ray
        if self.lend is not None and ray is not None and ray.mode is RayMode.SHARED:
            self._supervised("lending GPUs to a Ray program", partial(self.lend, launches))

    def _stop(self, command: StopTask) -> None:
        for client, _ in self._clients.values():  # all but the one of the run do nothing
            client.stop(command.run, now=command.now, grace_s=command.grace_s)

    def _order(self, command: AddNode | RemoveNode) -> None:
        if self.orders is None:
            return  # the cluster no longer scales: the order waits until it does again
        if isinstance(command, AddNode):
            self.orders.add(command.order, command.shape)
        else:
            self.orders.remove(command.order)

    def _client(self, account: str) -> MasterClient:
        if account not in self._clients:
            client = MasterClient(
                account,
                root=self._root,
                reachable=self.reachable,
                spares=self.spares,
                post=self.inbox.post,
                now=self.now,
                log_limit_bytes=self._log_limit_bytes,
                max_processes=self._max_processes,
            )
            task = self._loop.create_task(self._run_client(account, client))
            self._clients[account] = (client, task)
        return self._clients[account][0]

    async def _run_client(self, account: str, client: MasterClient) -> None:
        if account in self._ending:  # actors of the same names
            await asyncio.wait({self._ending[account]})
        await supervise(f"the client of the master of {account}", client.run)

    def _node_lost(self, node: str) -> None:
        for client, _ in self._clients.values():
            client.node_lost(node)

    def _wake_at(self, command: WakeAt) -> None:
        def fire() -> None:
            at = max(command.at, self.now())
            self.inbox.post([TimerFired(at=at, timer=command.timer)])

        self._loop.call_later(max(0.0, command.at - self.now()), fire)

    def _end(self, account: str) -> None:
        self._clients.pop(account)[1].cancel()
        end = partial(asyncio.to_thread, end_account, account)
        work = self._supervised(f"ending the actors of {account}", end)
        self._ending[account] = work
        work.add_done_callback(lambda _: self._ending.pop(account))

    def _supervised(
        self, what: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(supervise(what, work))
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("work on the event loop of Ray failed", exc_info=error)


async def _cancel_others() -> None:
    """Cancel all other tasks of this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
