"""The shards of one node, stored as checksummed files that survive a restart.

Every shard has its own directory under the root, named by its percent-encoded id; the one file in
it is named `<size_bytes>.<checksum>`. So one rename stores a complete shard with its size and
checksum, and several processes of a node can read one root without a shared index.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.live.base.permissions import make_private

PIECE_BYTES = 1 << 20
READ_ONLY = 0o444
_NAME_BYTES = 255
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RANGE_BYTES = 1 << 30
_NO_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShard:
    """A shard stored on this node; `checksum` is BLAKE2b with 128 bits, in hex."""

    id: str
    size_bytes: int
    checksum: str


class ShardStore:
    """One node's shards under one root directory.

    Methods that write raise `WorldError`: `disk_full` when the disk is full, `shard_store` for
    every other failure of the disk; no partial file remains.
    """

    def __init__(self, root: Path) -> None:
        """Open or create the store; files of writers that died are removed."""
        self._root = root
        self._incoming = root / ".incoming"
        self._corrupt = root / ".corrupt"
        self._verified: dict[Path, int] = {}
        with disk_errors(root):
            make_private(root)
            self._incoming.mkdir(exist_ok=True)
            self._corrupt.mkdir(exist_ok=True)
            with self._locked():
                for leftover in sorted(self._incoming.iterdir()):
                    _remove_unless_open(leftover)

    def put(
        self,
        shard_id: str,
        chunks: Iterable[bytes | memoryview],
        *,
        expected: Callable[[], str] | None = None,
    ) -> StoredShard:
        """Store the chunks as one shard, replacing one of that id.

        `expected` returns the required checksum; it is called after the last chunk, and a mismatch
        raises WorldError `shard_corrupt` and stores nothing.
        """
        self._directory(shard_id)
        with disk_errors(self._root), self._temporary() as (descriptor, path):
            digest = new_digest()
            for chunk in chunks:
                write_whole(descriptor, chunk)
                digest.update(chunk)
            os.fsync(descriptor)
            size_bytes = os.fstat(descriptor).st_size
            checksum = digest.hexdigest()
            if expected is not None and (wanted := expected()) != checksum:
                raise WorldError(
                    f"shard '{shard_id}' arrived with checksum {checksum}, not {wanted}",
                    code="shard_corrupt",
                )
            shard = StoredShard(id=shard_id, size_bytes=size_bytes, checksum=checksum)
            self._commit(shard, path)
        return shard

    def adopt(self, shard_id: str, path: Path) -> StoredShard:
        """Move a complete file into the store: by rename, or copied from a link or another disk."""
        self._directory(shard_id)
        with disk_errors(self._root):
            with path.open("rb") as file:
                size_bytes, checksum = _measure(file.fileno())
                os.fsync(file.fileno())
            shard = StoredShard(id=shard_id, size_bytes=size_bytes, checksum=checksum)
            try:
                if path.is_symlink():  # its target must not be moved
                    raise OSError(errno.EXDEV, "a link")
                self._commit(shard, path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shard = self.put(shard_id, read_pieces(path), expected=lambda: checksum)
                path.unlink()
        return shard

    def find(self, shard_id: str) -> StoredShard | None:
        """Return the shard of an id, else None; a file of a wrong size is corrupt and dropped."""
        found = self._locate(shard_id)
        return None if found is None else found[0]

    def path(self, shard_id: str) -> Path:
        """Return the file of a shard, for reading only; WorldError `shard_absent` without one."""
        found = self._locate(shard_id)
        if found is None:
            raise WorldError(f"shard '{shard_id}' is not on this node", code="shard_absent")
        return found[1]

    def provide(self, shard_id: str, to: Path, *, uid: int) -> int:
        """Make the new file `to` the content of a shard; any user may read it. Return its bytes.

        It is for the account `uid`, which cannot change what is stored: it gets a hard link to the
        stored file where the file system supports them. Root, and our own account, could change
        that: they get a copy of their own, which shares blocks where the file system can.
        WorldError `shard_absent` without the shard.
        """
        make = _copy if uid in (0, os.geteuid()) else _link_or_copy
        while True:
            path = self.path(shard_id)
            try:
                with disk_errors(to.parent):
                    make(path, to)
                    return to.stat().st_size
            except WorldError:
                if path.exists():
                    raise  # else it was replaced or removed meanwhile: retry

    def verify(self, shard_id: str) -> bool:
        """Read the shard and return whether it is stored and intact; a corrupt one is dropped.

        This object does not read an intact file again until it changes.
        """
        found = self._locate(shard_id)
        if found is None:
            return False
        shard, path, seen = found
        if self._verified.get(path) == seen.st_mtime_ns:
            return True
        try:
            with path.open("rb") as file:
                whole = _measure(file.fileno()) == (shard.size_bytes, shard.checksum)
        except FileNotFoundError:
            return False
        except OSError:  # an unreadable sector
            whole = False
        else:
            if whole:
                self._verified[path] = seen.st_mtime_ns
        if not whole:
            self._drop(shard_id, path, seen)
        return whole

    def remove(self, shard_id: str, *, before_ns: int | None = None) -> bool:
        """Delete a shard; return whether it was stored.

        One that was written at `before_ns` or later, in nanoseconds since the epoch, remains.
        """
        directory = self._directory(shard_id)
        with disk_errors(self._root), self._locked():
            files = _files(directory)
            if before_ns is not None:
                files = [path for path in files if path.stat().st_mtime_ns < before_ns]
            for path in files:
                self._verified.pop(path, None)
                path.unlink()
            _remove_if_empty(directory)
        return bool(files)

    def list(self) -> tuple[StoredShard, ...]:
        """Return all shards by id; contents are not read (see `verify`)."""
        found = (
            self.find(unquote(entry.name))
            for entry in sorted(self._root.iterdir())
            if not entry.name.startswith(".")
        )
        return tuple(sorted((s for s in found if s is not None), key=lambda shard: shard.id))

    def take_corrupt(self) -> tuple[str, ...]:
        """Return the ids found corrupt by any process since the last call, each once."""
        ids = []
        with disk_errors(self._root), self._locked():
            for path in sorted(self._corrupt.iterdir()):
                ids.append(unquote(path.name))
                path.unlink()
        return tuple(ids)

    def _directory(self, shard_id: str) -> Path:
        return self._root / _escape(shard_id)

    def _locate(self, shard_id: str) -> tuple[StoredShard, Path, os.stat_result] | None:
        """Return a shard, its file and the state of that; a file of a wrong size is dropped."""
        replaced = True
        while replaced:  # by another writer, between listing and looking: list again
            replaced = False
            for path in _files(self._directory(shard_id)):
                size, _, checksum = path.name.partition(".")
                shard = StoredShard(id=shard_id, size_bytes=int(size), checksum=checksum)
                try:
                    seen = path.stat()
                except FileNotFoundError:
                    replaced = True
                    continue
                if seen.st_size == shard.size_bytes:
                    return shard, path, seen
                self._drop(shard_id, path, seen)
        return None

    def _drop(self, shard_id: str, path: Path, seen: os.stat_result) -> None:
        """Hide a corrupt file and record its id for `take_corrupt`.

        One that another process has dropped or replaced since it was `seen` is left alone.
        """
        self._verified.pop(path, None)
        with disk_errors(self._root), self._locked(), suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), seen):
                path.rename(self._corrupt / _escape(shard_id))
                _remove_if_empty(path.parent)

    def _commit(self, shard: StoredShard, path: Path) -> None:
        directory = self._directory(shard.id)
        with self._locked():
            directory.mkdir(exist_ok=True)
            final = directory / f"{shard.size_bytes}.{shard.checksum}"
            try:
                path.rename(final)
            except OSError:
                _remove_if_empty(directory)
                raise
            self._verified.pop(final, None)
            for other in _files(directory):
                if other != final:
                    other.unlink()
            _sync_directory(directory)
            _sync_directory(self._root)

    @contextmanager
    def _temporary(self) -> Iterator[tuple[int, Path]]:
        """Yield a new file, locked while it is written and removed if it was not committed."""
        with self._locked():
            descriptor, name = tempfile.mkstemp(dir=self._incoming)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        path = Path(name)
        try:
            yield descriptor, path
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the root against other threads and processes; only for short work."""
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def time_disk(path: Path) -> float | None:
    """Read a file past the page cache, with its checksum as readers do; return bytes per second.

    None if the file system does not support direct I/O: the rate of the cache is of no use.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
    try:
        piece = mmap.mmap(-1, PIECE_BYTES)  # aligned, as direct I/O requires
        digest, size_bytes = new_digest(), 0
        started_s = time.monotonic()
        while count := os.readv(descriptor, [piece]):
            digest.update(memoryview(piece)[:count])
            size_bytes += count
        return size_bytes / (time.monotonic() - started_s)
    finally:
        os.close(descriptor)


def new_digest() -> hashlib.blake2b:
    """Return a new hash object for the checksum of a shard."""
    return hashlib.blake2b(digest_size=16)


def read_pieces(path: Path) -> Iterator[bytes]:
    """Yield a file in pieces of `PIECE_BYTES`."""
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def write_whole(descriptor: int, chunk: bytes | memoryview) -> None:
    """Write all of a chunk: `os.write` may write a part only."""
    rest = memoryview(chunk).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Translate a failure of the disk into a WorldError: `disk_full` or `shard_store`."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise WorldError(
            (
                Problem(
                    path=str(where),
                    problem="the disk is full" if full else str(error),
                    hint="free some space, or remove datasets with 'headgate data rm'"
                    if full
                    else "",
                ),
            ),
            code="disk_full" if full else "shard_store",
        ) from error


def _measure(descriptor: int) -> tuple[int, str]:
    """Return size and checksum of an open file, from its current position."""
    digest = new_digest()
    size_bytes = 0
    while piece := os.read(descriptor, PIECE_BYTES):
        digest.update(piece)
        size_bytes += len(piece)
    return size_bytes, digest.hexdigest()


def _link_or_copy(path: Path, to: Path) -> None:
    path.chmod(READ_ONLY)
    try:
        to.hardlink_to(path)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(path, to)


def _copy(path: Path, to: Path) -> None:
    with path.open("rb", buffering=0) as stored, to.open("xb", buffering=0) as copy:
        os.fchmod(copy.fileno(), READ_ONLY)
        try:  # the kernel shares blocks where the file system can, and else copies fast
            while os.copy_file_range(stored.fileno(), copy.fileno(), _RANGE_BYTES):
                pass
        except OSError as error:
            if error.errno not in _NO_RANGE:
                raise
            while piece := stored.read(PIECE_BYTES):
                write_whole(copy.fileno(), piece)


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def _remove_unless_open(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another process is writing it
        return
    else:
        path.unlink()
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _escape(shard_id: str) -> str:
    """Return the directory name of a shard id; SpecError for an id that is too long."""
    name = quote(shard_id, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > _NAME_BYTES:
        raise SpecError(
            [
                Problem(
                    path=shard_id,
                    problem=f"a shard's name has 1 to {_NAME_BYTES} bytes, this has {len(name)}",
                    hint="'/', ':' and letters beyond ASCII count three for each byte",
                )
            ]
        )
    return name
