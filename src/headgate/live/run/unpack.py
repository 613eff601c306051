"""Unpacking of packages, as the user of the job: `python -I -S unpack.py ARCHIVE DIRECTORY`.

The script uses the standard library alone, and none of its filters, which Pythons before 3.11.4 do
not have: so all unpack alike. Nothing is written through a link, and no link leads outside. What a
member may not be, or may not do, fails the whole with the name of that member.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_MEMBERS = 100_000
"""Files, links and directories of a package at most."""

_PIECE_BYTES = 1 << 20
_MODES = 0o755  # bits that a file may have: none of setuid, setgid and sticky, no writing by others
_SHOWN = 300  # characters of a name in a message


class UnpackError(Exception):
    """A package cannot be unpacked; the message is for the user."""


def unpack(archive: Path, directory: Path) -> None:
    """Unpack an uncompressed tar archive into a directory, made if missing; UnpackError.

    Files belong to the caller. A member replaces the file or link of an earlier one.
    """
    directory.mkdir(exist_ok=True)
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with tarfile.open(archive, "r:") as found:
            for number, member in enumerate(found, 1):
                if number > MOST_MEMBERS:
                    raise UnpackError(f"it has more than {MOST_MEMBERS:,} members")
                with _named(member):
                    _unpack(found, member, top)
    except tarfile.TarError as error:
        raise UnpackError(f"it is not a whole tar archive without compression: {error}") from error
    finally:
        os.close(top)


def stays_inside(depth: int, target: str) -> bool:
    """Return whether a link leads nowhere outside: `depth` directories are above it.

    `..` may only be at the beginning: behind another link it could lead anywhere.
    """
    parts = _parts(target)
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and up <= depth and ".." not in parts[up:]


@contextmanager
def _named(member: tarfile.TarInfo) -> Iterator[None]:
    """Name a member in its errors."""
    try:
        yield
    except (UnpackError, OSError, ValueError) as error:  # ValueError: a name with a zero byte
        problem = error.strerror if isinstance(error, OSError) else error
        raise UnpackError(f"member {_shown(member.name)}: {problem}") from error


def _unpack(found: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    path = _inside(member.name)
    if member.isdir():
        with _entered(top, path, make=True) as place:
            os.fchmod(place, member.mode & _MODES | 0o700)
        return
    if not path:
        raise UnpackError("has no name")
    with _entered(top, path[:-1], make=True) as place:
        if member.issym():
            if not stays_inside(len(path) - 1, member.linkname):
                raise UnpackError(f"is a link that leads outside, to {_shown(member.linkname)}")
            _make_way(place, path[-1])
            os.symlink(member.linkname, path[-1], dir_fd=place)
        elif member.islnk():
            _link(top, _inside(member.linkname), place, path[-1])
        elif member.isreg() and not member.issparse():
            _write(found, member, place, path[-1])
        else:
            raise UnpackError("is a device, a named pipe, or another file that cannot be sent")


def _write(found: tarfile.TarFile, member: tarfile.TarInfo, place: int, name: str) -> None:
    content = found.extractfile(member)
    assert content is not None, "of a regular file"
    _make_way(place, name)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=place)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(content, file, _PIECE_BYTES)
        file.flush()
        os.fchmod(descriptor, member.mode & _MODES | 0o600)
        with suppress(
            OSError, OverflowError, ValueError
        ):  # a time that the file system does not have
            os.utime(descriptor, (member.mtime, member.mtime))


def _link(top: int, source: Sequence[str], place: int, name: str) -> None:
    """Make a hard link to a file that is unpacked already; to a link it would lead elsewhere."""
    if not source:
        raise UnpackError("is a link to no file")
    with _entered(top, source[:-1], make=False) as origin:
        if not stat.S_ISREG(os.stat(source[-1], dir_fd=origin, follow_symlinks=False).st_mode):
            raise UnpackError(f"is a link to what is no file, {_shown('/'.join(source))}")
        _make_way(place, name)
        ends = {"src_dir_fd": origin, "dst_dir_fd": place}
        os.link(source[-1], name, **ends, follow_symlinks=False)


def _make_way(place: int, name: str) -> None:
    """Remove the file or link of an earlier member."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=place)


@contextmanager
def _entered(top: int, path: Sequence[str], *, make: bool) -> Iterator[int]:
    """Yield the descriptor of a directory; no link on the way is followed."""
    place = os.dup(top)
    try:
        for name in path:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=place)
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                inner = os.open(name, flags, dir_fd=place)
            except NotADirectoryError:
                text = f"leads through {_shown(name)}, which is a link or a file"
                raise UnpackError(text) from None
            os.close(place)
            place = inner
        yield place
    finally:
        os.close(place)


def _inside(name: str) -> list[str]:
    """Return the parts of a path; UnpackError for one that is absolute or leads up."""
    parts = _parts(name)
    if name.startswith("/") or ".." in parts:
        raise UnpackError(f"the path {_shown(name)} leads outside")
    return parts


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _shown(text: str) -> str:
    """Return a name in quotes, with escaped control characters."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def main() -> None:
    """Unpack an archive into a directory."""
    archive, directory = sys.argv[1:]
    try:
        unpack(Path(archive), Path(directory))
    except (UnpackError, OSError) as error:
        hint = "send a directory with headgate submit, or an archive of files and links inside it"
        sys.exit(f"headgate: the package cannot be unpacked: {error}; {hint}")


if __name__ == "__main__":
    main()
