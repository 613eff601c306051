"""The controller's process: found by its command line, started detached, stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.api.address import socket_path
from headgate.base.errors import Problem, WorldError

if TYPE_CHECKING:
    import psutil

_END_S = 15.0
_TAIL_LINES = 15


def log_file(state: Path) -> Path:
    """Return the log file of the controller of a state directory."""
    return state / "controller.log"


def controllers(state: Path) -> list[psutil.Process]:
    """Return the running controllers of a state directory; there should be one at most."""
    import psutil

    command = controller_command(state)[1:]  # whichever Python runs it
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:] == command and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def start_controller(state: Path) -> int:
    """Start a controller in a session of its own; return its process id."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        controller_command(state),
        {**os.environ, "PYTHONUNBUFFERED": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file(state)), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def has_ended(child: int) -> bool:
    """Return whether a controller that this process has started has ended."""
    return os.waitpid(child, os.WNOHANG)[0] != 0


def end_controllers(state: Path) -> int:
    """Terminate the controllers of a state directory, kill them after 15 s; return their number.

    A reused process id is never confused: psutil compares start times.
    """
    import psutil

    found = controllers(state)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(found, timeout=_END_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=_END_S)
    if socket_path(state).is_socket():  # left by a killed controller; other files stay
        socket_path(state).unlink()
    return len(found)


def log_size(state: Path) -> int:
    """Return the size of the controller's log in bytes, 0 without one."""
    try:
        return log_file(state).stat().st_size
    except FileNotFoundError:
        return 0


def tail(state: Path, start: int) -> str:
    """Return the last 15 lines of the controller's log after byte `start`."""
    with log_file(state).open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


@contextlib.contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the state directory's lock, which excludes another `up` or `down`.

    Raises WorldError: `busy` when another process holds it.
    """
    try:
        handle = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(state, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        text, hint = "another `up` or `down` is running here", "repeat this when it has ended"
        problem = Problem(path=str(state), problem=text, hint=hint)
        raise WorldError([problem], code="busy") from None
    finally:
        os.close(handle)


def unusable(state: Path, error: OSError) -> WorldError:
    """Return the error that a state directory cannot be created, entered or written to."""
    text = f"cannot be used: {error.strerror}"
    hint = "choose another state directory (--state-dir DIR or HEADGATE_STATE)"
    return WorldError([Problem(path=str(state), problem=text, hint=hint)])


def controller_command(state: Path) -> list[str]:
    """Return the command line of the controller of a state directory."""
    return [sys.executable, "-P", "-m", "headgate.app", "controller", "--state", str(state)]
