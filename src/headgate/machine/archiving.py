"""What is dropped from the state: results that have expired, and jobs that are archived."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headgate.machine.copies import expire
from headgate.state import State, compact
from headgate.state.life import ENDED

COMPACT_ROWS = 4096
"""Rows of archived jobs and tasks from which on tables are compacted, once the others are fewer."""


def expire_results(state: State, job: str) -> bool:
    """Drop the results of an ended job; return whether it has ended and had not been expired."""
    row = state.names.job_rows.get(job)
    jobs = state.jobs
    if row is None or jobs.state[row] not in ENDED or not math.isnan(jobs.expired_at[row]):
        return False
    expire(state, row)
    return True


def archive(state: State, jobs: Iterable[str]) -> int:
    """Archive jobs; return how many of them have not ended, or are archived already."""
    stale = 0
    for job in jobs:
        row = state.names.job_rows.get(job)
        if row is None or state.jobs.state[row] not in ENDED or state.jobs.archived[row]:
            stale += 1
        else:
            state.archive(row)
    return stale


def compact_if_large(state: State) -> None:
    """Compact the tables once half of their rows are archived: O(1) per row in the long run.

    Only when a decision has been handled, so that no outstanding plan names rows.
    """
    rows = len(state.jobs.state) + len(state.tasks.state)
    enough = state.archived_rows >= max(COMPACT_ROWS, rows - state.archived_rows)
    if enough and not state.hypothetical:
        compact(state)
