"""The archivist: jobs that ended some time ago leave the state for the archive.

Which ones follows from the state alone, so a restart of the controller changes nothing: a job goes
when it ended longer ago than is retained, or when more ended jobs are there than the state keeps.
One of which anything is outstanding stays: further copies of its results are wanted, or missing.
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
from headgate.live.replication import lacks_shared_copies
from headgate.model import Job
from headgate.protocol import Event, JobsArchived
from headgate.state import Snapshot
from headgate.state.life import ENDED

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_PAUSE_S = 0.2  # while there is more to do
_JOBS_PER_LOOK = 500
_TASKS_PER_LOOK = 20_000
_ENDED_MOST = 10_000  # ended jobs in the state: beyond that the oldest go before their time
_SETTLED_S = 60.0  # after its end, at least: what is on its way about a job has arrived by then


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
        """Look again and again until cancelled; may be run again after a look that failed."""
        while True:
            more = await self.look()
            await asyncio.sleep(_PAUSE_S if more else _LOOK_S)

    async def look(self) -> int:
        """Archive what is to go now, up to a bound; return how many jobs that were.

        Where the archive cannot be written they stay, and are tried again at the next look.
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
        """Yield the rows of ended jobs that may go now, the one that ended first first."""
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
    """Return whether nothing is outstanding of an ended job.

    Copies on nodes are made again as nodes are lost, so a job that wants several stays as long as
    its results are kept.
    """
    job = view.job(row)
    if not math.isnan(view.jobs.expired_at[row]):
        return True
    if job.result_replicas > 1:
        return False
    return not (job.results_path and lacks_shared_copies(view, row))
