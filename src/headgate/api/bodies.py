"""Bodies of requests, received within limits of size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

from anyio import from_thread
from fastapi import Request

from headgate.base.errors import Problem, SpecError
from headgate.base.units import format_size

TEXT_S = 60.0
"""Seconds within which a job or topology file must be received."""
GRACE_S = 60.0
LEAST_BYTES_PER_S = 256 << 10
"""A shard or package is received at this rate at least, but for `GRACE_S` seconds in all."""

_TEXT_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20


async def text_of(request: Request, what: str = "job file") -> str:
    """Return the body as text; messages call it `what`.

    Raises SpecError: `too_large` above 4 MiB, `timeout` after `TEXT_S`, `bad_spec` if not UTF-8.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(TEXT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > _TEXT_BYTES:
                    raise SpecError(f"a {what} has at most 4 MiB", code="too_large")
    except TimeoutError:
        text = f"{len(body)} bytes of it were received within {TEXT_S:g} s, and no end"
        hint = "send it from a local disk, and end it"
        problem = Problem(path=what, problem=text, hint=hint)
        raise SpecError([problem], code="timeout") from None
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise SpecError(f"the {what} is not text in UTF-8") from None


def pieces_of(request: Request) -> Iterator[bytes]:
    """Yield the body in MiB pieces, in a thread; SpecError `timeout` for one sent too slowly."""
    body = PacedBody(request.stream(), f"{request.method} {request.url.path}")
    while piece := from_thread.run(body.piece):
        yield piece


class PacedBody:
    """A body, and how long we have waited for it; storing it, which may take long, does not count.

    A client that sends nothing for a while loses nothing if it was faster before.
    """

    def __init__(
        self,
        stream: AsyncIterator[bytes],
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what` is the request, for messages; `clock` returns seconds."""
        self._stream, self._what, self._clock = stream, what, clock
        self._received, self._waited_s = 0, 0.0

    async def piece(self) -> bytes:
        """Return the next MiB, less at the end, then nothing; SpecError `timeout`."""
        gathered = bytearray()
        while len(gathered) < _PIECE_BYTES:
            part = await self._next()
            if part is None:
                break
            gathered += part
        return bytes(gathered)

    async def _next(self) -> bytes | None:
        left_s = GRACE_S + self._received / LEAST_BYTES_PER_S - self._waited_s
        if left_s <= 0:
            raise self._slow()
        since = self._clock()
        try:
            async with asyncio.timeout(left_s):
                part = await anext(self._stream, None)
        except TimeoutError:
            raise self._slow() from None
        finally:
            self._waited_s += self._clock() - since
        self._received += len(part or b"")
        return part

    def _slow(self) -> SpecError:
        rate = f"{format_size(LEAST_BYTES_PER_S)} a second"
        text = (
            f"{format_size(self._received)} were received in {self._waited_s:.0f} s of waiting for "
            f"the client: at least {rate} are needed, after {GRACE_S:g} s"
        )
        hint = "send it from a local disk, or in smaller shards"
        return SpecError([Problem(path=self._what, problem=text, hint=hint)], code="timeout")
