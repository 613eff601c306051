"""One SQLite file with a schema number, locked by one process; errors come with a remedy.

The journal and the archive are such files. What SQLite reports becomes WorldErrors whose codes
begin with the kind of file: `journal_full`, `archive_damaged`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from headgate.base.errors import Problem, WorldError

Row = tuple[Any, ...]

# SQLite's primary result codes, by remedy.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Database:
    """An open file; any thread may call it, one at a time: others wait.

    Every method raises WorldError when the disk or the file fails, and has then changed nothing;
    the file can be used again once there is room.
    """

    def __init__(self, path: Path, kind: str, connection: sqlite3.Connection) -> None:
        """Take over a connection; use `Database.open`."""
        self._path, self._kind = path, kind
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: Path,
        kind: str,
        *,
        schema: int,
        oldest: int,
        tables: Sequence[str],
        if_earlier: str,
    ) -> Self:
        """Open the file of a kind (`journal`, `archive`), or create it with these tables.

        One of a schema from `oldest` on becomes one of this schema; `if_earlier` is what to do with
        a file of a schema before that.
        WorldError with code `KIND_locked` if another process holds it, `KIND_version` if it is of
        another schema, `KIND_damaged` or `KIND_unusable` if it is no such file.
        """
        try:
            # Jobs name programs and variables: their users' business only.
            path.touch(mode=0o600)
        except OSError as error:
            hint = "is it a file?"
            raise file_error(path, f"{kind}_unusable", str(error), hint) from error
        with _explained(path, kind):
            connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        connection.text_factory = bytes  # text that is no UTF-8 is for the caller to report
        database = cls(path, kind, connection)
        try:
            database._prepare(schema, oldest, tables, if_earlier)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, schema: int, oldest: int, tables: Sequence[str], if_earlier: str) -> None:
        with _explained(self._path, self._kind):
            # Exclusive while it is open. It also keeps SQLite from mapping shared memory,
            # where a full disk would end the process instead of failing a call.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self.transaction():
            ((found,),) = self.rows("PRAGMA user_version")
            ((objects,),) = self.rows("SELECT count(*) FROM sqlite_schema")
            if found == 0 and objects == 0:
                for table in tables:
                    self.change(table)
                self.change(f"PRAGMA user_version = {schema}")
            elif oldest <= found < schema:
                self.change(f"PRAGMA user_version = {schema}")
            elif found != schema:
                raise _other_schema(self._path, self._kind, found, schema, if_earlier)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside durable together, or none of them."""
        with self._lock, _explained(self._path, self._kind):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""
        with self._lock, _explained(self._path, self._kind):
            return self._connection.execute(query, values).fetchall()

    def change(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Execute a statement, in a transaction of its own unless there is one."""
        with self._lock, _explained(self._path, self._kind):
            self._connection.execute(statement, values)

    def change_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each of these values."""
        with self._lock, _explained(self._path, self._kind):
            self._connection.executemany(statement, values)

    def close(self) -> None:
        """Close the file; all changes are durable already."""
        with self._lock, _explained(self._path, self._kind):
            self._connection.close()


def file_error(path: Path, code: str, problem: str, hint: str) -> WorldError:
    """Return the error that the journal or the archive cannot be used."""
    return WorldError([Problem(path=str(path), problem=problem, hint=hint)], code=code)


def _other_schema(path: Path, kind: str, found: int, schema: int, if_earlier: str) -> WorldError:
    if 0 < found < schema:
        hint = f"it is of an earlier Headgate: {if_earlier}"
    elif found > schema:
        hint = "it is of a later Headgate: use that one, or name another file"
    else:
        hint = "name another file"
    article = "an" if kind[0] in "aeiou" else "a"
    problem = f"is not {article} {kind} of schema {schema}"
    return file_error(path, f"{kind}_version", problem, hint)


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Translate errors of SQLite into WorldErrors with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # without the detail in upper bits
            case code if code in _NO_ROOM:
                what, hint = "full", "make room on its disk; nothing was lost"
            case code if code in _HELD:
                what, hint = "locked", "another controller holds it; stop that one first"
            case code if code in _DAMAGED:
                what, hint = "damaged", "restore it from a copy, or name another file"
            case 0:
                raise  # a programming error, not one of the disk or the file
            case _:
                what, hint = "unusable", "is the file readable and writable?"
        raise file_error(path, f"{kind}_{what}", str(error), hint) from error
