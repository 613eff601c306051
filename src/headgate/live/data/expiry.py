"""Expiry: results, logs and scratch of a job are removed `keep_s` seconds after its end.

The times follow from the state alone, so a restart of the controller changes none. A node removes
its part when a sweep finds it there (`headgate.live.membership.sweep`).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from headgate.base.errors import WorldError
from headgate.journal import Archive
from headgate.live.node.shared import remove_shared
from headgate.model import Job
from headgate.protocol import Event, ResultsExpired
from headgate.state import Snapshot
from headgate.state.life import ENDED
from headgate.state.lookup import known_row

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
    """Expires the results of jobs in the state and in the archive.

    A look is O(jobs that ended since the last one or expire now); O(jobs) after jobs have left the
    state.
    """

    def __init__(
        self,
        *,
        default_s: float,
        archive: Archive,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """`default_s` (seconds) applies to jobs without a retention: `inf` is forever."""
        self._default_s, self._archive = default_s, archive
        self._retry_at: dict[str, float] = {}  # jobs whose results could not be removed
        self._post, self._now, self._snapshot = post, now, snapshot
        self._seen: Snapshot | None = None
        self._heap: list[tuple[float, str]] = []  # time in s since the epoch, job

    async def run(self) -> None:
        """Look periodically until cancelled; may be run again after a look that failed."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Expire the results whose retention has ended."""
        view = self._collect()
        events: list[Event] = []
        while self._heap and self._heap[0][0] <= self._now() and len(events) < _PER_LOOK:
            _, job = heapq.heappop(self._heap)
            row = known_row(view, job)
            if row is None or not math.isnan(view.jobs.expired_at[row]):
                continue
            if await self._remove_shared_results(view.job(row)):
                events.append(ResultsExpired(at=self._now(), job=job))
            else:
                heapq.heappush(self._heap, (self._retry_at[job], job))
        if events:
            await asyncio.wrap_future(self._post(events))
        try:
            await self._look_at_archive(view)
        except WorldError as error:
            log.warning("results of archived jobs do not expire: %s", error)

    async def _look_at_archive(self, view: Snapshot) -> None:
        """Expire results of archived jobs, except those that the state still contains."""
        now, archive = self._now(), self._archive
        self._retry_at = {job: at for job, at in self._retry_at.items() if at > now}
        limit = _PER_LOOK + len(self._retry_at)
        found = await asyncio.to_thread(archive.expiring, now, self._default_s, limit)
        over = [
            past
            for past in found
            if past.job.id not in self._retry_at
            and known_row(view, past.job.id) is None
            and await self._remove_shared_results(past.job)
        ]
        if over:
            await asyncio.to_thread(archive.expire, over, self._now())

    def _collect(self) -> Snapshot:
        """Add the jobs that ended since the last look to the heap; return the snapshot."""
        view, seen = self._snapshot(), self._seen
        changes = None if seen is None else view.changes(seen)
        if changes is None:  # all jobs are read, so the heap is rebuilt
            self._heap.clear()
        rows = range(len(view.jobs.state)) if changes is None else changes.jobs.tolist()
        for row in rows:
            if view.jobs.state[row] in ENDED and math.isnan(view.jobs.expired_at[row]):
                at, job = expires_at(view, row, self._default_s), view.job(row).id
                if at < math.inf:
                    heapq.heappush(self._heap, (max(at, self._retry_at.get(job, at)), job))
        self._seen = view
        return view

    async def _remove_shared_results(self, job: Job) -> bool:
        """Remove a job's results from its shared path; return whether it succeeded.

        It precedes the event, so that it is repeated after a crash. After a failure it is retried
        later, and the results have not expired until then.
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
            self._retry_at[job.id] = self._now() + _RETRY_S
            return False
        return True
