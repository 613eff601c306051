"""Files that runs have left, written into a directory of the client.

The names come from programs: each is opened from directory to directory, no link is followed, and
nothing outside the directory is written. A file is written beside its place, checked, then moved
there: so it appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headgate.base.errors import Problem, SpecError, WorldError

Body = dict[str, Any]
_PIECE_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW, _SAME, _DIFFERS = "new", "same", "differs"  # a file, beside what is in its place


class FilesClient(Protocol):
    """The part of `headgate.Client` that is used here."""

    def task(self, job: str, ordinal: int) -> Body:
        """Return one task of a job."""

    def tasks(self, job: str) -> list[Body]:
        """Return all tasks of a job."""

    def files(self, job: str, task: int = 0) -> Body:
        """Return the files that a task has left."""

    def files_content(self, job: str, task: int, attempt: int) -> Iterator[bytes]:
        """Yield the bytes of these files, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file of a task: where it goes below the directory, what it contains, what is there now."""

    parts: tuple[str, ...]
    size_bytes: int
    checksum: str
    executable: bool
    there: str

    @property
    def path(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The files of a task, all of one run on one node."""

    task: int
    attempt: int
    node: str
    files: tuple[_File, ...]


class Download:
    """The files of a job, and the directory that they are written to."""

    def __init__(self, client: FilesClient, job: str, directory: Path, *, task: int | None) -> None:
        """List what is to be written, and compare it with what is there.

        SpecError `not_found` if no run has left files, `exists` where something else has the place
        of a file or a directory; and the errors of the client.
        """
        self._client, self._job, self._directory = client, job, directory
        self.unkept: list[Body] = []
        tasks = client.tasks(job) if task is None else [client.task(job, task)]
        with_files = [each["ordinal"] for each in tasks if each.get("files") is not None]
        if not with_files:
            what = "no run of it" if task is None else f"no run of task {task}"
            raise SpecError([Problem(path=job, problem=f"{what} has left files")], code="not_found")
        in_the_way: list[Problem] = []
        self._runs = [self._listed(each, len(tasks) > 1, in_the_way) for each in with_files]
        if in_the_way:
            raise SpecError(in_the_way, code="exists")

    def _listed(self, ordinal: int, below: bool, in_the_way: list[Problem]) -> _Run:
        listed = self._client.files(self._job, ordinal)
        node, attempt = listed["node"], listed["attempt"]
        self.unkept += [{"task": ordinal, "node": node, **each} for each in listed["unkept"]]
        files = []
        for file in listed["files"]:
            parts = tuple(file["path"].split("/"))
            if any(part in ("", ".", "..") or "\0" in part for part in parts):
                raise WorldError(f"'{file['path']}' is no path below a directory", code="protocol")
            parts = (str(ordinal), *parts) if below else parts
            try:
                there = _there(self._directory, parts, file["size_bytes"], file["checksum"])
            except OSError as error:
                hint = "remove it, or choose another directory"
                path = str(self._directory.joinpath(*parts))
                in_the_way.append(Problem(path=path, problem=_why(error), hint=hint))
                continue
            files.append(
                _File(
                    parts=parts,
                    size_bytes=file["size_bytes"],
                    checksum=file["checksum"],
                    executable=file["executable"],
                    there=there,
                )
            )
        return _Run(task=ordinal, attempt=attempt, node=node, files=tuple(files))

    @property
    def size_bytes(self) -> int:
        """The bytes that are transferred."""
        return sum(file.size_bytes for run in self._runs for file in run.files)

    def differing(self) -> list[Path]:
        """Return the existing files that would get another content."""
        files = (file for run in self._runs for file in run.files)
        return [self._directory / file.path for file in files if file.there == _DIFFERS]

    def need_no_overwriting(self) -> None:
        """Raise SpecError `exists` if existing files would get another content."""
        text, hint = "is there with another content", "choose another directory, or overwrite it"
        problems = [Problem(path=str(p), problem=text, hint=hint) for p in self.differing()]
        if problems:
            raise SpecError(problems, code="exists")

    def write(self, moved: Callable[[int], None] = lambda _: None) -> list[Body]:
        """Write all files, and return their views; `moved` gets the bytes of each piece.

        WorldError `files_damaged`, once all others are written, for files that were not intact;
        `cannot_write` for the first that cannot be written.
        """
        written: list[Body] = []
        damaged: list[Problem] = []
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(self._directory, error) from None
        for run in self._runs:
            content = self._client.files_content(self._job, run.task, run.attempt)
            stream = _Stream(content if any(file.size_bytes for file in run.files) else iter(()))
            for file in run.files:
                if self._write(file, stream, moved):
                    view = {"task": run.task, "path": file.path, "size_bytes": file.size_bytes}
                    written.append({**view, "node": run.node})
                else:
                    text = f"was changed on {run.node} since its run ended, or is damaged there"
                    damaged.append(Problem(path=file.path, problem=text))
        if damaged:
            raise WorldError(damaged, code="files_damaged")
        return written

    def _write(self, file: _File, stream: _Stream, moved: Callable[[int], None]) -> bool:
        """Write a file that is not there yet; return whether what has come was intact."""
        digest = hashlib.blake2b(digest_size=16)

        def pieces() -> Iterator[bytes]:
            for piece in stream.read(file.size_bytes):
                digest.update(piece)
                moved(len(piece))
                yield piece

        if file.there == _SAME:
            for _ in pieces():
                pass
            return True
        try:
            with _opened(self._directory, file.parts[:-1], make=True) as directory:
                intact = lambda: digest.hexdigest() == file.checksum  # noqa: E731
                return _written(directory, file, pieces(), intact)
        except OSError as error:
            raise _cannot_write(self._directory / file.path, error) from None


class _Stream:
    """The bytes of several files, one after the other."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the next bytes in pieces; WorldError `unreachable` if the stream ends before."""
        while size_bytes:
            piece = self._rest or next(self._pieces, b"")
            if not piece:
                raise WorldError("the transfer ended before all files had come", code="unreachable")
            piece, self._rest = piece[:size_bytes], piece[size_bytes:]
            size_bytes -= len(piece)
            yield piece


def _there(directory: Path, parts: Sequence[str], size_bytes: int, checksum: str) -> str:
    """Return what is in the place of a file; OSError if that is no file that can be replaced."""
    try:
        with _opened(directory, parts[:-1], make=False) as place:
            found = os.stat(parts[-1], dir_fd=place, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise OSError("is there, and is no file")
            if found.st_size != size_bytes:
                return _DIFFERS
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(parts[-1], flags, dir_fd=place), "rb") as file:
                digest = hashlib.blake2b(digest_size=16)
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
            return _SAME if digest.hexdigest() == checksum else _DIFFERS
    except FileNotFoundError:
        return _NEW


@contextmanager
def _opened(directory: Path, parts: Sequence[str], *, make: bool) -> Iterator[int]:
    """Open a directory below another one, made if it is missing; OSError for a link on the way."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _written(
    directory: int, file: _File, pieces: Iterator[bytes], intact: Callable[[], bool]
) -> bool:
    """Write a file into an open directory if what comes is intact, and return whether it is."""
    draft = f".headgate-{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o777 if file.executable else 0o666  # less the umask
    descriptor = os.open(draft, flags, mode, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            for piece in pieces:
                opened.write(piece)
        if not intact():
            return False
        os.replace(draft, file.parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
        return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)


def _cannot_write(path: Path, error: OSError) -> WorldError:
    problem = Problem(path=str(path), problem=f"cannot be written: {_why(error)}")
    return WorldError([problem], code="cannot_write")


def _why(error: OSError) -> str:
    return error.strerror or str(error)
