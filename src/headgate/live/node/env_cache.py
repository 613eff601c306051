"""What a node keeps for later runs of a user: directories that are built once, then only read.

An entry is a directory with the files `lock`, `ready` and `failed`, and the directory `content`,
which belongs to the user. Any process of Headgate on the node may use it: a lock of the kernel is
held shared while runs use the content, and exclusively while it is built or removed, so that a
process that dies never leaves it locked.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.base.permissions import make_traversable, remove_tree

KEEP_S = {"files": 86400.0, "env": 7 * 86400.0}
"""Seconds since its last use after which an entry is removed, by what it has: files of a package,
or a Python environment."""

_CONTENT, _LOCK, _READY, _FAILED = "content", "lock", "ready", "failed"
_LOOK_S = 0.1
_FAILED_S = 30.0  # a failed build is not repeated for as long
_REMOVED_S = 5.0


class BuildError(WorldError):
    """The content of an entry could not be built; the message is for the user."""


@asynccontextmanager
async def cached(
    entry: Path, build: Callable[[Path], Awaitable[None]], waiting: Callable[[], None]
) -> AsyncIterator[Path]:
    """Yield the content of an entry, which is not removed inside the context.

    If there is none, `build` makes it in the empty directory that it gets; other callers wait, and
    call `waiting` before. BuildError of `build`, also for 30 s after it was raised.
    """
    make_traversable(entry)
    descriptor = await _locked(entry, fcntl.LOCK_SH, waiting)
    try:
        if not (entry / _READY).exists():
            os.close(descriptor)
            descriptor = await _locked(entry, fcntl.LOCK_EX, waiting)
            if not (entry / _READY).exists():
                await _build(entry, build)
        (entry / _READY).touch()
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # not removed in between: it has just been used
        yield entry / _CONTENT
    finally:
        os.close(descriptor)


def sweep(root: Path, *, now_s: float | None = None) -> None:
    """Remove entries below `root`, by user, that no run uses and whose time since use is over."""
    now_s = time.time() if now_s is None else now_s
    for entry in root.glob("*/*-*"):
        keep_s = KEEP_S.get(entry.name.partition("-")[0], 0.0)
        descriptor = _try_lock(entry, fcntl.LOCK_EX)
        if descriptor is None:
            continue
        try:
            if now_s - _used_s(entry) > keep_s:
                gone = entry.with_name(f".{entry.name}")
                remove_tree(gone)
                entry.rename(gone)
                remove_tree(gone)
        except OSError:  # it is tried again later
            continue
        finally:
            os.close(descriptor)


def _used_s(entry: Path) -> float:
    """Return the time of the last use of an entry, or of its last build."""
    for name in (_READY, _FAILED, _LOCK):
        with suppress(FileNotFoundError):
            return (entry / name).stat().st_mtime
    return 0.0


async def _build(entry: Path, build: Callable[[Path], Awaitable[None]]) -> None:
    failed, content = entry / _FAILED, entry / _CONTENT
    with suppress(FileNotFoundError):
        if time.time() - failed.stat().st_mtime < _FAILED_S:
            raise BuildError(failed.read_text())
    emptied = asyncio.ensure_future(asyncio.to_thread(_empty, content))
    try:
        await asyncio.shield(emptied)
    except asyncio.CancelledError:
        await emptied  # else it could remove what another process builds
        raise
    try:
        await build(content)
    except BuildError as error:
        failed.write_text(str(error))
        raise
    failed.unlink(missing_ok=True)


def _empty(directory: Path) -> None:
    """Make a directory empty, although processes of its last build may just be ending."""
    until_s = time.monotonic() + _REMOVED_S
    while True:
        remove_tree(directory)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            if time.monotonic() > until_s:
                raise BuildError(f"'{directory}' cannot be removed") from None
            time.sleep(_LOOK_S)
        else:
            return


async def _locked(entry: Path, how: int, waiting: Callable[[], None]) -> int:
    """Return the descriptor of an entry's lock, held as `how` says, once that is possible."""
    reported = False
    while (descriptor := _try_lock(entry, how)) is None:
        if not reported:
            waiting()
            reported = True
        await asyncio.sleep(_LOOK_S)  # not a thread that waits: it could not be cancelled
    return descriptor


def _try_lock(entry: Path, how: int) -> int | None:
    """Return the descriptor of an entry's lock, None while it is held otherwise."""
    lock = entry / _LOCK
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:  # it has just been removed
        make_traversable(entry)
        return None
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
