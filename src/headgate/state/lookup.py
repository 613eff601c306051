"""Names that people give, looked up; what is not there is told with what to do about it."""

from __future__ import annotations

from headgate.base.errors import Problem, SpecError, nearest
from headgate.model import Dataset, result_id
from headgate.state import Snapshot


def job_row(snapshot: Snapshot, job: str) -> int:
    """Return the row of a job; raise SpecError `not_found`."""
    row = snapshot.names.job_rows.get(job)
    if row is None or row >= len(snapshot.jobs.state):
        hint = "headgate jobs lists them"
        problem = Problem(path=job, problem=f"there is no job '{job}'", hint=hint)
        raise SpecError([problem], code="not_found")
    return row


def task_row(snapshot: Snapshot, job: int, ordinal: int) -> int:
    """Return the row of a job's task; raise SpecError `not_found`."""
    rows = snapshot.tasks_of(job)
    if not 0 <= ordinal < len(rows):
        name = snapshot.job(job).id
        text = f"job {name} has no task {ordinal}; it has tasks 0 to {len(rows) - 1}"
        raise SpecError([Problem(path=result_id(name, ordinal), problem=text)], code="not_found")
    return rows[ordinal]


def dataset_of(snapshot: Snapshot, name: str) -> Dataset:
    """Return a dataset; raise SpecError `not_found`."""
    dataset = snapshot.datasets.get(name)
    if dataset is None:
        text = f"there is no dataset '{name}'"
        hint = nearest(name, snapshot.datasets) or "headgate data ls lists them"
        raise SpecError([Problem(path=name, problem=text, hint=hint)], code="not_found")
    return dataset
