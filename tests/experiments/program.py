"""`headgate` as a program, in a directory of its own."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from headgate.cli import main


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command line; return its exit code, and what it printed on stdout and on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()
