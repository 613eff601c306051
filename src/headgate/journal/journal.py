"""The durable record: the events of a live world, in order, in one SQLite file.

Events are the truth; everything else can be made from them again. A batch of events is one
transaction and one fsync, so after a crash the file holds whole batches and nothing else. A chain
of checksums runs over all batches, and the number of the last one is also kept in a small file
beside the journal: so a changed byte is found when the journal is opened, and so is an end that is
missing. Snapshots keep recovery short; they are no second truth.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Self

from headgate.base.errors import InvariantBroken, Problem, WorldError
from headgate.journal.codec import decode, encode
from headgate.journal.tail import Tail
from headgate.protocol import Event

SCHEMA = 2
"""Number of the schema: what events mean, the transitions of the machine included, and how it is
all stored. 1 named commands by a counter; its events cannot be read any more."""

_ROWS_PER_PAGE = 1000
_SNAPSHOTS_KEPT = 2

# `batch` is the sequence number of the batch's last event.
_EVENTS = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, event TEXT NOT NULL)"
)
_BATCHES = "CREATE TABLE batches (batch INTEGER PRIMARY KEY, chain BLOB NOT NULL)"
_SNAPSHOTS = """CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, checksum BLOB NOT NULL,
                state BLOB NOT NULL)"""

# SQLite's primary result codes, by what a person can do about them.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Journal:
    """One open journal, held alone: nobody else can open it before `close()` or the process's end.

    Any thread may call it, one at a time: others wait. Every method raises WorldError when the disk
    or the file fails, and has then changed nothing; the journal can be used again once there is
    room. `missing_events` is how many events at its end were written and are not there any more.
    """

    def __init__(self, path: Path, database: sqlite3.Connection, tail: Tail) -> None:
        """Take over an open database; use `Journal.open`."""
        self._path = path
        self._db = database
        self._tail = tail
        self._lock = threading.RLock()
        self._last, self._chain = 0, _NO_CHAIN
        self.missing_events = 0

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create a journal, and check all of it against its checksums; O(events).

        WorldError with code `journal_locked` if another process holds it, `journal_version` if it
        is of another schema, `journal_damaged` if it is not what was written.
        """
        try:
            # Jobs name programs and variables: their users' business only.
            path.touch(mode=0o600)
            tail = Tail(path)
        except OSError as error:
            raise _world_error(path, "journal_unusable", str(error), "is it a file?") from error
        try:
            with _told(path):
                database = sqlite3.connect(
                    path, timeout=0, isolation_level=None, check_same_thread=False
                )
            database.text_factory = bytes  # text that is no UTF-8 is for us to report
        except BaseException:
            tail.close()
            raise
        journal = cls(path, database, tail)
        try:
            journal._prepare()
            journal._verify()
        except BaseException:
            journal.close()
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
            (schema,) = self._db.execute("PRAGMA user_version").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if schema == 0 and tables == 0:
                for table in (_EVENTS, _BATCHES, _SNAPSHOTS):
                    self._db.execute(table)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            elif schema != SCHEMA:
                raise _other_schema(self._path, schema)

    def _verify(self) -> None:
        """Check every batch against the chain, and the last one against the tail."""
        with _told(self._path):
            rows = self._db.execute("SELECT batch, chain FROM batches ORDER BY batch").fetchall()
        kept = self._tail.read() or (0, _NO_CHAIN)
        chains = dict(rows)
        for batch, group in itertools.groupby(self._texts(0), key=itemgetter(1)):
            self._chain = _chained(self._chain, batch, [text for _, _, text in group])
            if chains.pop(batch, None) != self._chain:
                raise self._damaged(f"the batch that ends with event {batch} is not as written")
            self._last = batch
        if chains:
            raise self._damaged(f"the events of batch {min(chains)} are missing")
        if kept[0] == self._last and kept[1] != self._chain:
            raise self._damaged(f"the last batch, which ends with event {kept[0]}, has changed")
        self.missing_events = max(0, kept[0] - self._last)

    def _damaged(self, problem: str) -> WorldError:
        whole = f"events 1 to {self._last} are whole" if self._last else "no batch is whole"
        hint = f"{whole}; restore it from a copy, or name another file"
        return _world_error(self._path, "journal_damaged", problem, hint)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, _told(self._path):
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
        texts = [encode(event).encode() for event in events]
        if not texts:
            return self._last
        first, last = self._last + 1, self._last + len(texts)
        chain = _chained(self._chain, last, texts)
        with self._transaction():
            rows = ((seq, last, text) for seq, text in enumerate(texts, start=first))
            self._db.executemany("INSERT INTO events VALUES (?, ?, CAST(? AS TEXT))", rows)
            self._db.execute("INSERT INTO batches VALUES (?, ?)", (last, chain))
        self._last, self._chain = last, chain
        self._tail.write(last, chain)
        return last

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield (sequence number, event) of every event after a sequence number, in order."""
        for seq, _, event in self._rows(after):
            yield seq, event

    def batches(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...]]]:
        """Yield (last sequence number, events) of every batch after one's last, as appended."""
        for batch, rows in itertools.groupby(self._rows(after), key=itemgetter(1)):
            yield batch, tuple(event for _, _, event in rows)

    def _rows(self, after: int) -> Iterator[tuple[int, int, Event]]:
        for seq, batch, text in self._texts(after):
            yield seq, batch, self._decoded(seq, text)

    def _texts(self, after: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield (seq, batch, event); page by page, so that others may append between two."""
        while True:
            with self._lock, _told(self._path):
                page = self._db.execute(
                    "SELECT seq, batch, event FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                    (after, _ROWS_PER_PAGE),
                ).fetchall()
            yield from page
            if len(page) < _ROWS_PER_PAGE:
                return
            after = page[-1][0]

    def _decoded(self, seq: int, text: bytes) -> Event:
        try:
            return decode(text.decode())
        except ValueError as error:
            hint = "was it written by a later Headgate?"
            problem = f"event {seq} cannot be read: {error}"
            raise _world_error(self._path, "journal_damaged", problem, hint) from error

    def save_snapshot(self, seq: int, state: bytes) -> None:
        """Keep the state after event `seq`; only the latest two snapshots are kept."""
        if not 0 <= seq <= self._last:
            raise InvariantBroken(f"a snapshot after event {seq} of {self._last}")
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, _checksum(state), state)
            )
            self._db.execute(
                "DELETE FROM snapshots WHERE seq NOT IN"
                " (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (_SNAPSHOTS_KEPT,),
            )

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """Yield (seq, state) of every snapshot that is whole, the latest first."""
        with self._lock, _told(self._path):
            rows = self._db.execute(
                "SELECT seq, state, checksum FROM snapshots WHERE seq <= ? ORDER BY seq DESC",
                (self._last,),
            ).fetchall()
        for seq, state, checksum in rows:
            if _checksum(state) == checksum:
                yield seq, state

    def close(self) -> None:
        """Let go of the file; what was appended is durable already."""
        with self._lock, _told(self._path):
            self._db.close()
            self._tail.close()


_NO_CHAIN = b""


def _chained(chain: bytes, batch: int, texts: Sequence[bytes]) -> bytes:
    """Return the checksum of a batch: of that of the batch before it, and of all its events."""
    digest = hashlib.blake2b(chain, digest_size=16)
    digest.update(batch.to_bytes(8))
    for text in texts:
        digest.update(len(text).to_bytes(8))
        digest.update(text)
    return digest.digest()


def _checksum(state: bytes) -> bytes:
    return hashlib.blake2b(state, digest_size=16).digest()


def _other_schema(path: Path, schema: int) -> WorldError:
    if 0 < schema < SCHEMA:
        hint = (
            "it is of an earlier Headgate, whose jobs this one cannot go on with: let that one "
            "finish them, or move the file away to begin anew"
        )
    elif schema > SCHEMA:
        hint = "it is of a later Headgate: use that one, or name another file"
    else:
        hint = "name another file"
    return _world_error(path, "journal_version", f"is not a journal of schema {SCHEMA}", hint)


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
