"""The archive stores ended jobs, finds them by index, and lists results that expire."""

from __future__ import annotations

import math
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.base.errors import WorldError
from headgate.base.rng import stream
from headgate.journal import Archive, ArchivedJob, ArchivedTask, Part, Record
from headgate.model import Job, Program, ProgramType, Stage

PROGRAM = Program(
    stages=(Stage(first=0, count=3, program_type=ProgramType.COMMAND, run="x"),), envs={"A": "1"}
)
STATES = ("finished", "failed", "cancelled")


def record(number: int, *, state: str = "finished", tasks: int = 1, **more: object) -> Record:
    job = Job(
        id=f"j-{number}", name="j", user="ada", queue="default", tasks=(), number=number,
    )  # fmt: skip
    kept = ArchivedJob(
        number=number,
        job=replace(job, **more),  # type: ignore[arg-type]
        state=state,
        ended_at=100.0 * number,
        expired_at=None,
        task_count=tasks,
        view={"id": job.id, "wait_s": math.inf, "tasks": {"total": tasks}},
    )
    return kept, [
        ArchivedTask(view={"ordinal": n}, parts=(Part(n, (f"n{n % 3}",), False), None))
        for n in range(tasks)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
def archive(path: Path) -> Iterator[Archive]:
    with closing(Archive.open(path)) as opened:
        yield opened


def numbers(jobs: list[ArchivedJob]) -> list[int]:
    return [job.number for job in jobs]


def test_job_is_read_as_it_was_added(path: Path) -> None:
    kept = record(7, tasks=3, keep_s=math.inf, program=PROGRAM, public=True)
    with closing(Archive.open(path)) as archive:
        archive.add([kept, record(3)])
    with closing(Archive.open(path)) as archive:
        found = archive.find("j-7")
        assert found == kept[0]
        assert archive.tasks(found, 0, 10) == kept[1]
        assert archive.find("j-8") is None
        assert archive.last_number == 7
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_adding_twice_replaces(archive: Archive) -> None:
    archive.add([record(1, tasks=5), record(2)])
    again = record(1, tasks=2)
    archive.add([again])
    assert numbers(archive.page(limit=9)) == [2, 1]
    assert archive.tasks(again[0], 0, 9) == again[1]


def test_records_are_added_all_or_none(archive: Archive) -> None:
    bad = replace(record(2)[0], view={"x": object()})
    with pytest.raises(Exception, match="serialize"):
        archive.add([record(1), (bad, ())])
    assert archive.page(limit=9) == []


@pytest.mark.parametrize(("first", "count"), [(0, 1), (999, 2), (1500, 700), (2499, 9), (2500, 5)])
def test_tasks_are_read_by_their_ordinals(archive: Archive, first: int, count: int) -> None:
    archive.add([record(1, tasks=2500), record(2, tasks=5)])
    job = archive.find("j-1")
    assert job is not None
    expected = list(range(first, min(2500, first + count)))
    assert [task.view["ordinal"] for task in archive.tasks(job, first, count)] == expected


def test_pages_with_any_filters_hold_every_match_once_newest_first(archive: Archive) -> None:
    rng = stream(1, "jobs")
    jobs = [
        record(n, state=rng.choice(STATES), user=rng.choice("ab"), queue=rng.choice("pq"))
        for n in range(1, 60)
    ]
    archive.add(jobs)
    for user in (None, "a"):
        for queue in (None, "q"):
            for state in (None, "failed"):
                seen: list[int] = []
                before = None
                while page := archive.page(
                    user=user, queue=queue, state=state, before=before, limit=4
                ):
                    seen += numbers(page)
                    before = seen[-1]
                expected = [
                    job.number
                    for job, _ in reversed(jobs)
                    if user in (None, job.job.user)
                    and queue in (None, job.job.queue)
                    and state in (None, job.state)
                ]
                assert seen == expected


def test_no_query_reads_more_than_it_returns(path: Path) -> None:
    asked: list[str] = []
    with closing(Archive.open(path)) as archive:
        archive.add([record(n) for n in range(1, 9)])
        archive._db._connection.set_trace_callback(asked.append)
        some: list[dict[str, str]] = [{}, {"user": "a"}, {"queue": "q", "state": "s"}]
        some.append({"user": "a", "queue": "q", "state": "s"})
        for filters in some:
            archive.page(**filters, before=5, limit=2)  # type: ignore[arg-type]
        archive.find("j-1")
        archive.with_key("a", "k")
        archive.expired(["j-1", "j-2"])
        archive.expiring(1e9, 1.0, 5)
        archive.tasks(record(1)[0], 0, 5)
        archive._db._connection.set_trace_callback(None)
        for query in asked:
            plan = [row[3].decode() for row in archive._db.rows(f"EXPLAIN QUERY PLAN {query}")]
            assert all("SEARCH" in step for step in plan), (query, plan)
    assert len(asked) == 10


def test_job_is_found_by_its_users_submission_key(archive: Archive) -> None:
    archive.add([record(1, submission_key="k"), record(2)])
    assert archive.with_key("ada", "k") == "j-1"
    assert archive.with_key("grace", "k") is None
    assert archive.with_key("ada", "") is None


def test_results_expire_by_their_own_time_or_the_default(archive: Archive) -> None:
    archive.add(
        [record(1), record(2, keep_s=50.0), record(3, keep_s=math.inf), record(4, keep_s=5e3)]
    )
    assert archive.expiring(249.0, math.inf, 9) == []
    assert numbers(archive.expiring(250.0, math.inf, 9)) == [2]
    assert sorted(numbers(archive.expiring(1000.0, 900.0, 9))) == [1, 2]
    assert len(archive.expiring(1e9, 1.0, 2)) == 2
    archive.expire(archive.expiring(1000.0, 900.0, 9), 1000.0)
    assert numbers(archive.expiring(1e9, 1.0, 9)) == [4]
    found = archive.find("j-1")
    assert found is not None
    assert found.expired_at == 1000.0
    ids = [f"j-{n}" for n in range(1, 2000)]
    assert archive.expired(ids) == {"j-1": True, "j-2": True, "j-3": False, "j-4": False}


def test_pages_are_read_while_jobs_are_added(archive: Archive) -> None:
    adding = threading.Thread(
        target=lambda: [archive.add([record(n, tasks=50)]) for n in range(1, 60)]
    )
    adding.start()
    while adding.is_alive():
        found = numbers(archive.page(limit=5))
        assert found == list(range(len(found) and found[0], 0, -1))[:5]
    adding.join()
    assert archive.last_number == 59


def test_damaged_job_is_named_and_others_are_read(path: Path) -> None:
    with closing(Archive.open(path)) as archive:
        archive.add([record(1), record(2)])
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute("UPDATE jobs SET job = substr(job, 1, 20) || x'00' WHERE number = 1")
    with closing(Archive.open(path)) as archive:
        assert archive.find("j-2") is not None
        with pytest.raises(WorldError, match="job number 1 cannot be read") as damaged:
            archive.find("j-1")
        assert damaged.value.code == "archive_damaged"


def test_archive_of_another_schema_or_another_process_is_rejected(path: Path) -> None:
    with closing(Archive.open(path)):
        with pytest.raises(WorldError) as held:
            Archive.open(path)
        assert held.value.code == "archive_locked"
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute("PRAGMA user_version = 99")
    with pytest.raises(WorldError, match=r"not an archive of schema 1.*a later Headgate") as other:
        Archive.open(path)
    assert other.value.code == "archive_version"
