"""The owner's side of a lease: sends items to slots, and collects their ends.

It listens in the owner's process. A peer that does not know the token is disconnected before any
further byte of it is read.
"""

from __future__ import annotations

import asyncio
import hmac
import pickle
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from headgate.live.calls.item_worker import LENGTH, NOTICE
from headgate.planning.calls.dispatch import Dispatcher

_HANDSHAKE_S = 10.0
_HELLO_BYTES = 4096


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
        payload: Callable[[int], tuple[int, bytes]],
        code: Callable[[int], bytes],
        on_ended: Callable[[Sequence[Ended]], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`payload` returns the code of an item and its arguments, both pickled, when it is sent.

        `on_ended` gets the ends of items, `on_lost` an item that ended its slots too often.
        """
        self._dispatcher = dispatcher
        self._token = token.encode()
        self._payload, self._code = payload, code
        self._on_ended, self._on_lost = on_ended, on_lost
        self._slots: dict[int, asyncio.StreamWriter] = {}
        self._known: dict[int, set[int]] = {}  # code that a slot has
        self._noticed: set[int] = set()  # slots that will be stopped
        self._nodes: dict[tuple[int, str], int] = {}  # the leases: by job and node
        self._numbers = count()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, host: str) -> int:
        """Listen on a free port of an address; return the port."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End all slots, also those that have connected and not said so yet."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        self.end_slots()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def end_slots(self) -> None:
        """End the slots that there are; others may come."""
        for writer in self._slots.values():
            writer.close()

    def add(self, first: int, end: int) -> None:
        """Send the items from `first` to before `end`, when slots need some."""
        self._dispatcher.add(first, end)
        self.send()

    def clear(self) -> tuple[int, ...]:
        """End the slots, and return the items that have not ended: no slot gets them any more."""
        found = self._dispatcher.clear()
        self.end_slots()
        return found

    def send(self) -> None:
        """Send pending items to slots that need some."""
        for slot, items in self._dispatcher.batches():
            payloads = [self._payload(item) for item in items]
            writer, known = self._slots[slot], self._known[slot]
            for code in sorted({code for code, _ in payloads} - known):
                _write(writer, ("code", (code, self._code(code))))
                known.add(code)
            _write(writer, ("run", payloads))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve_slot(reader, writer)
        finally:
            self._serving.discard(task)

    async def _serve_slot(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await self._hello(reader)
        if hello is None or self._closed:
            writer.close()
            return
        slot = next(self._numbers)
        self._slots[slot], self._known[slot] = writer, set()
        self._dispatcher.join(slot, self._nodes.setdefault(hello, len(self._nodes)))
        self.send()
        crashed = True
        try:
            crashed = not await self._collect(slot, reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            crashed = not writer.is_closing() and slot not in self._noticed
        finally:
            del self._slots[slot], self._known[slot]
            self._noticed.discard(slot)
            writer.close()
            lost = self._dispatcher.leave(slot, crashed=crashed)
            if lost.failed is not None:
                self._on_lost(lost.failed)
            self.send()

    async def _hello(self, reader: asyncio.StreamReader) -> tuple[int, str] | None:
        """Return the job and node of a new peer, None for one that does not know the token."""
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                token = await _read(reader, most=len(self._token))
                if not hmac.compare_digest(token, self._token):
                    return None
                job, node = pickle.loads(await _read(reader, most=_HELLO_BYTES))  # our user
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError):
            return None
        return int(job), str(node)

    async def _collect(self, slot: int, reader: asyncio.StreamReader) -> bool:
        """Collect ends until the slot says that it ends, or its connection does."""
        while (message := pickle.loads(await _read(reader))) is not None:  # our user
            if message == NOTICE:
                self._noticed.add(slot)
                continue
            seconds, ended = message
            items = self._dispatcher.ended(slot, len(ended), seconds)
            # none of those that `clear` has removed meanwhile
            self._on_ended([Ended(i, *end) for i, end in zip(items, ended, strict=False)])
            self.send()
        return True


async def _read(reader: asyncio.StreamReader, most: int | None = None) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if most is not None and length > most:
        raise ValueError(f"a message of {length} bytes")
    return await reader.readexactly(length)


def _write(writer: asyncio.StreamWriter, message: Any) -> None:
    content = pickle.dumps(message, protocol=5)
    writer.write(LENGTH.pack(len(content)))
    writer.write(content)
