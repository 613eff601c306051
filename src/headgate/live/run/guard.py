"""Guard of a worker: starts it as its user, and kills all its descendants at its end.

`python -I -S guard.py` reads one line of JSON on stdin, `{"command", "options", "pass_fds",
"responses", "directory", "control_group", "most_processes"}`, and starts the command with these
options of `subprocess.Popen`, in the control group with these places, or, without one, with at most
so many processes of its user. When its stdin closes (also by the death of its executor) or the
worker has ended, it kills all descendants and removes the group. As a subreaper it remains the
ancestor even of those that left the worker's session; where it runs as root, the worker's user
cannot signal it. The worker ends with its guard. A `directory`, if one is named, is made for the
worker's user and removed when all have ended. It reports the exit status of the worker, and the
`memory` of the group, as a JSON line on the descriptor `responses`.

The script uses the standard library and `control_groups` alone, since it must start fast. No
setting of the user, such as LD_PRELOAD, may be in the environment of a process of root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container

    from headgate.live.base.control_groups import ControlGroup

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_URGENT = -20
_PASSES = 200
_PAUSE_S = 0.01


def main() -> None:
    """Start one worker and guard it until it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ends, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    request = json.loads(sys.stdin.buffer.readline())
    responses: int = request["responses"]
    directory, options = request["directory"], request["options"]
    group = _control_group(request["control_group"])
    try:
        if directory:
            os.mkdir(directory, 0o700)
            os.chown(directory, options.get("user", -1), options.get("group", -1))
        worker = _start(request, group)
    except (OSError, subprocess.SubprocessError) as error:
        if group is not None:
            group.end()
        _report(responses, error=f"the task's process cannot be started: {error}")
        return
    for descriptor in request["pass_fds"]:
        if descriptor != responses:
            os.close(descriptor)
    with contextlib.suppress(PermissionError):  # it reaps as fast as all descendants together end
        os.setpriority(os.PRIO_PROCESS, 0, _URGENT)
    children = _Children(worker)
    children.wait(ends)
    children.end(group)
    memory = None if group is None else group.memory()
    if group is not None:
        group.end()
    if directory:
        import shutil  # it loads slowly

        shutil.rmtree(directory, ignore_errors=True)  # it follows no links
    _report(responses, status=children.status, memory=memory)


def _control_group(places: dict[str, str] | None) -> ControlGroup | None:
    if places is None:
        return None
    source = __file__
    for _ in range(4):  # this file, and the packages around it
        source = os.path.dirname(source)
    sys.path.append(source)
    from headgate.live.base.control_groups import ControlGroup

    return ControlGroup(places)


def _start(request: dict[str, Any], group: ControlGroup | None) -> int:
    """Start the worker; return its process id."""
    prctl = ctypes.CDLL(None).prctl
    options = request["options"]
    uid, gid = options.pop("user", None), options.pop("group", None)
    groups = options.pop("extra_groups", ())
    entries = [] if group is None else [os.open(entry, os.O_WRONLY) for entry in group.entries()]

    def enter() -> None:
        """Enter the control group, which root can, then become the user."""
        for entry in entries:
            os.write(entry, b"0")
        if not entries:
            _, before = resource.getrlimit(resource.RLIMIT_NPROC)
            most = request["most_processes"]
            most = most if before == resource.RLIM_INFINITY else min(most, before)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        if uid is not None:
            os.setgroups(groups)
            os.setregid(gid, gid)
            os.setreuid(uid, uid)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user clears it

    try:
        return subprocess.Popen(
            request["command"],
            stdin=subprocess.DEVNULL,
            pass_fds=request["pass_fds"],
            start_new_session=True,
            preexec_fn=enter,  # noqa: PLW1509  # there are no threads
            **options,
        ).pid
    finally:
        for entry in entries:
            os.close(entry)


class _Children:
    """The children of this process: the worker, and orphans among its descendants."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self.status: int | None = None  # of the worker, once it was reaped; negative for a signal

    def wait(self, ends: int) -> None:
        """Reap children until the worker has ended or stdin closes."""
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)
        poll.register(ends, select.POLLIN)
        while self._reap(os.WNOHANG) and self.status is None:
            if any(descriptor == sys.stdin.fileno() for descriptor, _ in poll.poll()):
                return
            os.read(ends, 4096)

    def end(self, group: ControlGroup | None) -> None:
        """Kill all descendants, and reap them once none runs.

        Until they are reaped, they count as processes of their user: where those are limited, ever
        fewer can be started, however fast they fork.
        """
        while True:
            if group is not None:
                group.kill()
            for _ in range(_PASSES):  # some may take long, such as one that waits for a disk
                if not _kill_descendants():
                    break
                time.sleep(_PAUSE_S)
            if not self._reap(0):
                return

    def _reap(self, options: int) -> bool:
        """Reap all that have ended, by default at least one; return whether any is left."""
        try:
            while (child := os.waitpid(-1, options))[0]:
                if child[0] == self._worker:
                    self.status = os.waitstatus_to_exitcode(child[1])
                options = os.WNOHANG
        except ChildProcessError:
            return False
        return True


def _kill_descendants() -> bool:
    """Kill each descendant when it is found; return whether any ran; O(processes)."""
    found, ran = {os.getpid()}, False
    for entry in os.listdir("/proc"):  # by number: most have a higher one than their parent
        state, parent = _state_and_parent(entry) if entry.isdigit() else ("", 0)
        if parent in found:
            found.add(int(entry))
            ran |= state not in "ZX"
            _kill(int(entry), found)
    return ran


def _kill(process: int, parents: Container[int]) -> None:
    """Kill a process if it still has one of these parents: its id may have been reused."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process)
        try:
            if _state_and_parent(process)[1] in parents:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _state_and_parent(process: int | str) -> tuple[str, int]:
    """Return a process's state, such as Z, and its parent, 0 for a process that has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            return state, int(parent)
    except (OSError, ValueError):
        return "", 0


def _report(descriptor: int, **facts: Any) -> None:
    with contextlib.suppress(OSError):  # the executor may have ended
        os.write(descriptor, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    main()
