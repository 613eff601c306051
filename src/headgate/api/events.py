"""The event stream: counts of jobs, GPUs and nodes whenever the state's version changes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.responses import StreamingResponse

from headgate.api import views
from headgate.api.controller import ControllerPort
from headgate.api.deps import ControllerDep, Pools, new_router
from headgate.state import Snapshot

router = new_router(lambda pools: pools.events)

_WAIT_S = 1.0  # of a thread, and so the longest delay of the server's end
_PAUSE_S = 0.2  # between two events: faster changes are reported together
_ALIVE_S = 15.0


@router.get("/events", response_class=StreamingResponse)
async def events(request: Request, controller: ControllerDep, pools: Pools) -> StreamingResponse:
    """Stream the counts now and after every change (server-sent events)."""
    shared = request.app.state
    lines = _lines(controller, pools.threads, shared.ending, shared.counts)
    return StreamingResponse(lines, media_type="text/event-stream")


class LatestCounts:
    """The latest counts, computed once for all watchers; used on the event loop alone."""

    def __init__(self) -> None:
        self._version, self._line = -1, ""

    def line(self, snapshot: Snapshot) -> tuple[int, str]:
        """Return a snapshot's version and the event with its counts; O(jobs) for a new version."""
        if snapshot.version != self._version:
            counts = json.dumps(views.counts_view(snapshot))
            self._version = snapshot.version
            self._line = f"id: {self._version}\ndata: {counts}\n\n"
        return self._version, self._line


async def _lines(
    controller: ControllerPort,
    threads: CapacityLimiter,
    ending: threading.Event,
    counts: LatestCounts,
) -> AsyncIterator[str]:
    version, silent_s = -1, 0.0
    while not ending.is_set():
        seen = await to_thread.run_sync(
            controller.wait_for_change, version, _WAIT_S, limiter=threads
        )
        if seen > version:
            version, line = counts.line(controller.snapshot())
            silent_s = 0.0
            yield line
            await asyncio.sleep(_PAUSE_S)
        elif (silent_s := silent_s + _WAIT_S) >= _ALIVE_S:
            silent_s = 0.0
            yield ": still here\n\n"
