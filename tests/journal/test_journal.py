"""A journal keeps events and their batches in order, and snapshots while they can be trusted."""

from __future__ import annotations

import sqlite3
import stat
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
def test_batches_come_back_whole_and_in_order_after_any_restarts(
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


def test_only_one_may_hold_it(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        with pytest.raises(WorldError, match="stop that one first") as refused:
            Journal.open(path)
        assert refused.value.code == "journal_locked"
        assert journal.append(losses(0, 2)) == 2
    with closing(Journal.open(path)) as journal:
        assert journal.append(losses(2, 1)) == 3


def test_only_its_owner_may_read_it(journal: Journal, path: Path) -> None:
    journal.append(losses(0, 1))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


# ---------------------------------------------------------------------------- files that are wrong


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "journal.db"):
        with pytest.raises(WorldError) as refused:
            Journal.open(path)
        assert refused.value.code == "journal_unusable"
        assert str(path) in str(refused.value)


def test_a_file_that_is_no_journal_is_left_alone(path: Path) -> None:
    path.write_bytes(b"names of my cats\n" * 100)
    with pytest.raises(WorldError) as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"
    assert path.read_bytes() == b"names of my cats\n" * 100


def test_a_database_of_somebody_else_is_left_alone(path: Path) -> None:
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
def test_a_journal_of_another_schema_is_refused_and_says_which(
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


def test_a_spoilt_snapshot_gives_way_to_the_one_before_it(path: Path) -> None:
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


def test_a_snapshot_of_what_has_not_happened_is_refused(journal: Journal) -> None:
    journal.append(losses(0, 3))
    with pytest.raises(InvariantBroken):
        journal.save_snapshot(4, b"four")
    assert list(journal.snapshots()) == []
