"""The event stream: a line whenever the state's version changes, with counts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from headgate.api import views
from headgate.api.controller import Controller
from headgate.api.deps import ControllerDep, Pools
from headgate.state import Snapshot

router = APIRouter()

_WAIT_S = 1.0  # in a thread, so it bounds how long the server's end waits for it
_PAUSE_S = 0.2  # between two lines: changes that come faster are told together
_ALIVE_S = 15.0


@router.get("/events", response_class=StreamingResponse)
async def events(request: Request, controller: ControllerDep, pools: Pools) -> StreamingResponse:
    """Tell the counts now, then again after every change (server-sent events)."""
    shared = request.app.state
    lines = _lines(controller, pools.changes, shared.ending, shared.counts)
    return StreamingResponse(lines, media_type="text/event-stream")


class Counts:
    """The last counts, worked out once for all watchers; used on the event loop alone."""

    def __init__(self) -> None:
        self._version, self._line = -1, ""

    def line(self, snapshot: Snapshot) -> tuple[int, str]:
        """Return a snapshot's version and the line that tells its counts; O(jobs) if it is new."""
        if snapshot.version != self._version:
            counts = json.dumps(views.counts_view(snapshot))
            self._version = snapshot.version
            self._line = f"id: {self._version}\ndata: {counts}\n\n"
        return self._version, self._line


async def _lines(
    controller: Controller, threads: CapacityLimiter, ending: threading.Event, counts: Counts
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
