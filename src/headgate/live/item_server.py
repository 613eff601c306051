"""The owner's side of leases: sends items to the processes of slots, and collects their ends.

Runs on an event loop: in a thread of the client's process, or in a job master. A peer that does not
know the token is disconnected before any of its bytes is interpreted.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import pickle
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from headgate.live.item_worker import LENGTH
from headgate.planning.dispatch import Dispatcher

log = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0


class Code(NamedTuple):
    """What items execute: COMMAND or FUNCTION, and its bytes."""

    kind: int
    content: bytes


class Ended(NamedTuple):
    """The end of an item; `content` is its pickled result, or error."""

    item: int
    ok: bool
    content: bytes


class ItemServer:
    """Serves slots; all methods are called on its event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        token: str,
        item: Callable[[int], tuple[int, bytes]],
        code: Callable[[int], Code],
        on_ended: Callable[[Sequence[Ended]], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`item` returns the number of an item's code, and its payload, when it is sent.

        `on_ended` gets the ends of items, `on_lost` an item that ended its slots too often.
        """
        self._dispatcher = dispatcher
        self._token = token.encode()
        self._item, self._code = item, code
        self._on_ended, self._on_lost = on_ended, on_lost
        self._slots: dict[int, asyncio.StreamWriter] = {}
        self._known: dict[int, set[int]] = {}  # codes that a slot has been sent
        self._numbers = count()
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> int:
        """Listen on a free port of a host's address; return the port."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End all slots."""
        if self._server is not None:
            self._server.close()
        for writer in self._slots.values():
            writer.close()

    def send(self) -> None:
        """Send pending items to slots that need some."""
        for slot, items in self._dispatcher.batches():
            found = [self._item(item) for item in items]
            writer, known = self._slots[slot], self._known[slot]
            for code in {code for code, _ in found} - known:
                _write(writer, ("code", (code, *self._code(code))))
                known.add(code)
            _write(writer, ("run", found))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lease = await self._lease_of(reader)
        if lease is None:
            writer.close()
            return
        slot = next(self._numbers)
        self._slots[slot], self._known[slot] = writer, set()
        self._dispatcher.join(slot, lease)
        self.send()
        try:
            await self._collect(slot, reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self._slots[slot], self._known[slot]
            writer.close()
            lost = self._dispatcher.leave(slot)
            if lost.failed is not None:
                self._on_lost(lost.failed)
            self.send()

    async def _lease_of(self, reader: asyncio.StreamReader) -> int | None:
        """Return the lease of a new peer, None for one that does not know the token."""
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length != len(self._token):
                    return None
                token = await reader.readexactly(length)
                (lease,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return None
        return int(lease) if hmac.compare_digest(token, self._token) else None

    async def _collect(self, slot: int, reader: asyncio.StreamReader) -> None:
        while True:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            content = await reader.readexactly(length)
            seconds, ended = pickle.loads(content)  # noqa: S301  # of a process of our user
            items = self._dispatcher.ended(slot, len(ended), seconds)
            self._on_ended([Ended(i, *end) for i, end in zip(items, ended, strict=True)])
            self.send()


def _write(writer: asyncio.StreamWriter, message: Any) -> None:
    content = pickle.dumps(message, protocol=5)
    writer.write(LENGTH.pack(len(content)))
    writer.write(content)
