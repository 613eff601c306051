"""The archivist: jobs that ended some time ago leave the state for the archive.

The choice follows from the state alone, so a restart of the controller changes nothing. A job is
archived when it ended longer ago than the retention, or when the state has more ended jobs than
`_ENDED_MOST`. It stays while further copies of its results are required or missing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from headgate.base.errors import WorldError
from headgate.journal import Archive, Record
from headgate.live.data.replication import lacks_shared_copies
from headgate.model import Job
from headgate.protocol import Event, JobsArchived
from headgate.state import Snapshot
from headgate.state.life import ENDED

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_PAUSE_S = 0.2  # between looks while more jobs are eligible
_JOBS_PER_LOOK = 500
_TASKS_PER_LOOK = 20_000
_ENDED_MOST = 10_000  # ended jobs in the state: beyond that the oldest are archived early
_SETTLED_S = 60.0  # least age of an ended job: late events about it have arrived by then


class Archivist:
    """Archives a bounded number of jobs per look; a look costs O(jobs in the state)."""

    def __init__(
        self,
        *,
        archive: Archive,
        record_of: Callable[[Snapshot, int], Record],
        retain_s: float,
        archived: Callable[[Sequence[Job]], None],
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """`record_of` describes an ended job (a row); jobs are retained `retain_s` after their end.

        `archived` is called with jobs that the state has forgotten.
        """
        self._archive, self._record_of, self._archived = archive, record_of, archived
        self._retain_s = retain_s
        self._post, self._now, self._snapshot = post, now, snapshot

    async def run(self) -> None:
        """Look periodically until cancelled; may be run again after a look that failed."""
        while True:
            more = await self.look()
            await asyncio.sleep(_PAUSE_S if more else _LOOK_S)

    async def look(self) -> int:
        """Archive eligible jobs, up to a bound; return their number.

        When the archive cannot be written they stay in the state until the next look.
        """
        view = self._snapshot()
        try:
            jobs = await asyncio.to_thread(self._archive_jobs, view)
        except WorldError as error:
            log.warning("ended jobs are not archived: %s", error)
            return 0
        if jobs:
            event = JobsArchived(at=self._now(), jobs=tuple(job.id for job in jobs))
            await asyncio.wrap_future(self._post([event]))
            self._archived(jobs)
        return len(jobs)

    def _archive_jobs(self, view: Snapshot) -> list[Job]:
        """Add jobs to the archive, durably, and return them."""
        rows = list(_bounded(view, self._eligible(view)))
        if not rows:
            return []
        self._archive.add([self._record_of(view, row) for row in rows])
        return [view.job(row) for row in rows]

    def _eligible(self, view: Snapshot) -> Iterator[int]:
        """Yield the rows of ended jobs that can be archived now, by time of their end."""
        states, ended_at = view.jobs.state.array(), view.jobs.ended_at.array()
        rows = np.flatnonzero(np.isin(states, ENDED) & (view.jobs.archived.array() == 0))
        rows = rows[np.argsort(ended_at[rows], kind="stable")]
        age_s = self._now() - ended_at[rows]
        surplus = np.arange(len(rows)) < len(rows) - _ENDED_MOST
        goes = (age_s >= _SETTLED_S) & (surplus | (age_s >= self._retain_s))
        yield from (row for row in rows[goes].tolist() if _is_settled(view, row))


def _bounded(view: Snapshot, rows: Iterator[int]) -> Iterator[int]:
    """Yield rows of jobs up to a number of jobs and tasks, one job at least."""
    tasks = 0
    for count, row in enumerate(rows, start=1):
        yield row
        tasks += len(view.job(row).tasks)
        if count >= _JOBS_PER_LOOK or tasks >= _TASKS_PER_LOOK:
            return


def _is_settled(view: Snapshot, row: int) -> bool:
    """Return whether an ended job needs no further copies of its results.

    Copies on nodes are replaced when nodes are lost, so a job with several replicas stays until its
    results expire.
    """
    job = view.job(row)
    if not math.isnan(view.jobs.expired_at[row]):
        return True
    if job.result_replicas > 1:
        return False
    return not (job.results_path and lacks_shared_copies(view, row))
