"""Expiry: what a job left is given up so many seconds after its end.

The times follow from the state alone, so a restart of the controller changes none. Nodes remove
their part when a sweep finds it there (`headgate.live.sweep`).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from headgate.live.shared import remove_shared
from headgate.model import Job
from headgate.protocol import Event, ResultsExpired
from headgate.state import Snapshot
from headgate.state.life import ENDED

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_PER_LOOK = 200  # jobs
_REMOVED_S = 60.0
_RETRY_S = 600.0


def expires_at(view: Snapshot, row: int, default_s: float) -> float:
    """Return when the results of a job expire: NaN before its end, `inf` where they never do."""
    job: Job = view.job(row)
    ended_at: float = view.jobs.ended_at[row]
    return ended_at + (default_s if job.keep_s is None else job.keep_s)


class Expiry:
    """Lets results expire; a look costs what has ended since the last one and what expires now."""

    def __init__(
        self,
        *,
        default_s: float,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """`default_s` holds for jobs that do not say how long: `inf` is for ever."""
        self._default_s = default_s
        self._post, self._now, self._snapshot = post, now, snapshot
        self._seen: Snapshot | None = None
        self._heap: list[tuple[float, int]] = []  # when, row of the job

    async def run(self) -> None:
        """Look again and again until cancelled; may be run again after a look that failed."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Give up what has expired by now."""
        view = self._take_up()
        events: list[Event] = []
        while self._heap and self._heap[0][0] <= self._now() and len(events) < _PER_LOOK:
            _, row = heapq.heappop(self._heap)
            if math.isnan(view.jobs.expired_at[row]) and await self._removed(row, view.job(row)):
                events.append(ResultsExpired(at=self._now(), job=view.job(row).id))
        if events:
            await asyncio.wrap_future(self._post(events))

    def _take_up(self) -> Snapshot:
        """Note the jobs that have ended since the last look."""
        view, seen = self._snapshot(), self._seen
        changes = None if seen is None else view.changes(seen)
        rows = range(len(view.jobs.state)) if changes is None else changes.jobs.tolist()
        for row in rows:
            if view.jobs.state[row] in ENDED and math.isnan(view.jobs.expired_at[row]):
                at = expires_at(view, row, self._default_s)
                if at < math.inf:
                    heapq.heappush(self._heap, (at, row))
        self._seen = view
        return view

    async def _removed(self, row: int, job: Job) -> bool:
        """Remove a job's results from its shared path, before the fact: a crash repeats it.

        Where that fails, it is tried again later, and the results have not expired until then.
        """
        if not job.results_path:
            return True
        try:
            removal = asyncio.to_thread(remove_shared, job.results_path, job.id, user=job.user)
            await asyncio.wait_for(removal, _REMOVED_S)
        except (OSError, TimeoutError) as error:
            log.warning(
                "results of %s below %s were not removed: %s", job.id, job.results_path, error
            )
            heapq.heappush(self._heap, (self._now() + _RETRY_S, row))
            return False
        return True
