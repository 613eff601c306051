"""The journal stores events and batches in order, and snapshots with checksums."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import InvariantBroken, WorldError
from headgate.journal import Journal
from headgate.protocol import NodeLost


def losses(first: int, count: int) -> tuple[NodeLost, ...]:
    return tuple(NodeLost(at=n / 3, node=f"n{n}") for n in range(first, first + count))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with closing(Journal.open(path)) as opened:
        yield opened


@given(lives=st.lists(st.lists(st.integers(0, 5))))
def test_batches_are_read_whole_and_in_order_after_any_restarts(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    expected, last = [], 0
    for life in lives:
        with closing(Journal.open(path)) as journal:
            for count in life:
                batch = losses(last, count)
                last += count
                assert journal.append(batch) == last
                if batch:
                    expected.append((last, batch))
    with closing(Journal.open(path)) as journal:
        assert list(journal.batches()) == expected
        assert list(journal.events()) == list(enumerate(losses(0, last), start=1))
        for after, _ in expected:
            assert list(journal.batches(after)) == [b for b in expected if b[0] > after]
            assert [seq for seq, _ in journal.events(after)] == list(range(after + 1, last + 1))


def test_a_batch_longer_than_a_page_is_one_batch(journal: Journal) -> None:
    journal.append(losses(0, 999))
    journal.append(losses(999, 2500))
    journal.append(losses(3499, 1))
    sizes = [(last, len(events)) for last, events in journal.batches()]
    assert sizes == [(999, 999), (3499, 2500), (3500, 1)]


def test_events_may_be_appended_while_others_are_read(journal: Journal) -> None:
    journal.append(losses(0, 1000))
    reading = journal.events()
    next(reading)
    journal.append(losses(1000, 5))
    assert [event for _, event in reading] == list(losses(1, 1004))


def test_second_opener_is_rejected(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        with pytest.raises(WorldError, match="stop that one first") as refused:
            Journal.open(path)
        assert refused.value.code == "journal_locked"
        assert journal.append(losses(0, 2)) == 2
    with closing(Journal.open(path)) as journal:
        assert journal.append(losses(2, 1)) == 3


def test_file_is_readable_by_its_owner_only(journal: Journal, path: Path) -> None:
    journal.append(losses(0, 1))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


# ---------------------------------------------------------------------------- files that are wrong


def test_path_that_cannot_be_a_file_is_rejected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "journal.db"):
        with pytest.raises(WorldError) as refused:
            Journal.open(path)
        assert refused.value.code == "journal_unusable"
        assert str(path) in str(refused.value)


def test_file_that_is_no_journal_is_not_changed(path: Path) -> None:
    path.write_bytes(b"names of my cats\n" * 100)
    with pytest.raises(WorldError) as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"
    assert path.read_bytes() == b"names of my cats\n" * 100


def test_foreign_database_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE cats (name TEXT)")
    with pytest.raises(WorldError, match="not a journal") as refused:
        Journal.open(path)
    assert refused.value.code == "journal_version"
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("cats",)]


def test_an_event_that_cannot_be_read_names_its_place(path: Path, monkeypatch: Any) -> None:
    later = '["JobRenamed",{"at":1.0}]'
    with closing(Journal.open(path)) as journal:
        journal.append(losses(0, 1))
        monkeypatch.setattr("headgate.journal.journal.encode", lambda event: later)
        journal.append(losses(1, 1))
        monkeypatch.undo()
        journal.append(losses(2, 1))
    with closing(Journal.open(path)) as journal:
        with pytest.raises(WorldError, match=r"event 2 cannot be read: unknown kind") as refused:
            list(journal.events())
        assert refused.value.code == "journal_damaged"
        assert refused.value.problems[0].path == str(path)
        assert list(journal.events(after=2)) == [(3, losses(2, 1)[0])]


@pytest.mark.parametrize(("schema", "hint"), [(1, "an earlier Headgate"), (99, "a later Headgate")])
def test_journal_of_another_schema_is_rejected_with_both_numbers(
    path: Path, schema: int, hint: str
) -> None:
    with closing(Journal.open(path)) as journal:
        journal.append(losses(0, 2))
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute(f"PRAGMA user_version = {schema}")
    with pytest.raises(WorldError, match=hint) as refused:
        Journal.open(path)
    assert refused.value.code == "journal_version"


# ---------------------------------------------------------------------------- snapshots


def test_the_latest_snapshots_come_first(journal: Journal) -> None:
    journal.append(losses(0, 9))
    assert list(journal.snapshots()) == []
    journal.save_snapshot(3, b"three")
    journal.save_snapshot(5, b"five")
    assert list(journal.snapshots()) == [(5, b"five"), (3, b"three")]


def test_two_snapshots_are_kept(journal: Journal) -> None:
    journal.append(losses(0, 9))
    for seq in (2, 4, 6, 6, 8):
        journal.save_snapshot(seq, b"state %d" % seq)
    assert list(journal.snapshots()) == [(8, b"state 8"), (6, b"state 6")]


def test_damaged_snapshot_is_skipped_for_the_one_before_it(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.append(losses(0, 9))
        journal.save_snapshot(5, b"five" * 9)
        journal.save_snapshot(7, b"seven" * 9)
    for state, left in ((b"seven" * 9, [(5, b"five" * 9)]), (b"five" * 9, [])):
        held = path.read_bytes()
        assert held.count(state) == 1
        path.write_bytes(held.replace(state, b"x" + state[1:]))
        with closing(Journal.open(path)) as journal:
            assert list(journal.snapshots()) == left
            assert len(list(journal.events())) == 9


def test_snapshot_after_the_last_event_is_rejected(journal: Journal) -> None:
    journal.append(losses(0, 3))
    with pytest.raises(InvariantBroken):
        journal.save_snapshot(4, b"four")
    assert list(journal.snapshots()) == []


# ---------------------------------------------------------------------------- old events


def test_events_before_the_older_snapshot_are_deleted_and_numbers_continue(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        for first in range(0, 40, 4):
            journal.append(losses(first, 4))
        journal.save_snapshot(20, b"older")
        journal.cut()
        assert journal.first_kept == 1, "with one snapshot alone nothing is deleted"
        journal.save_snapshot(30, b"newer")  # in the middle of a batch
        journal.cut()
        assert journal.first_kept == 21
        kept = [seq for seq, _ in journal.events()]
        journal.append(losses(40, 2))
    for _ in range(2):
        with closing(Journal.open(path)) as journal:
            assert journal.first_kept == 21
            assert [seq for seq, _ in journal.events()] == [*kept, 41, 42] == [*range(21, 43)]
            assert [seq for seq, _ in journal.snapshots()] == [30, 20]
            assert list(journal.batches(after=36)) == [(40, losses(36, 4)), (42, losses(40, 2))]


def test_nothing_is_deleted_while_a_snapshot_is_damaged(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.append(losses(0, 9))
        journal.append(losses(9, 9))
        journal.save_snapshot(9, b"older" * 9)
        journal.save_snapshot(18, b"newer" * 9)
    held = path.read_bytes()
    path.write_bytes(held.replace(b"older" * 9, b"x" * 45))
    with closing(Journal.open(path)) as journal:
        journal.cut()
        assert journal.first_kept == 1


def test_a_batch_larger_than_one_cut_is_deleted_whole(journal: Journal) -> None:
    for first, count in ((0, 2500), (2500, 1), (2501, 1200), (3701, 10)):
        journal.append(losses(first, count))
    journal.save_snapshot(3701, b"older")
    journal.save_snapshot(3711, b"newer")
    journal.cut()
    assert [seq for seq, _ in journal.events()] == [*range(3702, 3712)]


def test_opening_reads_only_the_events_kept(path: Path, monkeypatch: Any) -> None:
    read = 0
    texts = Journal._texts

    def counted(journal: Journal, after: int) -> Iterator[tuple[int, int, bytes]]:
        nonlocal read
        for row in texts(journal, after):
            read += 1
            yield row

    with closing(Journal.open(path)) as journal:
        for first in range(0, 3000, 100):
            journal.append(losses(first, 100))
            journal.save_snapshot(first + 100, b"state")
            journal.cut()
    monkeypatch.setattr(Journal, "_texts", counted)
    with closing(Journal.open(path)):
        assert read == 100


def test_a_writer_appends_while_old_events_are_deleted(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        last = journal.append(losses(0, 5000))
        journal.save_snapshot(last, b"older")
        for _ in range(20):
            last = journal.append(losses(last, 300))
        journal.save_snapshot(last, b"newer")
        cutting = threading.Thread(target=journal.cut)
        cutting.start()
        for _ in range(20):
            last = journal.append(losses(last, 1))
        cutting.join(60)
        assert not cutting.is_alive()
    with closing(Journal.open(path)) as journal:
        assert [seq for seq, _ in journal.events()] == [*range(5001, last + 1)]
