"""A terminal as one screen that is drawn in place, and the keys that are pressed there."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sys
import termios
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any, Literal, NamedTuple

_SIZE = (80, 24)  # of a terminal that does not know its own
_NAMED = {
    b"[A": "up", b"OA": "up", b"[B": "down", b"OB": "down", b"[5~": "page up", b"[6~": "page down",
    b"[H": "home", b"OH": "home", b"[1~": "home", b"[F": "end", b"OF": "end", b"[4~": "end",
    b"\t": "tab", b"\x03": "ctrl-c", b"\x1a": "ctrl-z",
}  # fmt: skip
_SEQUENCE = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O[ -~])")
_BEGUN = re.compile(rb"\x1b(\[[0-?]{0,16}[ -/]{0,4}|O)?")
_STYLES = {"heading": "bold", "alert": "yellow", "note": "dim", "bar": "reverse"}


class ScreenLine(NamedTuple):
    """A line of text without control characters, and how it is shown."""

    text: str
    style: Literal["", "heading", "alert", "note", "bar"] = ""


def can_be_drawn_on() -> bool:
    """Return whether the program has a terminal that can be drawn on, and reads its keys."""
    able = os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    return able and sys.stdin.isatty() and sys.stdout.isatty()


class FullScreen:
    """The screen of the program's terminal; only where `can_be_drawn_on`.

    At the end of its context, however that comes, the terminal is as it was before.
    """

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._begun = b""  # the first bytes of a key
        self._woken, self._waker = socket.socketpair()
        self._taken = ExitStack()  # gives the terminal back
        self._closing = ExitStack()

    def __enter__(self) -> FullScreen:
        with ExitStack() as closing:
            for end in (self._woken, self._waker):
                end.setblocking(False)
                closing.callback(end.close)
            # The kernel may give a signal to any thread: so it also writes to what is waited for.
            number = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
            closing.callback(signal.set_wakeup_fd, number)
            before = signal.signal(signal.SIGWINCH, self._resized)
            closing.callback(signal.signal, signal.SIGWINCH, before)
            closing.callback(self._taken.close)
            self._take()
            self._closing = closing.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows of the terminal now."""
        columns, rows = os.get_terminal_size(self._output)
        return columns or _SIZE[0], rows or _SIZE[1]

    def show(self, lines: Sequence[ScreenLine]) -> None:
        """Draw lines from the top of the screen; what does not fit is cropped."""
        from rich.text import Text

        text = Text(no_wrap=True, overflow="crop")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            text.append(line.text, _STYLES.get(line.style))
        self._live.console.size = self.size
        self._live.update(text, refresh=True)

    def read_keys(self) -> list[str]:
        """Wait for keys, another size of the terminal, or `wake`; return the keys, in their order.

        Raises EOFError when the terminal has gone. Ctrl-C and Ctrl-Z are keys like others.
        """
        ready, _, _ = select.select([self._input, self._woken], [], [])
        if self._woken in ready:
            self._woken.recv(1 << 12)
        if self._input not in ready:
            return []
        try:
            pressed = os.read(self._input, 1 << 12)
        except OSError as error:
            raise EOFError from error
        if not pressed:
            raise EOFError
        names, self._begun = key_names(self._begun + pressed)
        return names

    def wake(self) -> None:
        """End the present or the next wait for keys; from any thread, also after the end."""
        with suppress(OSError):
            self._waker.send(b".")

    def suspend(self) -> None:
        """Give the terminal back and stop the program, as Ctrl-Z does, until it is continued."""
        self._taken.close()
        os.kill(0, signal.SIGTSTP)
        self._take()

    def _take(self) -> None:
        """Have the terminal in a mode for keys and drawing, until `_taken` is closed."""
        from rich.console import Console
        from rich.live import Live

        modes = termios.tcgetattr(self._input)
        self._taken.callback(self._set_modes, modes)
        self._set_modes(_for_keys(modes))
        console = Console(
            file=sys.stdout, force_terminal=True, force_interactive=True, highlight=False,
            markup=False, emoji=False,
        )  # fmt: skip
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._taken.enter_context(self._live)

    def _set_modes(self, modes: list[Any]) -> None:
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(self._input, termios.TCSANOW, modes)

    def _resized(self, _: int, __: FrameType | None) -> None:
        self.wake()


def _for_keys(modes: list[Any]) -> list[Any]:
    """Return the modes of a terminal in which each key is read when it is pressed, unseen."""
    found = list(modes)
    found[0] &= ~termios.IXON
    found[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
    found[6] = list(modes[6])
    found[6][termios.VMIN], found[6][termios.VTIME] = 1, 0
    return found


def key_names(pressed: bytes) -> tuple[list[str], bytes]:
    """Return the names of the keys in what a terminal sent, and the beginning of one at its end.

    A letter is its own name. Keys without a name here are left out.
    """
    names: list[str] = []
    at = 0
    while at < len(pressed):
        sequence = _SEQUENCE.match(pressed, at)
        if sequence is None and _BEGUN.fullmatch(pressed, at):
            return names, pressed[at:]
        key = sequence[1] if sequence else pressed[at : at + 1]
        if key in _NAMED:
            names.append(_NAMED[key])
        elif sequence is None and b" " <= key <= b"~":
            names.append(key.decode())
        at = sequence.end() if sequence else at + 1
    return names, b""
