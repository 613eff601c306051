"""Lookup of names that users give; an unknown name is an error with a hint."""

from __future__ import annotations

from headgate.base.errors import Problem, SpecError, closest, nearest
from headgate.model import Dataset, result_id
from headgate.state import Snapshot

_NEWEST = 1000  # jobs that an unknown name is compared with


def known_row(snapshot: Snapshot, job: str) -> int | None:
    """Return the row of a job, None where the state has no such job, or has archived it."""
    row = snapshot.names.job_rows.get(job)
    if row is None or row >= len(snapshot.jobs.state) or snapshot.jobs.archived[row]:
        return None
    return row


def known_shard(snapshot: Snapshot, shard: str) -> int | None:
    """Return the row of a shard, None where the state has none of this id."""
    row = snapshot.names.shard_rows.get(shard)
    return None if row is None or row >= len(snapshot.shards.size_bytes) else row


def job_row(snapshot: Snapshot, job: str) -> int:
    """Return the row of a job; raise SpecError `not_found`."""
    row = known_row(snapshot, job)
    if row is None:
        problem = f"there is no job '{job}'"
        raise SpecError(
            [Problem(path=job, problem=problem, hint=near_job(snapshot, job))], code="not_found"
        )
    return row


def near_job(snapshot: Snapshot, name: str) -> str:
    """Return a hint for an unknown job: one of the newest whose id is really like it, if any."""
    close = closest(name, [job.id for job in reversed(snapshot.names.jobs[-_NEWEST:])])
    return "headgate jobs --all lists them" if close is None else f"did you mean '{close}'?"


def task_row(snapshot: Snapshot, job: int, ordinal: int) -> int:
    """Return the row of a job's task; raise SpecError `not_found`."""
    rows = snapshot.tasks_of(job)
    if not 0 <= ordinal < len(rows):
        raise no_task(snapshot.job(job).id, ordinal, len(rows))
    return rows[ordinal]


def no_task(job: str, ordinal: int, count: int) -> SpecError:
    """Return the error that a job of `count` tasks has none of this ordinal."""
    text = f"job {job} has no task {ordinal}; it has tasks 0 to {count - 1}"
    return SpecError([Problem(path=result_id(job, ordinal), problem=text)], code="not_found")


def dataset_of(snapshot: Snapshot, name: str) -> Dataset:
    """Return a dataset; raise SpecError `not_found`."""
    dataset = snapshot.datasets.get(name)
    if dataset is None:
        text = f"there is no dataset '{name}'"
        hint = nearest(name, snapshot.datasets) or "headgate data ls lists them"
        raise SpecError([Problem(path=name, problem=text, hint=hint)], code="not_found")
    return dataset
