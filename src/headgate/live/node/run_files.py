"""Files that runs have written into their working directories, kept on their node.

At its end the working directory of a run is moved, not copied, below `written`:

    written/<job>/<ordinal>.<attempt>/files      the directory, without what was there at the start
    written/<job>/<ordinal>.<attempt>/manifest   names, sizes and checksums of what can be fetched

The manifest appears last, as a whole: without one nothing is fetched, and the directory stays
unchanged until the results of the job expire. The user of the run may have processes that change
the directory at any time, so each file is opened from descriptor to descriptor, and no link is
followed.
"""

from __future__ import annotations

import heapq
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from pathspec import GitIgnoreSpec

from headgate.base.errors import WorldError
from headgate.live.base.permissions import make_traversable, remove_tree, write_private
from headgate.live.node.store import PIECE_BYTES, new_digest
from headgate.model import KeepFiles, KeptFiles, RunId

MOST_FILES = 10_000
"""Files of one run that are kept to be fetched, at most."""

NAMED = 20
"""How many of the files that are not kept a manifest names."""

_DEEPEST = 64  # directories below each other
_MOST_COUNTED = 1_000_000
_BYTECODE = "__pycache__"  # directories of it are kept only where a job includes them
_TRIES = 3  # to read a file that changes
_FILES, _MANIFEST = "files", "manifest"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a named pipe", stat.S_IFBLK: "a device",
          stat.S_IFCHR: "a device"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A file that can be fetched: its path below the working directory, and its content."""

    path: str
    size_bytes: int
    checksum: str
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is kept of a run; `unkept` names some of the files that cannot be fetched, and why."""

    uid: int
    files: tuple[KeptFile, ...]
    unkept: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Found:
    """New files of a directory, as counted by one look.

    `chosen` are the newest, with time of change, size and path; `unkept` are paths with reasons.
    """

    chosen: list[tuple[int, int, str]] = field(default_factory=list)
    unkept: dict[str, str] = field(default_factory=dict)
    files: int = 0
    size_bytes: int = 0
    skipped: int = 0

    def leave(self, path: str, why: str) -> None:
        """Name a file that is not kept, unless enough are named."""
        if len(self.unkept) < NAMED:
            self.unkept[_text(path)] = why


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a directory that is open as `parent`; `same` as it was at the start."""

    parent: int
    name: str
    path: str
    status: os.stat_result
    same: bool


def written_directory(root: Path, node: str) -> Path:
    """Return the directory of the files that runs have written, with one subdirectory per job."""
    return root / node / "written"


def written_by(root: Path, node: str, run: RunId) -> Path:
    """Return the directory of what is kept of a run."""
    directory = written_directory(root, node) / quote(run.job, safe="")
    return directory / f"{run.ordinal}.{run.attempt}"


class RunFiles:
    """The working directory of a run that is ending; its methods block while they read it."""

    def __init__(self, directory: Path, *, tree: str, uid: int, keep: KeepFiles) -> None:
        """It was a copy of `tree`, or empty, when the run of the user `uid` began."""
        self._directory, self._tree, self._uid, self._keep = directory, tree, uid, keep
        self._included = GitIgnoreSpec.from_lines(keep.include) if keep.include else None
        self._found = _Found()

    def look(self) -> bool:
        """Return whether there is a file that is new or changed; links and the like do not count.

        O(entries), in bounded memory; of new files a million are counted at most.
        """
        found = self._found = _Found()
        with suppress(OSError), _directory(self._directory) as top:  # removed, or made a link
            for entry in _entries(top, self._tree):
                if not entry.same and self._wanted(entry.path):
                    self._count(entry)
                if found.files >= _MOST_COUNTED:
                    break
        return bool(found.files)

    def _wanted(self, path: str) -> bool:
        if self._included is None:
            return _BYTECODE not in path.split("/")
        return self._included.match_file(_text(path))

    def _count(self, entry: _Entry) -> None:
        found, mode = self._found, stat.S_IFMT(entry.status.st_mode)
        if mode not in (stat.S_IFREG, stat.S_IFDIR):
            found.skipped += 1
            found.leave(entry.path, _kind(entry))
            return
        found.files += 1
        if mode == stat.S_IFDIR:  # it is not entered
            found.leave(entry.path, f"more than {_DEEPEST} directories deep")
            return
        found.size_bytes += entry.status.st_size
        if entry.status.st_uid != self._uid:
            found.leave(entry.path, "it belongs to another user")
        elif not _is_text(entry.path):
            found.leave(entry.path, "its name is no UTF-8")
        else:
            heapq.heappush(
                found.chosen, (entry.status.st_mtime_ns, entry.status.st_size, entry.path)
            )
            if len(found.chosen) > MOST_FILES:
                *_, oldest = heapq.heappop(found.chosen)
                found.leave(oldest, f"more than {MOST_FILES} files")

    def keep(self, place: Path) -> KeptFiles:
        """Move the directory to `place`, and return what is kept there; `look` comes before.

        Where that fails, such as on a full disk, everything stays where it is, and is left.
        """
        found = self._found
        summary = KeptFiles(
            left=found.files, left_bytes=found.size_bytes, directory=str(self._directory)
        )
        try:
            make_traversable(place.parent.parent, place.parent.name, place.name)
            with _directory(self._directory) as top:
                os.fchmod(top, 0o700)  # the directory around it was its user's alone
            self._directory.rename(place / _FILES)
        except (OSError, WorldError):
            return summary
        self._directory = place / _FILES
        summary = replace(summary, directory=str(self._directory))
        try:
            self._remove_others()
            files = self._measured(self._within_limit())
            manifest = Manifest(uid=self._uid, files=files, unkept=tuple(found.unkept.items()))
            write_private(place / _MANIFEST, json.dumps(asdict(manifest)), durable=True)
        except OSError:
            return summary
        kept_bytes = sum(file.size_bytes for file in files)
        left = found.files - len(files)
        return KeptFiles(
            files=len(files),
            size_bytes=kept_bytes,
            left=left,
            left_bytes=max(0, found.size_bytes - kept_bytes) if left else 0,
            skipped=found.skipped,
            directory=summary.directory if left or found.skipped else "",
        )

    def _remove_others(self) -> None:
        """Remove what was there at the start, and what the job does not want to be kept."""
        if not self._tree and self._included is None:
            return
        with _directory(self._directory) as top:
            for entry in _entries(top, self._tree):
                if (entry.same or not self._wanted(entry.path)) and not _is_directory(entry):
                    with suppress(OSError):
                        os.unlink(entry.name, dir_fd=entry.parent)

    def _within_limit(self) -> list[str]:
        """Return the files that the limit has room for, the newest first."""
        room_bytes, fitting = self._keep.limit_bytes, []
        for _, size_bytes, path in sorted(self._found.chosen, reverse=True):
            if size_bytes <= room_bytes:
                room_bytes -= size_bytes
                fitting.append(path)
            else:
                self._found.leave(path, "over the limit")
        return fitting

    def _measured(self, paths: Sequence[str]) -> tuple[KeptFile, ...]:
        """Return the files with their checksums, by path; a file that keeps changing is left."""
        measured = []
        with _directory(self._directory) as top:
            for path in sorted(paths):
                file = self._measure(top, path)
                if file is None:
                    self._found.leave(path, "it changed while it was read")
                else:
                    measured.append(file)
        return tuple(measured)

    def _measure(self, top: int, path: str) -> KeptFile | None:
        for _ in range(_TRIES):
            try:
                with _opened(top, path, self._uid) as descriptor:
                    before, digest, size_bytes = os.fstat(descriptor), new_digest(), 0
                    while size_bytes <= before.st_size and (  # a process may extend it meanwhile
                        piece := os.read(descriptor, PIECE_BYTES)
                    ):
                        digest.update(piece)
                        size_bytes += len(piece)
                    after = os.fstat(descriptor)
            except OSError:
                return None
            if _state(before) == _state(after) and size_bytes == after.st_size:
                executable = bool(after.st_mode & stat.S_IXUSR)
                checksum = digest.hexdigest()
                return KeptFile(
                    path=path, size_bytes=size_bytes, checksum=checksum, executable=executable
                )
        return None


def manifest_of(place: Path) -> Manifest | None:
    """Return what can be fetched of a run, None where nothing is kept."""
    try:
        content = json.loads((place / _MANIFEST).read_text())
    except FileNotFoundError:
        return None
    return Manifest(
        uid=content["uid"],
        files=tuple(KeptFile(**file) for file in content["files"]),
        unkept=tuple((path, why) for path, why in content["unkept"]),
    )


def content_of(place: Path) -> Iterator[bytes]:
    """Yield the bytes of all files of a manifest, one after the other, in its order.

    Of each come as many bytes as the manifest says: of one that was changed or removed since, zeros
    in place of what is missing, which its checksum shows.
    """
    manifest = manifest_of(place)
    if manifest is None:
        raise WorldError("the files of this run are not here", code="files_absent")
    with _directory(place / _FILES) as top:
        for file in manifest.files:
            missing_bytes = file.size_bytes
            with suppress(OSError), _opened(top, file.path, manifest.uid) as descriptor:
                while missing_bytes and (
                    piece := os.read(descriptor, min(missing_bytes, PIECE_BYTES))
                ):
                    missing_bytes -= len(piece)
                    yield piece
            while missing_bytes:
                piece = bytes(min(missing_bytes, PIECE_BYTES))
                missing_bytes -= len(piece)
                yield piece


def forget_earlier(place: Path) -> None:
    """Remove what is kept of earlier runs of the same task on this node."""
    ordinal, _, attempt = place.name.partition(".")
    with suppress(FileNotFoundError):
        for other in sorted(place.parent.iterdir()):
            of, _, number = other.name.partition(".")
            if of == ordinal and int(number) < int(attempt):
                remove_tree(other)


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Open a directory, which may be no link itself."""
    descriptor = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened(top: int, path: str, uid: int) -> Iterator[int]:
    """Open a regular file of a user below an open directory; OSError for anything else."""
    *parents, name = path.split("/")
    descriptor = os.dup(top)
    try:
        for part in parents:
            inner = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        inner = os.open(name, _OPEN, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise OSError(f"'{path}' is not a file of its user")
        yield descriptor
    finally:
        os.close(descriptor)


def _entries(top: int, tree: str) -> Iterator[_Entry]:
    """Yield all that is below an open directory, of directories only those that are too deep.

    What vanishes meanwhile, and what is mounted there, is left out.
    """
    device = os.fstat(top).st_dev
    baseline = None
    if tree:
        with suppress(OSError):  # without it all is new
            baseline = os.open(tree, _OPEN | os.O_DIRECTORY)
    try:
        yield from _below(top, baseline, "", device, _DEEPEST)
    finally:
        if baseline is not None:
            os.close(baseline)


def _below(
    parent: int, baseline: int | None, prefix: str, device: int, depth: int
) -> Iterator[_Entry]:
    with os.scandir(parent) as listed:
        for item in listed:
            name, path = item.name, f"{prefix}{item.name}"
            try:
                status = item.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode) or not depth:
                    yield _Entry(parent, name, path, status, _is_same(name, status, baseline))
                    continue
                if status.st_dev != device:  # what is mounted there is no part of it
                    continue
                inner = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=parent)
            except OSError:
                continue
            before = None
            try:
                if baseline is not None:
                    with suppress(OSError):
                        before = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=baseline)
                yield from _below(inner, before, f"{path}/", device, depth - 1)
            finally:
                for descriptor in (inner, before):
                    if descriptor is not None:
                        os.close(descriptor)


def _is_same(name: str, status: os.stat_result, baseline: int | None) -> bool:
    """Return whether an entry is as it was at the start, by its kind, size and time of change."""
    if baseline is None:
        return False
    try:
        before = os.stat(name, dir_fd=baseline, follow_symlinks=False)
    except OSError:
        return False
    return _state(before) == _state(status)


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return stat.S_IFMT(status.st_mode), status.st_size, status.st_mtime_ns


def _is_directory(entry: _Entry) -> bool:
    return stat.S_ISDIR(entry.status.st_mode)


def _kind(entry: _Entry) -> str:
    """Return what an entry is that is neither a file nor a directory."""
    if stat.S_ISLNK(entry.status.st_mode):
        with suppress(OSError):
            return f"a link to {_text(os.readlink(entry.name, dir_fd=entry.parent))}"
        return "a link"
    return _KINDS.get(stat.S_IFMT(entry.status.st_mode), "no file")


def _is_text(path: str) -> bool:
    return _text(path) == path


def _text(path: str) -> str:
    """Return a path as text that can be sent: bytes that are no UTF-8 are shown as such."""
    return os.fsencode(path).decode(errors="backslashreplace")
