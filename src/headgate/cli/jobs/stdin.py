"""The stdin of `submit` and `run`: read for the program with `--stdin`, else left alone."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import sys
import termios
from contextlib import suppress

from headgate.base.errors import Problem, SpecError
from headgate.base.units import format_size

_HINT = "write it to a file, and let the program read that"


def read_stdin() -> str:
    """Return all of stdin, as text; SpecError `usage` for what no program can be given."""
    from headgate.spec.stdin import MOST_BYTES

    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        text = f"stdin has more than {format_size(MOST_BYTES)}"
        raise SpecError([Problem(path="--stdin", problem=text, hint=_HINT)], code="usage")
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = "stdin is not text in UTF-8"
        problem = Problem(path="--stdin", problem=text, hint=_HINT)
        raise SpecError([problem], code="usage") from None


def unread_stdin(*, pipes: bool) -> tuple[Problem, ...]:
    """Return a warning if stdin is a file, or with `pipes` a pipe, with something for the program.

    Not of a file that was read in part, as in a `while read` loop: it is not for the program.
    """
    with suppress(OSError):  # closed
        found = os.fstat(0)
        is_file = stat.S_ISREG(found.st_mode) and found.st_size > 0
        waiting = is_file and os.lseek(0, 0, os.SEEK_CUR) == 0
        if pipes and stat.S_ISFIFO(found.st_mode):
            count = array.array("i", [0])
            fcntl.ioctl(0, termios.FIONREAD, count)
            waiting = count[0] > 0
        if waiting:
            text = "is not read: the program has an empty one"
            return (Problem(path="stdin", problem=text, hint="--stdin passes it on"),)
    return ()
