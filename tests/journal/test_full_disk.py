"""A full disk: nothing is half-done, and the journal can be used again once there is room."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from headgate.base.errors import WorldError
from headgate.journal import Journal
from headgate.protocol import JobCancelled

Shortage = Callable[[Path, Journal], AbstractContextManager[None]]


def batch(number: int) -> tuple[JobCancelled, ...]:
    return tuple(JobCancelled(at=number, job=f"job-{n}", by="x" * 400) for n in range(20))


@contextmanager
def few_pages(_: Path, journal: Journal) -> Iterator[None]:
    """SQLite's own limit: SQLITE_FULL without a full disk."""
    ((pages,),) = journal._db.rows("PRAGMA page_count")
    journal._db.rows(f"PRAGMA max_page_count = {pages + 12}")
    yield
    journal._db.rows("PRAGMA max_page_count = 1000000")


@contextmanager
def short_files(path: Path, _: Journal) -> Iterator[None]:
    """The kernel refuses a write in the middle: an I/O error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = path.with_name(path.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (written + 50_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def full_disk(path: Path, _: Journal) -> Iterator[None]:
    """Other files take all that is left of the file system but a little."""
    ballast = path.with_name("ballast")
    with ballast.open("wb") as file:
        room = os.statvfs(path.parent)
        file.write(bytes(room.f_bavail * room.f_bsize - 50_000))
    yield
    ballast.unlink()


def outlive(path: Path, shortage: Shortage) -> None:
    with closing(Journal.open(path)) as journal:
        kept = [(journal.append(batch(0)), batch(0))]
        journal.save_snapshot(20, b"small")
        with shortage(path, journal):
            with pytest.raises(WorldError, match="make room") as refused:
                kept.extend((journal.append(batch(n)), batch(n)) for n in range(1, 100))
            assert refused.value.code == "journal_full"
            with pytest.raises(WorldError, match="make room"):
                journal.save_snapshot(20, bytes(2_000_000))
            assert len(kept) < 100
            assert list(journal.batches()) == kept
            assert list(journal.snapshots()) == [(20, b"small")]
        kept.append((journal.append(batch(100)), batch(100)))
        journal.save_snapshot(40, bytes(2_000_000))
        assert list(journal.batches()) == kept
    with closing(Journal.open(path)) as journal:
        assert list(journal.batches()) == kept
        assert next(journal.snapshots()) == (40, bytes(2_000_000))


@pytest.mark.parametrize("shortage", [few_pages, short_files])
def test_journal_survives_a_quota(tmp_path: Path, shortage: Shortage) -> None:
    outlive(tmp_path / "journal.db", shortage)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_journal_survives_a_full_disk(small_disk: Path) -> None:
    outlive(small_disk / "journal.db", full_disk)


@pytest.mark.root
def test_journal_that_could_not_be_created_can_be_opened_later(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 << 20))
    with pytest.raises(WorldError, match="make room") as refused:
        Journal.open(path)
    assert refused.value.code == "journal_full"
    ballast.unlink()
    with closing(Journal.open(path)) as journal:
        assert journal.append(batch(0)) == 20
