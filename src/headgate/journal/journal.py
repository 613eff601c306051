"""The journal: the events of a live world, in order, in one SQLite file.

All other state can be rebuilt from the events. A batch of events is one
transaction and one fsync, so after a crash the file holds whole batches and nothing else. A chain
of checksums runs over all batches, and the number of the last one is also kept in a small file
beside the journal: so opening the journal finds a changed byte and a missing end. Snapshots keep
recovery short, and allow events to be deleted: those before the older of the two snapshots kept,
at the last of which the chain is anchored.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Self

from headgate.base.errors import InvariantBroken, WorldError
from headgate.journal.codec import decode, encode
from headgate.journal.database import Database, file_error
from headgate.journal.tail import Tail
from headgate.protocol import Event

SCHEMA = 9
"""Number of the schema: what events say and mean, the transitions of the machine included, and how
it is all stored. A change of what events can say needs a new one, so that earlier releases reject
the journal instead of failing at an event. 1 named commands by a counter; its events cannot be read
any more. 2 had no moves, topologies, draining, scaling, items, nor GPUs of other programs; 3 no
working directories that the nodes share, and no jobs for certain models of GPUs or nodes; in 4 no
task was cancelled alone; 5 had no hardened units; 6 not what declared times mean; 7 not under which
policy a unit hardened; 8 no labels of nodes, and no tree of queues."""

_OLDEST = 2  # its events, and those of later schemas, are read unchanged

_EARLIER = (
    "this one cannot continue its jobs: finish them with that one, or move the file away to start"
    " with an empty journal"
)
_ROWS_PER_PAGE = 1000
_SNAPSHOTS_KEPT = 2
_EVENTS_PER_CUT = 1000

_TABLES = (
    # `batch` is the sequence number of the batch's last event.
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, event TEXT NOT NULL)",
    "CREATE TABLE batches (batch INTEGER PRIMARY KEY, chain BLOB NOT NULL)",
    """CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, checksum BLOB NOT NULL,
       state BLOB NOT NULL)""",
    # At most one row: the last batch that was deleted, where the chain of the others begins.
    """CREATE TABLE anchor (batch INTEGER PRIMARY KEY, chain BLOB NOT NULL,
       checksum BLOB NOT NULL)""",
)


class Journal:
    """One open journal, locked: no other process can open it before `close()` or this one's end.

    Any thread may call it, one at a time: others wait. Every method raises WorldError when the disk
    or the file fails, and has then changed nothing; the journal can be used again once there is
    room. `missing_events` is how many events at its end were written and are missing;
    events up to `first_kept - 1` were deleted: snapshots replace them.
    """

    def __init__(self, path: Path, database: Database, tail: Tail) -> None:
        """Take over an open database; use `Journal.open`."""
        self._path = path
        self._db = database
        self._tail = tail
        self._anchor = self._last = 0
        self._chain = _NO_CHAIN
        self.missing_events = 0

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create a journal, and check all of it against its checksums; O(events kept).

        One of the schema before becomes one of this schema: earlier releases reject it then.
        WorldError with code `journal_locked` if another process holds it, `journal_version` if it
        is of another schema, `journal_damaged` if it is not what was written.
        """
        database = Database.open(
            path, "journal", schema=SCHEMA, oldest=_OLDEST, tables=_TABLES, if_earlier=_EARLIER
        )
        try:
            journal = cls(path, database, Tail(path))
        except OSError as error:
            database.close()
            raise file_error(path, "journal_unusable", str(error), "is it a file?") from error
        try:
            journal._verify()
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def first_kept(self) -> int:
        """The sequence number of the first event that was not deleted."""
        return self._anchor + 1

    def _verify(self) -> None:
        """Check every batch against the chain, and the last one against the tail."""
        for batch, chain, checksum in self._db.rows("SELECT batch, chain, checksum FROM anchor"):
            if _chained(chain, batch, ()) != checksum:
                raise self._damaged("where its first batch begins is not as written")
            self._anchor, self._last, self._chain = batch, batch, chain
        chains: dict[int, bytes] = dict(
            self._db.rows("SELECT batch, chain FROM batches ORDER BY batch")
        )
        kept = self._tail.read() or (0, _NO_CHAIN)
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
        whole = (
            f"events {self.first_kept} to {self._last} are whole"
            if self._last > self._anchor
            else "no batch is whole"
        )
        hint = f"{whole}; restore it from a copy, or name another file"
        return file_error(self._path, "journal_damaged", problem, hint)

    def unusable(self, problem: str) -> WorldError:
        """Return the error that the events kept do not suffice to rebuild the state."""
        hint = "restore the journal from a copy, or start in another state directory"
        deleted = f"events 1 to {self._anchor} were deleted, since snapshots replaced them"
        return file_error(self._path, "journal_damaged", f"{problem}, and {deleted}", hint)

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
        with self._db.transaction():
            rows = ((seq, last, text) for seq, text in enumerate(texts, start=first))
            self._db.change_many("INSERT INTO events VALUES (?, ?, CAST(? AS TEXT))", rows)
            self._db.change("INSERT INTO batches VALUES (?, ?)", (last, chain))
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
            page = self._db.rows(
                "SELECT seq, batch, event FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, _ROWS_PER_PAGE),
            )
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
            raise file_error(self._path, "journal_damaged", problem, hint) from error

    def save_snapshot(self, seq: int, state: bytes) -> None:
        """Keep the state after event `seq`; only the latest two snapshots are kept."""
        if not 0 <= seq <= self._last:
            raise InvariantBroken(f"a snapshot after event {seq} of {self._last}")
        with self._db.transaction():
            self._db.change(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, _checksum(state), state)
            )
            self._db.change(
                "DELETE FROM snapshots WHERE seq NOT IN"
                " (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (_SNAPSHOTS_KEPT,),
            )

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """Yield (seq, state) of every snapshot that is whole, the latest first."""
        rows = self._db.rows(
            "SELECT seq, state, checksum FROM snapshots WHERE seq BETWEEN ? AND ?"
            " ORDER BY seq DESC",
            (self._anchor, self._last),
        )
        for seq, state, checksum in rows:
            if _checksum(state) == checksum:
                yield seq, state

    def cut(self) -> None:
        """Delete the events before the older of the two snapshots kept, if both are whole.

        A transaction deletes about a thousand events, so that `append` never waits for long.
        """
        seqs = [seq for seq, _ in self.snapshots()]
        while len(seqs) == _SNAPSHOTS_KEPT and self._cut(seqs[-1]):
            pass

    def _cut(self, until: int) -> bool:
        """Delete the first batches, up to event `until` at most; return whether there were any."""
        latest = "SELECT batch, chain FROM batches WHERE batch <= ? ORDER BY batch DESC LIMIT 1"
        first = "SELECT batch, chain FROM batches WHERE batch <= ? ORDER BY batch LIMIT 1"
        found = self._db.rows(latest, (min(until, self._anchor + _EVENTS_PER_CUT),))
        for batch, chain in found or self._db.rows(first, (until,)):
            with self._db.transaction():
                self._db.change("DELETE FROM events WHERE seq <= ?", (batch,))
                self._db.change("DELETE FROM batches WHERE batch <= ?", (batch,))
                self._db.change("DELETE FROM anchor")
                checksum = _chained(chain, batch, ())
                self._db.change("INSERT INTO anchor VALUES (?, ?, ?)", (batch, chain, checksum))
            self._anchor = batch
            return True
        return False

    def close(self) -> None:
        """Close the file; all appended batches are durable already."""
        self._db.close()
        self._tail.close()


_NO_CHAIN = b""


def _chained(chain: bytes, batch: int, texts: Sequence[bytes]) -> bytes:
    """Return the checksum of a batch, over that of the batch before it and all its events."""
    digest = hashlib.blake2b(chain, digest_size=16)
    digest.update(batch.to_bytes(8))
    for text in texts:
        digest.update(len(text).to_bytes(8))
        digest.update(text)
    return digest.digest()


def _checksum(state: bytes) -> bytes:
    return hashlib.blake2b(state, digest_size=16).digest()
