"""The archive: ended jobs that left the state, in one SQLite file beside the journal.

A job is added before the event `JobsArchived` lets the state drop it; a crash between the two
repeats the addition. So each job is in the state, in the archive, or briefly in both, where the
state counts. All queries use an index: their cost does not grow with the number of jobs.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from headgate.journal.database import Database, Row, file_error
from headgate.model import Job
from headgate.state.lookup import no_task

SCHEMA = 1
"""Number of the schema: the tables, and the JSON that describes jobs and tasks."""

_EARLIER = "move the file away: the jobs in it are then not listed any more"
_TASKS_PER_ROW = 1000
_IDS_PER_QUERY = 500
_FILTERS = ("user", "queue", "state")

_TABLES = (
    """CREATE TABLE jobs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
       user TEXT NOT NULL, queue TEXT NOT NULL, state TEXT NOT NULL, submission_key TEXT NOT NULL,
       ended_at REAL NOT NULL, keep_s REAL, expired_at REAL, job BLOB NOT NULL)""",
    """CREATE TABLE tasks (job INTEGER NOT NULL, first INTEGER NOT NULL, tasks BLOB NOT NULL,
       PRIMARY KEY (job, first)) WITHOUT ROWID""",
    # A page for any combination of filters is read off one index.
    *(
        f"CREATE INDEX by_{'_'.join(columns)} ON jobs ({', '.join(columns)}, number)"
        for count in range(1, len(_FILTERS) + 1)
        for columns in itertools.combinations(_FILTERS, count)
    ),
    "CREATE INDEX by_key ON jobs (user, submission_key) WHERE submission_key != ''",
    """CREATE INDEX by_own_expiry ON jobs (ended_at + keep_s)
       WHERE expired_at IS NULL AND keep_s IS NOT NULL""",
    """CREATE INDEX by_default_expiry ON jobs (ended_at)
       WHERE expired_at IS NULL AND keep_s IS NULL""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedJob:
    """A job that has ended, without its tasks.

    `job` is as it was submitted, but without tasks and shards. `view` is what the API shows of it.
    Jobs are numbered in the order of their submission.
    """

    number: int
    job: Job
    state: str
    ended_at: float
    expired_at: float | None
    task_count: int
    view: dict[str, Any]


class Part(NamedTuple):
    """The nodes that had a part of a task's result when its job was archived."""

    size_bytes: int
    nodes: tuple[str, ...]
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTask:
    """A task: what the API shows of it, and its result by parts; None for one that is empty."""

    view: dict[str, Any]
    parts: tuple[Part | None, ...]


Record = tuple[ArchivedJob, Sequence[ArchivedTask]]

_CONFIG = ConfigDict(ser_json_inf_nan="constants")
# in a tuple, since a type that is configured already (a dataclass) takes no other configuration
_JOB = TypeAdapter(tuple[ArchivedJob], config=_CONFIG)
_TASKS = TypeAdapter(tuple[ArchivedTask, ...], config=_CONFIG)


class Archive:
    """One open archive, locked by this process; any thread may call it, one at a time: others wait.

    Every method raises WorldError when the disk or the file fails, and has then changed nothing.
    """

    def __init__(self, path: Path, database: Database) -> None:
        """Take over an open database; use `Archive.open`."""
        self._path, self._db = path, database
        self.expiries = 0
        """Grows whenever results of archived jobs have expired."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create an archive; WorldError as of `Database.open`, codes `archive_...`."""
        database = Database.open(
            path, "archive", schema=SCHEMA, oldest=SCHEMA, tables=_TABLES, if_earlier=_EARLIER
        )
        return cls(path, database)

    @property
    def last_number(self) -> int:
        """The highest number of a job, 0 without any."""
        ((number,),) = self._db.rows("SELECT max(number) FROM jobs")
        return number or 0

    def add(self, records: Sequence[Record]) -> None:
        """Make jobs durable, all or none; an archived one is replaced. O(their tasks)."""
        jobs = [_job_row(job) for job, _ in records]
        tasks = [row for job, tasks in records for row in _task_rows(job, tasks)]
        with self._db.transaction():  # holds up readers: all is encoded by now
            marks = ", ".join("?" * 10)
            self._db.change_many(f"INSERT OR REPLACE INTO jobs VALUES ({marks})", jobs)
            numbers = [(job.number,) for job, _ in records]
            self._db.change_many("DELETE FROM tasks WHERE job = ?", numbers)
            self._db.change_many("INSERT INTO tasks VALUES (?, ?, ?)", tasks)

    def find(self, job: str) -> ArchivedJob | None:
        """Return a job by its id, None where it is not archived."""
        rows = self._db.rows("SELECT number, expired_at, job FROM jobs WHERE id = ?", (job,))
        return self._job(rows[0]) if rows else None

    def page(
        self,
        *,
        user: str | None = None,
        queue: str | None = None,
        state: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[ArchivedJob]:
        """Return the jobs that match, the last submitted first, of numbers below `before`."""
        wanted: dict[str, Any] = {"user": user, "queue": queue, "state": state}
        given = {f"{name} = ?": value for name, value in wanted.items() if value is not None}
        if before is not None:
            given["number < ?"] = before
        where = f" WHERE {' AND '.join(given)}" if given else ""
        rows = self._db.rows(
            f"SELECT number, expired_at, job FROM jobs{where} ORDER BY number DESC LIMIT ?",
            (*given.values(), limit),
        )
        return [self._job(row) for row in rows]

    def _job(self, row: Row) -> ArchivedJob:
        number, expired_at, data = row
        job: ArchivedJob
        (job,) = self._unpacked(_JOB, data, number)
        return replace(job, expired_at=expired_at)

    def tasks(self, job: ArchivedJob, first: int, count: int) -> list[ArchivedTask]:
        """Return tasks of a job by their ordinals from `first` on; O(a thousand + those)."""
        rows = self._db.rows(
            "SELECT first, tasks FROM tasks WHERE job = ? AND first > ? AND first < ?"
            " ORDER BY first",
            (job.number, first - _TASKS_PER_ROW, first + count),
        )
        found = [task for _, data in rows for task in self._unpacked(_TASKS, data, job.number)]
        skipped = first - rows[0][0] if rows else 0
        return found[skipped : skipped + count]

    def task(self, job: ArchivedJob, ordinal: int) -> ArchivedTask:
        """Return a task of a job; raise SpecError `not_found`."""
        for task in self.tasks(job, ordinal, 1):
            return task
        raise no_task(job.job.id, ordinal, job.task_count)

    def with_key(self, user: str, key: str) -> str | None:
        """Return the id of the job that a user submitted under this key, if it is archived."""
        rows = self._db.rows(
            "SELECT id FROM jobs WHERE user = ? AND submission_key = ? AND submission_key != ''",
            (user, key),
        )
        return rows[0][0].decode() if rows else None

    def expired(self, jobs: Collection[str]) -> dict[str, bool]:
        """Return, for each of these jobs that is archived, whether its results have expired."""
        found: dict[str, bool] = {}
        for ids in _slices(tuple(jobs)):
            marks = ", ".join("?" * len(ids))
            query = f"SELECT id, expired_at IS NOT NULL FROM jobs WHERE id IN ({marks})"
            found.update((job.decode(), bool(over)) for job, over in self._db.rows(query, ids))
        return found

    def expiring(self, at: float, default_s: float, limit: int) -> list[ArchivedJob]:
        """Return jobs whose results expire by a time, but have not yet.

        `default_s` is how long those are kept that do not say so themselves.
        """
        query = "SELECT number, expired_at, job FROM jobs WHERE expired_at IS NULL AND"
        rows = self._db.rows(
            f"{query} keep_s IS NOT NULL AND ended_at + keep_s <= ?"
            " ORDER BY ended_at + keep_s LIMIT ?",
            (at, limit),
        )
        rows += self._db.rows(
            f"{query} keep_s IS NULL AND ended_at <= ? ORDER BY ended_at LIMIT ?",
            (at - default_s, limit),
        )
        return [self._job(row) for row in rows[:limit]]

    def expire(self, jobs: Sequence[ArchivedJob], at: float) -> None:
        """Record durably that the results of these jobs have expired."""
        with self._db.transaction():
            self._db.change_many(
                "UPDATE jobs SET expired_at = ? WHERE number = ?",
                ((at, job.number) for job in jobs),
            )
        self.expiries += 1

    def close(self) -> None:
        """Close the file; all added jobs are durable already."""
        self._db.close()

    def _unpacked(self, adapter: TypeAdapter[Any], data: bytes, number: int) -> Any:
        try:
            return adapter.validate_json(zlib.decompress(data), strict=True)
        except (zlib.error, ValidationError) as error:
            problem = f"job number {number} cannot be read: {str(error).partition(chr(10))[0]}"
            hint = "restore it from a copy; all other jobs can be read"
            raise file_error(self._path, "archive_damaged", problem, hint) from error


def _job_row(job: ArchivedJob) -> Row:
    spec = job.job
    return (
        *(job.number, spec.id, spec.user, spec.queue, job.state, spec.submission_key),
        *(job.ended_at, spec.keep_s, job.expired_at, _packed(_JOB, (job,))),
    )


def _task_rows(job: ArchivedJob, tasks: Sequence[ArchivedTask]) -> Iterator[Row]:
    for first in range(0, len(tasks), _TASKS_PER_ROW):
        yield job.number, first, _packed(_TASKS, tuple(tasks[first : first + _TASKS_PER_ROW]))


def _packed(adapter: TypeAdapter[Any], value: Any) -> bytes:
    return zlib.compress(adapter.dump_json(value, warnings="error"))


def _slices(ids: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), _IDS_PER_QUERY):
        yield ids[start : start + _IDS_PER_QUERY]
