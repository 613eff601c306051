"""The numbers of units of elastic jobs in tables and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.cli.common import output

Job = Mapping[str, Any]


def units_of(job: Job) -> Mapping[str, int] | None:
    """Return the numbers of units of an elastic job; earlier releases had no such jobs."""
    units: Mapping[str, int] | None = job.get("elastic")
    return units


def unneeded_of(job: Job) -> int:
    """Return how many units of an elastic job were not needed; 0 for any other job."""
    return (units_of(job) or {}).get("unneeded", 0)


def progress_of(job: Job) -> tuple[int, int]:
    """Return how many tasks of a job have finished, of how many; without those not needed.

    While an elastic job is in flight, how many units run, of how many at most: how far its work
    has come, only its program knows.
    """
    units, unneeded = units_of(job), unneeded_of(job)
    if units is not None and job["ended_at"] is None:
        return units["running"], units["max"]
    return job["tasks"].get("finished", 0) - unneeded, job["tasks"]["total"] - unneeded


def progress_cell(job: Job) -> str:
    """Return the progress of a job as the cell of a table: `3/8`, or `5 of 2-8` units."""
    done, total = progress_of(job)
    units = units_of(job)
    if units is not None and job["ended_at"] is None:
        return f"{done} of {units['min']}-{total}"
    return f"{done}/{total}"


def units_text(job: Job) -> str | None:
    """Return how many units of an elastic job run; None for another job, and for one that ended."""
    units = units_of(job)
    if units is None or job["ended_at"] is not None:
        return None
    surplus = f", {units['surplus']} of them surplus" if units["surplus"] else ""
    running = output.counted(units["running"], "unit")
    return f"{running} of {units['min']} to {units['max']}{surplus}"
