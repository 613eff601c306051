"""What the verbs that write reports have in common: their directory, and how many processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate.cli import output

Wrong = tuple[str, str, str]
"""An option, what is wrong with its value, and a hint."""


def invalid_directory(out: Path, pages: Sequence[str], command: str) -> list[Wrong]:
    """Return what is wrong with `--out`: a file, or a directory of files but no earlier report."""
    from headgate.reports.pages import is_ours

    if out.exists() and not out.is_dir():
        return [("--out", f"{out} is not a directory", "name a directory for the report")]
    if out.is_dir() and any(out.iterdir()) and not any(is_ours(out / p, command) for p in pages):
        hint = "name a new or empty directory, or that of an earlier report"
        return [("--out", f"{out} contains other files, which could be overwritten", hint)]
    return []


def make(out: Path) -> None:
    """Create the directory, or raise WorldError `cannot_write` before the runs."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Raise WorldError `cannot_write` where a report cannot be written."""
    try:
        yield
    except OSError as error:
        raise output.cannot_write(out, error) from error


def cpus() -> int:
    """Return the number of processes of a report by default: the CPUs of this one."""
    return len(os.sched_getaffinity(0))
