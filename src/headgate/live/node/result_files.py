"""Result files of runs, read with Headgate's rights although their users could replace them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.node.store import PIECE_BYTES


@contextmanager
def opened_result(output: Path, uid: int) -> Iterator[Iterator[bytes]]:
    """Open a result file and yield its content in pieces; no pieces for a missing file.

    It must be a regular file of the run's user, else WorldError: a link could lead to a file that
    only we may read.
    """
    try:
        descriptor = os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield iter(())  # a task without a result has an empty one, so that it can be read
        return
    except OSError as error:
        raise _no_result(output) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid:
            raise _no_result(output)
        yield _pieces(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def _pieces(descriptor: int, size_bytes: int) -> Iterator[bytes]:
    """Yield the first `size_bytes` of a file, which its user may still extend."""
    while size_bytes and (piece := os.read(descriptor, min(size_bytes, PIECE_BYTES))):
        size_bytes -= len(piece)
        yield piece


def _no_result(output: Path) -> WorldError:
    problem = f"its result '{output.name}' is not a file of its user (links are not followed)"
    return WorldError(problem)
