"""Bodies of requests, received within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from anyio import from_thread
from fastapi import Request

from headgate.base.errors import SpecError

TEXT_S = 60.0
"""Seconds within which a job or topology file must be received."""
PIECE_S = 60.0
"""Seconds within which each MiB of a shard must be received."""

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
        raise _late(f"the {what} was not received within {TEXT_S:g} s") from None
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise SpecError(f"the {what} is not text in UTF-8") from None


def pieces_of(request: Request) -> Iterator[bytes]:
    """Yield the body in MiB pieces, in a thread; SpecError `timeout` if one exceeds `PIECE_S`."""
    stream = request.stream()
    while piece := from_thread.run(_gather, stream):
        yield piece


async def _gather(stream: AsyncIterator[bytes]) -> bytes:
    gathered = bytearray()
    try:
        async with asyncio.timeout(PIECE_S):
            while len(gathered) < _PIECE_BYTES:
                piece = await anext(stream, None)
                if piece is None:
                    break
                gathered += piece
    except TimeoutError:
        raise _late(f"less than a MiB was received in {PIECE_S:g} s") from None
    return bytes(gathered)


def _late(problem: str) -> SpecError:
    return SpecError(problem, code="timeout")
