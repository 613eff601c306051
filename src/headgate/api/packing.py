"""Packages: the files of a directory as one archive, which depends on their content alone.

A package is a tar archive of sorted paths, with the permissions of their owner and one constant
time. Its id is the SHA-256 of the archive, so the same files give the same id everywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.base.units import format_size
from headgate.live.node.marker import MARKER_PREFIX
from headgate.live.run.unpack import MOST_MEMBERS, stays_inside

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MOST_BYTES = 500 << 20
"""Bytes that the files of a package have at most."""
MOST_FILES = MOST_MEMBERS
"""Files, links and directories of a package at most."""
IGNORE_FILE = ".headgateignore"
"""Patterns of what is not sent, as in `.gitignore`."""

_NOT_SENT = (
    *(".git", ".hg", ".svn", ".venv", "__pycache__", ".ipynb_checkpoints", ".DS_Store"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache"),
    f"/{MARKER_PREFIX}*",  # of other submissions, which soon remove them
)
_VENV_MARK = "pyvenv.cfg"
_LARGEST = 3  # entries named when a directory is too large
_TIME_S = 946_684_800  # 2000-01-01: zip files, such as wheels, have no time before 1980
_PIECE_BYTES = 1 << 20
_KINDS = {
    stat.S_ISSOCK: "a socket",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISBLK: "a device",
    stat.S_ISCHR: "a device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A file, link or directory of a package; `seen` is what identifies its content."""

    path: str
    mode: int
    size_bytes: int = 0
    target: str = ""
    seen: tuple[int, int] = (0, 0)


@dataclass(slots=True, kw_only=True)
class PackageListing:
    """The files of a directory as they were listed."""

    directory: Path
    entries: tuple[_Entry, ...]
    size_bytes: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive; SpecError `changed` for a file that has changed since the listing."""
        for entry in self.entries:
            yield _header(entry)
            if stat.S_ISREG(entry.mode):
                yield from self._content(entry)
                yield bytes(-entry.size_bytes % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def digest(self) -> str:
        """Return the id of the package; reads all files. SpecError as of `pieces`."""
        found = hashlib.sha256()
        for piece in self.pieces():
            found.update(piece)
        return found.hexdigest()

    def _content(self, entry: _Entry) -> Iterator[bytes]:
        path = self.directory / entry.path
        left = entry.size_bytes
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if _seen(os.fstat(descriptor)) != entry.seen:
                    raise self._changed(entry)
                while left and (piece := file.read(min(left, _PIECE_BYTES))):
                    left -= len(piece)
                    yield piece
                if left or _seen(os.fstat(descriptor)) != entry.seen:
                    raise self._changed(entry)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                raise self._changed(entry) from None
            raise _rejection(self.directory, [(entry.path, _unreadable(error), "")]) from error

    def _changed(self, entry: _Entry) -> SpecError:
        hint = f"wait for what writes it, or list it in {IGNORE_FILE}"
        found = (entry.path, "changed while the directory was sent", hint)
        return _rejection(self.directory, [found], code="changed")


@dataclass(slots=True, kw_only=True)
class _Listing:
    """What was found in a directory so far."""

    top: Path
    ignored: GitIgnoreSpec
    entries: list[_Entry] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)  # by entry of the top directory
    size_bytes: int = 0

    @property
    def too_many(self) -> bool:
        return len(self.entries) > MOST_FILES


def package_of(directory: Path, *, most_bytes: int = MOST_BYTES) -> PackageListing:
    """List the files of a directory that are sent; contents are not read.

    SpecError with every problem: `too_large` over the limits, `bad_spec` for sockets, pipes and
    devices, for files that cannot be read, and for links that lead outside or nowhere.
    """
    top = Path(os.path.realpath(directory))
    try:
        ignored = _ignored(top)
        listing = _Listing(top=top, ignored=ignored)
        _list_directory(listing, "")
    except OSError as error:
        text = "is not a directory" if isinstance(error, NotADirectoryError) else _unreadable(error)
        raise _rejection(directory, [("", text, "")]) from error
    if listing.too_many or listing.size_bytes > most_bytes:
        raise _too_large(directory, listing, most_bytes)
    if listing.problems:
        raise _rejection(directory, listing.problems)
    entries = tuple(sorted(listing.entries, key=lambda entry: os.fsencode(entry.path)))
    return PackageListing(directory=top, entries=entries, size_bytes=listing.size_bytes)


def _ignored(top: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        lines = (top / IGNORE_FILE).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    try:
        return GitIgnoreSpec.from_lines([*_NOT_SENT, *lines])
    except ValueError as error:
        found = (IGNORE_FILE, f"has a pattern that cannot be used: {error}", "")
        raise _rejection(top, [found]) from error


def _list_directory(listing: _Listing, within: str) -> None:
    """List a directory and all below it; `within` is its path from the top, '' or with a '/'."""
    pending = [within]
    while pending and not listing.too_many:
        place = pending.pop()
        try:
            found = list(os.scandir(listing.top / place))
        except OSError as error:
            if not place:
                raise
            listing.problems.append((place, _unreadable(error), _ignore_hint(place)))
            continue
        for item in found:
            path = place + item.name
            if item.is_dir(follow_symlinks=False):
                if not listing.ignored.match_file(f"{path}/") and not _is_venv(item.path):
                    listing.entries.append(_directory(item, path))
                    pending.append(f"{path}/")
            elif not listing.ignored.match_file(path):
                _list_file(listing, item, path)


def _is_venv(path: str) -> bool:
    """Return whether a directory is a Python environment: it would not work elsewhere."""
    return os.path.lexists(os.path.join(path, _VENV_MARK))  # noqa: PTH118  # for each directory


def _directory(item: os.DirEntry[str], path: str) -> _Entry:
    return _Entry(path=path, mode=item.stat(follow_symlinks=False).st_mode)


def _list_file(listing: _Listing, item: os.DirEntry[str], path: str) -> None:
    """Add a file or a link, or its problem."""
    try:
        found = item.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed meanwhile
        return
    if stat.S_ISLNK(found.st_mode):
        target, problem = _target(listing.top, path)
        listing.entries.append(_Entry(path=path, mode=found.st_mode, target=target))
    else:
        problem = _unsuited(item.path, found.st_mode)
        entry = _Entry(path=path, mode=found.st_mode, size_bytes=found.st_size, seen=_seen(found))
        listing.entries.append(entry)
        listing.sizes[path.partition("/")[0]] += found.st_size
        listing.size_bytes += found.st_size
    if problem:
        listing.problems.append((path, problem, _ignore_hint(path)))


def _unsuited(path: str, mode: int) -> str:
    """Return why a file cannot be sent, or ''."""
    for is_kind, name in _KINDS.items():
        if is_kind(mode):
            return f"is {name}, which cannot be sent"
    if not os.access(path, os.R_OK, effective_ids=True):
        return "cannot be read: Permission denied"
    return ""


def _target(top: Path, path: str) -> tuple[str, str]:
    """Return the target of a link, the one to unpack if it is inside, and the problem or ''."""
    link = top / path
    target = str(link.readlink())
    try:
        real = Path(os.path.realpath(link, strict=True))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return target, "is a link in a loop of links"
        real = Path(os.path.normpath(link.parent / target))  # leads to no file, which may be meant
    if not real.is_relative_to(top):
        return target, f"is a link that leads outside, to {visible(target)}"
    if not stays_inside(path.count("/"), target):
        target = os.path.relpath(real, os.path.realpath(link.parent))
    return target, ""


def _seen(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _header(entry: _Entry) -> bytes:
    header = tarfile.TarInfo(entry.path)
    header.mode = stat.S_IMODE(entry.mode) & 0o755
    header.mtime = _TIME_S
    if stat.S_ISDIR(entry.mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(entry.mode):
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.target, 0o777
    else:
        header.size = entry.size_bytes
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _too_large(directory: Path, listing: _Listing, most_bytes: int) -> SpecError:
    if listing.too_many:
        problem = f"has more than {MOST_FILES:,} files"
    else:
        size, most = format_size(listing.size_bytes), format_size(most_bytes)
        problem = f"has {size}, at most {most} are sent"
    largest = [
        f"{visible(name)} ({format_size(size)})"
        for name, size in listing.sizes.most_common(_LARGEST)
    ]
    text = f"{problem}; largest: {', '.join(largest)}"
    hint = f"list what runs do not need in {directory / IGNORE_FILE}, as in .gitignore"
    problems = [Problem(path=str(directory), problem=text, hint=hint)]
    return SpecError(problems, code="too_large")


def _rejection(
    directory: Path, found: list[tuple[str, str, str]], code: str | None = None
) -> SpecError:
    problems = [
        Problem(path=visible(str(directory / path)), problem=problem, hint=hint)
        for path, problem, hint in sorted(found)
    ]
    return SpecError(problems, code=code)


def _ignore_hint(path: str) -> str:
    return f"remove it, or list it in {IGNORE_FILE}: {visible(path)}"


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror}"
