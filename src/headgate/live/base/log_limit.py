"""Logs of bounded size: of one that grows too large, the first and the last part are kept.

The middle is punched out of the file, which frees its blocks and moves nothing: a program writes to
its log directly, never waits for a reader, and offsets into the log stay valid.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headgate.base.units import format_size
from headgate.live.base.account import Account

LOG_LIMIT_BYTES = 64 << 20
"""Default size of the log of a run."""

LEAST_LIMIT_BYTES = 1 << 20

_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE
_LOOK_S = 1.0
_SOON_S = 0.02
_TRIES = 5
_TAIL_BYTES, _TAIL_LINES = 4096, 20
_LIBC = ctypes.CDLL(None, use_errno=True)


class LogBytes(NamedTuple):
    """A piece of a log, and the offset of what follows it."""

    data: bytes
    next_offset: int


def open_log(path: Path, account: Account) -> int:
    """Open the log of a run, which belongs to its user, in a directory that only we may enter."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.fchown(descriptor, account.uid, account.gid)
    return descriptor


def tail_of(log: Path) -> str:
    """Return the last lines of a log."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])
    return ""


@asynccontextmanager
async def kept_within(log: int, limit_bytes: int) -> AsyncIterator[None]:
    """Limit a log while it is written to, and once more in the end; 0 is no limit.

    It is looked at the more often, the faster it grows; between two looks it may be larger.
    """
    if not limit_bytes:
        yield
        return
    looks = asyncio.create_task(_look(log, limit_bytes))
    try:
        yield
    finally:
        looks.cancel()
        await asyncio.wait((looks,))
        with suppress(OSError):
            trim(log, limit_bytes)


async def _look(log: int, limit_bytes: int) -> None:
    pause_s, size = _LOOK_S, 0
    while True:
        await asyncio.sleep(pause_s)
        before = size
        with suppress(OSError):
            size = trim(log, limit_bytes)
        grown = max(1, size - before)
        pause_s = min(_LOOK_S, max(_SOON_S, pause_s * limit_bytes / (4 * grown)))


def trim(log: int, limit_bytes: int) -> int:
    """Drop the middle of a log that is larger than its limit; return its size with what is dropped.

    Where the file system has no holes, all but the first part is dropped.
    """
    found = os.fstat(log)
    block = max(4096, min(found.st_blksize, limit_bytes // 8))
    first = limit_bytes // 2 // block * block
    end = (found.st_size - (limit_bytes - first)) // block * block
    if end <= first:
        return found.st_size
    if _punch(log, first, end - first):
        return found.st_size
    os.ftruncate(log, first)
    return os.write(log, _dropped(found.st_size - first)) + first


def _punch(log: int, start: int, length: int) -> bool:
    """Free a part of a file, which then reads as zeros; return whether the file system can."""
    sizes = (ctypes.c_int64(start), ctypes.c_int64(length))
    return int(_LIBC.fallocate(ctypes.c_int(log), ctypes.c_int(_PUNCH_HOLE), *sizes)) == 0


def _dropped(size_bytes: int) -> bytes:
    text = f"[headgate: {format_size(size_bytes)} dropped here, the log was over its limit]"
    return f"\n{text}\n".encode()


def read_from(log: BinaryIO, offset: int, limit: int) -> LogBytes:
    """Return up to `limit` bytes of a log, and a line where something was dropped.

    A part that is dropped while it is read counts as dropped.
    """
    descriptor = log.fileno()
    for _ in range(_TRIES):
        size = os.fstat(descriptor).st_size
        if offset >= size:  # it may exceed the range of `lseek`
            break
        start = _next_data(descriptor, offset, size)
        hole = os.lseek(descriptor, start, os.SEEK_HOLE) if start < size else size
        data = os.pread(descriptor, min(limit, hole - start), start)
        next_offset = start + len(data)
        if data and _next_data(descriptor, start, size) != start:
            continue  # it was dropped meanwhile
        if start > offset:
            data = _dropped(start - offset) + data
        elif next_offset == hole < size:
            next_offset = _next_data(descriptor, hole, size)
            data += _dropped(next_offset - hole)
        return LogBytes(data, next_offset)
    return LogBytes(b"", offset)


def _next_data(descriptor: int, offset: int, size: int) -> int:
    """Return the first offset from this one on that is not in a hole, the size if there is none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:  # only a hole follows
        return size
