"""Orders of nodes, carried out: each by one task that repeats what failed, with back-off.

The state has the orders; this has none of its own: a controller that restarts gets all commands
again, with the same keys. So no key makes two nodes, whatever fails when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from headgate.base.errors import HeadgateError
from headgate.live.base.supervise import Backoff
from headgate.live.cluster.providers import Provider
from headgate.model.scaling import Shape
from headgate.protocol import Event, NodeRemoved, OrderFailed
from headgate.state import Snapshot

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 120.0
_LOOK_S = 0.5
_LATE_S = 60.0
"""Seconds after the time of its shape at which a node that has not joined is reported."""


class Orders:
    """Carries out the commands AddNode and RemoveNode; its methods run on one event loop."""

    def __init__(
        self,
        provider: Provider,
        *,
        post: Callable[[Sequence[Event]], object],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
        late_s: float = _LATE_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._provider = provider
        self._post, self._now, self._snapshot = post, now, snapshot
        self._late_s, self._first_pause_s = late_s, first_pause_s
        self._adding: dict[str, asyncio.Task[None]] = {}
        self._removing: dict[str, asyncio.Task[None]] = {}

    def add(self, key: str, shape: Shape) -> None:
        """Have the node of an order made, unless that is under way."""
        if key not in self._adding and key not in self._removing:
            task = asyncio.get_running_loop().create_task(self._add(key, shape))
            self._adding[key] = task
            task.add_done_callback(lambda _: self._adding.pop(key, None))

    def remove(self, key: str) -> None:
        """Have the node of an order removed, unless that is under way; its making ends."""
        if key not in self._removing:
            if (adding := self._adding.get(key)) is not None:
                adding.cancel()
            task = asyncio.get_running_loop().create_task(self._remove(key, adding))
            self._removing[key] = task
            task.add_done_callback(lambda _: self._removing.pop(key, None))

    async def _add(self, key: str, shape: Shape) -> None:
        """Make a node and wait until it has joined; it is made again if it has not in time."""
        backoff = self._backoff()
        while key in self._snapshot().fleet.orders:
            if not await self._attempt(partial(self._provider.create, key, shape), key, backoff):
                continue
            late_s = shape.ready_after_s + self._late_s
            if not await self._joined(key, late_s):
                self._report(key, f"its node has not joined in {late_s:.0f} s")

    async def _joined(self, key: str, within_s: float) -> bool:
        """Wait until an order is no longer on its way; return whether that was in time."""
        clock = asyncio.get_running_loop().time
        until = clock() + within_s
        while key in self._snapshot().fleet.orders:
            if clock() > until:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _remove(self, key: str, adding: asyncio.Task[None] | None) -> None:
        if adding is not None:  # a creation under way ends before the removal begins
            await asyncio.gather(adding, return_exceptions=True)
        backoff = self._backoff()
        while not await self._attempt(partial(self._provider.remove, key), key, backoff):
            pass
        self._post([NodeRemoved(at=self._now(), order=key)])

    async def _attempt(
        self, request: Callable[[], Awaitable[None]], key: str, backoff: Backoff
    ) -> bool:
        """Make a request; after a failure report it and pause. Return whether it succeeded."""
        try:
            await request()
        except Exception as error:  # a provider may raise anything
            if not isinstance(error, HeadgateError):
                log.exception("the provider of nodes failed")
            self._report(key, str(error) or type(error).__name__)
            await asyncio.sleep(backoff.failed(after_s=0))
            return False
        return True

    def _report(self, key: str, message: str) -> None:
        log.warning("order %s: %s", key, message)
        self._post([OrderFailed(at=self._now(), order=key, message=message)])

    def _backoff(self) -> Backoff:
        return Backoff(first_s=self._first_pause_s, longest_s=LONGEST_PAUSE_S)
