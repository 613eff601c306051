"""A changed byte and a missing end are found when a journal is opened, and never replayed."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headgate.base.errors import WorldError
from headgate.base.rng import stream
from headgate.journal import Journal
from headgate.protocol import NodeLost

DAMAGED = ("journal_damaged", "journal_unusable", "journal_version")


def losses(first: int, count: int) -> tuple[NodeLost, ...]:
    return tuple(NodeLost(at=n / 3, node=f"node-{n}") for n in range(first, first + count))


def written(path: Path, *sizes: int, cut: int = 0) -> None:
    """Append batches of these sizes, delete the events up to `cut`, and leave all in one file."""
    with closing(Journal.open(path)) as journal:
        last = 0
        for size in sizes:
            last = journal.append(losses(last, size))
        if cut:
            journal.save_snapshot(cut, b"older" * 50)
            journal.save_snapshot(last, b"newer" * 50)
            journal.cut()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.mark.parametrize("cut", [0, 50])
def test_any_flipped_bit_is_found_or_changes_no_event(path: Path, cut: int) -> None:
    written(path, *[5] * 60, cut=cut)
    good, rng = path.read_bytes(), stream(1, "bits")
    refused = 0
    for _ in range(150):
        bit = rng.randrange(len(good) * 8)
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            with closing(Journal.open(path)) as journal:
                assert [event for _, event in journal.events()] == list(losses(cut, 300 - cut))
        except WorldError as error:
            refused += error.code in DAMAGED
    assert refused > 50, "most bytes of the file are of events"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET event = replace(event, 'node-7', 'node-8') WHERE seq = 8",
        "DELETE FROM events WHERE seq = 8",
        "DELETE FROM events WHERE batch = 10",
        "DELETE FROM batches WHERE batch = 10",
        "UPDATE events SET batch = 15 WHERE batch = 10",
        "UPDATE batches SET chain = x'00' WHERE batch = 10",
        "UPDATE events SET event = CAST(x'ff' AS TEXT) WHERE seq = 8",
    ],
)
def test_a_changed_batch_is_named_with_what_is_whole_before_it(path: Path, change: str) -> None:
    written(path, 5, 5, 5, 5)
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute(change)
    with pytest.raises(WorldError, match="events 1 to 5 are whole") as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET event = replace(event, 'node-17', 'node-18') WHERE seq = 18",
        "DELETE FROM events WHERE batch = 20",
        "DELETE FROM batches WHERE batch = 20",
        "UPDATE batches SET chain = x'00' WHERE batch = 20",
    ],
)
def test_changed_batch_after_a_cut_is_named_with_what_is_whole_before_it(
    path: Path, change: str
) -> None:
    written(path, 5, 5, 5, 5, 5, cut=10)
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute(change)
    with pytest.raises(WorldError, match="events 11 to 15 are whole") as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM anchor",
        "UPDATE anchor SET chain = x'00'",
        "UPDATE anchor SET batch = 5",
        "DELETE FROM events WHERE batch = 15",
        "INSERT INTO events VALUES (3, 10, '[]')",
    ],
)
def test_damage_at_the_place_of_the_cut_is_found(path: Path, change: str) -> None:
    written(path, 5, 5, 5, 5, cut=10)
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute(change)
    with pytest.raises(WorldError) as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"


def test_a_last_batch_that_was_replaced_is_found(path: Path, tmp_path: Path) -> None:
    written(path, 5, 5)
    other = tmp_path / "other.db"
    with closing(Journal.open(other)) as journal:
        journal.append(losses(0, 5))
        journal.append(losses(90, 5))
    shutil.copyfile(other, path)
    with pytest.raises(WorldError, match="has changed") as refused:
        Journal.open(path)
    assert refused.value.code == "journal_damaged"


@pytest.mark.parametrize("start", [0, 10])
@pytest.mark.parametrize("damage", ["removed", "cut", "spoilt"])
def test_missing_end_is_counted_and_the_rest_is_usable(
    path: Path, tmp_path: Path, damage: str, start: int
) -> None:
    if start:  # events were deleted before
        written(path, start, 5, cut=start)
    journal = Journal.open(path)
    last = journal.append(losses(start, 5)) if not start else start + 5
    journal._db.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    for _ in range(4):
        last = journal.append(losses(last, 5))
    copy = tmp_path / "crashed" / "journal.db"
    copy.parent.mkdir()
    for file in path.parent.glob("journal.db*"):  # as a crash would leave them
        shutil.copyfile(file, copy.parent / file.name)
    journal.close()
    wal = copy.with_name("journal.db-wal")
    if damage == "removed":
        wal.unlink()
    else:
        data = bytearray(wal.read_bytes())
        half = len(data) // 2
        data[half] ^= 0xFF
        wal.write_bytes(data[:half] if damage == "cut" else data)
    with closing(Journal.open(copy)) as opened:
        events = [event for _, event in opened.events()]
        assert opened.missing_events == 25 - len(events) > 0
        assert events == list(losses(start, len(events)))
        assert len(events) % 5 == 0, "batches are whole"
        assert opened.append(losses(0, 30)) == start + len(events) + 30
    with closing(Journal.open(copy)) as opened:
        assert opened.missing_events == 0, "after the next append there is no gap"


def test_tail_that_is_behind_or_missing_does_no_harm(path: Path) -> None:
    written(path, 5)
    tail = path.with_name("journal.db.last")
    old = tail.read_bytes()
    with closing(Journal.open(path)) as journal:
        journal.append(losses(5, 5))
    for content in (old, b"", b"nonsense", b"7 zz\n"):
        tail.write_bytes(content)
        with closing(Journal.open(path)) as journal:
            assert journal.missing_events == 0
            assert len(list(journal.events())) == 10
