"""A program on a pseudo-terminal of its own: what its screen shows, its keys, its modes."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

_START = (
    "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "from headgate.cli.main import main; main()"
)
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_PATIENCE_S = 60.0


class Terminal:
    """A program of the command line that believes to have a terminal; ended with the context."""

    def __init__(self, *arguments: str, columns: int = 100, rows: int = 30, **variables: str):
        self.sent = ""
        self._ours, self._theirs = os.openpty()
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(self._theirs)
        self._child = subprocess.Popen(
            [sys.executable, "-c", _START, *arguments],
            stdin=self._theirs, stdout=self._theirs, stderr=self._theirs,
            env={**os.environ, "TERM": "xterm-256color", **variables},
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the kernel sends SIGWINCH."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.rows = rows

    def press(self, keys: str) -> None:
        """Send what keys send."""
        os.write(self._ours, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        self._child.send_signal(number)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        self.sent += os.read(self._ours, 1 << 16).decode(errors="replace")
        return True

    @property
    def screen(self) -> list[str]:
        """The lines of the last screen that was drawn whole, without colours."""
        for drawn in reversed(self.sent.split("\x1b[H")):
            lines = _SEQUENCE.sub("", drawn).split("\r\n")
            if len(lines) == self.rows:
                return [line.rstrip() for line in lines]
        return []

    def until(self, truth: Callable[[list[str]], Any]) -> list[str]:
        """Wait until a screen is as wanted, and return it."""
        end = time.monotonic() + _PATIENCE_S
        while not truth(self.screen):
            assert time.monotonic() < end, "\n".join(("never shown; the last:", *self.screen))
            self._read(0.5)
        return self.screen

    def shows(self, *texts: str) -> list[str]:
        """Wait for a screen with all these texts, and return it."""
        return self.until(lambda lines: all(text in "\n".join(lines) for text in texts))

    def ends(self) -> int:
        """Wait for the end of the program, and return its exit code."""
        while self._child.poll() is None:
            self._read(0.05)
        while self._read(0):
            pass
        return int(self._child.returncode)

    def is_as_before(self) -> bool:
        """Return whether modes, cursor and screen are as before the program."""
        last = {kind: self.sent.rfind(f"\x1b[?{kind}") for kind in ("1049h", "1049l", "25l", "25h")}
        back = last["1049l"] >= last["1049h"] and last["25h"] >= last["25l"]
        return back and termios.tcgetattr(self._theirs) == self.modes
