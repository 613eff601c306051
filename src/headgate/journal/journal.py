"""The durable record: the events of a live world, in order, in one SQLite file.

Events are the truth; everything else can be made from them again. A batch of events is one
transaction and one fsync, so after a crash the file holds whole batches and nothing else. Snapshots
are a cache that keeps recovery short, never a second truth.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Self

from headgate.base.errors import InvariantBroken, Problem, WorldError
from headgate.journal.codec import decode, encode
from headgate.protocol import Event

_VERSION = 1
_ROWS_PER_PAGE = 1000
_SNAPSHOTS_KEPT = 2

# `batch` is the sequence number of the batch's last event.
_EVENTS = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, event TEXT NOT NULL)"
)
_SNAPSHOTS = """CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL,
                checksum TEXT NOT NULL, state BLOB NOT NULL)"""

# SQLite's primary result codes, by what a person can do about them.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Journal:
    """One open journal, held alone: nobody else can open it before `close()` or the process's end.

    One caller at a time, from any thread. Every method raises WorldError when the disk or the file
    fails, and has then changed nothing; the journal can be used again once there is room.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Take over an open database; use `Journal.open`."""
        self._path = path
        self._db = database

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create a journal; WorldError with code `journal_locked` if somebody holds it."""
        try:
            # Jobs name programs and variables: their users' business only.
            path.touch(mode=0o600)
            database = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise _world_error(path, "journal_unusable", str(error), "is it a file?") from error
        journal = cls(path, database)
        try:
            journal._prepare()
        except BaseException:
            database.close()
            raise
        return journal

    def _prepare(self) -> None:
        with _told(self._path):
            # Exclusive for as long as it is open. It also keeps SQLite from mapping shared memory,
            # where a full disk would end the process instead of failing a call.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if version == 0 and tables == 0:
                self._db.execute(_EVENTS)
                self._db.execute(_SNAPSHOTS)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
            elif version != _VERSION:
                raise _world_error(
                    self._path,
                    "journal_version",
                    f"is not a journal of version {_VERSION}",
                    "name another file, or use the Headgate that wrote it",
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def append(self, events: Sequence[Event]) -> int:
        """Make one batch durable, whole or not at all; return the last sequence number.

        Sequence numbers are dense from 1. WorldError with code `journal_full` when the disk is full
        or fails.
        """
        texts = [encode(event) for event in events]
        with self._transaction():
            first = self._last() + 1
            last = first + len(texts) - 1
            rows = ((seq, last, text) for seq, text in enumerate(texts, start=first))
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        return last

    def _last(self) -> int:
        row: tuple[int] = self._db.execute("SELECT ifnull(max(seq), 0) FROM events").fetchone()
        return row[0]

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield (sequence number, event) of every event after a sequence number, in order."""
        for seq, _, event in self._rows(after):
            yield seq, event

    def batches(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...]]]:
        """Yield (last sequence number, events) of every batch after one's last, as appended."""
        for batch, rows in itertools.groupby(self._rows(after), key=itemgetter(1)):
            yield batch, tuple(event for _, _, event in rows)

    def _rows(self, after: int) -> Iterator[tuple[int, int, Event]]:
        """Yield (seq, batch, event); page by page, so that others may append between two."""
        while True:
            with _told(self._path):
                page = self._db.execute(
                    "SELECT seq, batch, event FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                    (after, _ROWS_PER_PAGE),
                ).fetchall()
            for seq, batch, text in page:
                yield seq, batch, self._decoded(seq, text)
            if len(page) < _ROWS_PER_PAGE:
                return
            after = page[-1][0]

    def _decoded(self, seq: int, text: str) -> Event:
        try:
            return decode(text)
        except ValueError as error:
            raise _world_error(
                self._path,
                "journal_damaged",
                f"event {seq} cannot be read: {error}",
                "was it written by a later Headgate?",
            ) from error

    def save_snapshot(self, seq: int, state: bytes, fingerprint: str) -> None:
        """Keep the state after event `seq`, as the code of this fingerprint writes it.

        Only the latest two snapshots are kept.
        """
        with self._transaction():
            if not 0 <= seq <= self._last():
                raise InvariantBroken(f"a snapshot after event {seq} of {self._last()}")
            self._db.execute(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
                (seq, fingerprint, _checksum(state), state),
            )
            self._db.execute(
                "DELETE FROM snapshots WHERE seq NOT IN"
                " (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (_SNAPSHOTS_KEPT,),
            )

    def latest_snapshot(self, fingerprint: str) -> tuple[int, bytes] | None:
        """Return (seq, state) of the latest whole snapshot that this very code wrote, if any."""
        with _told(self._path):
            rows = self._db.execute(
                "SELECT seq, state, checksum FROM snapshots WHERE fingerprint = ?"
                " ORDER BY seq DESC",
                (fingerprint,),
            ).fetchall()
        for seq, state, checksum in rows:
            if _checksum(state) == checksum:
                return seq, state
        return None

    def close(self) -> None:
        """Let go of the file; what was appended is durable already."""
        with _told(self._path):
            self._db.close()


def _checksum(state: bytes) -> str:
    return hashlib.blake2b(state, digest_size=16).hexdigest()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what SQLite says into what a person can act on."""
    try:
        yield
    except sqlite3.Error as error:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # without the detail in upper bits
            case code if code in _NO_ROOM:
                kind, hint = "journal_full", "make room on its disk; nothing was lost"
            case code if code in _HELD:
                kind, hint = "journal_locked", "another controller holds it; stop that one first"
            case code if code in _DAMAGED:
                kind, hint = "journal_damaged", "restore it from a copy, or name another file"
            case 0:
                raise  # not of the outside: a wrong use of the database
            case _:
                kind, hint = "journal_unusable", "is the file readable and writable?"
        raise _world_error(path, kind, str(error), hint) from error


def _world_error(path: Path, code: str, problem: str, hint: str) -> WorldError:
    return WorldError([Problem(path=str(path), problem=problem, hint=hint)], code=code)
