"""Guard of a worker: starts it as its user, and kills all its descendants at its end.

`python -I -S guard.py` reads one line of JSON on stdin, `{"command", "options", "pass_fds",
"responses", "directory"}`, and starts the command with these options of `subprocess.Popen`. When
its stdin closes (also by the death of its executor) or the worker has ended, it kills all
descendants. As a subreaper it remains the ancestor even of those that left the worker's session;
where it runs as root, the worker's user cannot signal it. The worker ends with its guard. A
`directory`, if one is named, is made for the worker's user and removed when all have ended. It
reports the exit status of the worker as a JSON line on the descriptor `responses`.

The script uses the standard library alone, since it must start fast. No setting of the user, such
as LD_PRELOAD, may be in the environment of a process of root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    """Start one worker and guard it until it has ended."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ends, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    request = json.loads(sys.stdin.buffer.readline())
    responses: int = request["responses"]
    directory, options = request["directory"], request["options"]
    try:
        if directory:
            os.mkdir(directory, 0o700)  # noqa: PTH102  # pathlib loads slowly
            os.chown(directory, options.get("user", -1), options.get("group", -1))
        worker = subprocess.Popen(
            request["command"],
            stdin=subprocess.DEVNULL,
            pass_fds=request["pass_fds"],
            start_new_session=True,
            preexec_fn=lambda: prctl(  # noqa: PLW1509  # there are no threads
                _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0
            ),
            **options,
        ).pid
    except OSError as error:
        _report(responses, error=f"the task's process cannot be started: {error}")
        return
    for descriptor in request["pass_fds"]:
        if descriptor != responses:
            os.close(descriptor)
    _wait(worker, ends)
    status = _end_all(worker)
    if directory:
        import shutil  # it loads slowly

        shutil.rmtree(directory, ignore_errors=True)  # it follows no links
    _report(responses, status=status)


def _wait(worker: int, ends: int) -> None:
    """Wait until the worker has ended, without reaping it, or stdin closes."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    poll.register(ends, select.POLLIN)
    while True:
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid == worker:  # as a zombie it keeps the id of its process group in use
                return
            os.waitpid(child.si_pid, 0)
        events = poll.poll()
        if any(descriptor == sys.stdin.fileno() for descriptor, _ in events):
            return
        os.read(ends, 4096)


def _end_all(worker: int) -> int:
    """Kill the worker and its descendants; return its exit status, negative for a signal."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    status = 0
    while True:
        for descendant in _descendants():
            _kill(descendant)
        options = 0
        try:
            while (child := os.waitpid(-1, options))[0]:
                if child[0] == worker:
                    status = os.waitstatus_to_exitcode(child[1])
                options = os.WNOHANG
        except ChildProcessError:
            return status


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (parent := _parent(int(entry.name))):
            children.setdefault(parent, []).append(int(entry.name))
    found, at = [os.getpid()], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def _parent(pid: int) -> int:
    """Return a process's parent, 0 for a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib loads slowly
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _kill(pid: int) -> None:
    """Kill a process if it still is a descendant: its id may have been reused."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            ancestor = _parent(pid)
            while ancestor > 1 and ancestor != os.getpid():
                ancestor = _parent(ancestor)
            if ancestor == os.getpid():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _report(descriptor: int, **facts: Any) -> None:
    with contextlib.suppress(OSError):  # the executor may have ended
        os.write(descriptor, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    main()
