"""Files that only Headgate's processes may read, and directories that all users may traverse."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.base.errors import Problem, WorldError

PRIVATE_UMASK = 0o077
_TRAVERSABLE = 0o711


@contextmanager
def private_files() -> Iterator[None]:
    """Make files that this process and its children create inside the context private (umask)."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def secret(path: Path) -> str:
    """Return the secret in a file, created if missing; only this user may read it."""
    try:
        path.chmod(0o600)
        return path.read_text()
    except FileNotFoundError:
        text = secrets.token_hex(32)
        write_private(path, text)
        return text


def write_private(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a text to `path` atomically, readable by this user only; `durable`: also to disk."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(descriptor)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def make_private(directory: Path) -> None:
    """Create a directory that only this user may read, or restrict an existing one."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


def make_traversable(top: Path, *below: str) -> Path:
    """Return the directory `below` `top`, which any user may traverse and only this user may list.

    All directories from `top` on, and missing parents of it, are created so; existing parents stay
    unchanged. WorldError for an existing link or a directory of another user.
    """
    missing = [place for place in (*reversed(top.parents),) if not place.exists()]
    levels = [top.joinpath(*below[:depth]) for depth in range(len(below) + 1)]
    for place in (*missing, *levels):
        place.mkdir(mode=_TRAVERSABLE, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            text = "is a link or belongs to another user: Headgate cannot store files there"
            raise WorldError([Problem(path=str(place), problem=text)])
        place.chmod(_TRAVERSABLE)
    return levels[-1]


def remove_tree(directory: Path) -> None:
    """Remove a directory, if it is there; links are not followed. What cannot be removed stays."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):  # too deep, or being written to
        subprocess.run(["rm", "-rf", "--", directory], check=False, stderr=subprocess.DEVNULL)
