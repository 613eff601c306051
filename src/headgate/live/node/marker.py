"""Whether a directory is the same on a node: a file in it, the marker, shows that.

A client makes a marker with a random name and content in its directory. A node on which its user
finds the same content under the same path has the same directory there. It looks with the rights of
the user, who so learns nothing else about the node than by a job.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.live.base.account import account_for

MARKER_PREFIX = ".headgate-marker-"
"""How the names of markers begin."""
LOOK_S = 5.0
"""Seconds within which the file system of a node must answer."""

_NAME = re.compile(re.escape(MARKER_PREFIX) + r"[0-9a-f]{32}")
_CONTENT = re.compile(r"[0-9a-f]{64}")
_LONGEST_PATH = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/mnt")
_FUSE = "65735546"  # these number their files differently on each node, and for a while
# $1: the directory, $2: the marker's name. Prints the directory's number, the type of its file
# system, and the marker's content.
_LOOK = """
stat -L -c %i -- "$1/." && cd -- "$1" || exit 1
[ -w . ] || { echo ": you cannot write there" >&2; exit 1; }
stat -f -c %t . || exit 1
[ ! -f "$2" ] || [ -L "$2" ] || exec head -c 100 -- "$2"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A marker `name` with `content` in the directory `path`.

    SpecError for values that no client makes: the name leads nowhere else, and it cannot be used
    to compare the content of another file.
    """

    path: str
    name: str
    content: str

    def __post_init__(self) -> None:
        """Check the values."""
        path = self.path
        if not path.startswith("/") or "\0" in path or len(path) > _LONGEST_PATH:
            raise SpecError([Problem(path="path", problem="is not an absolute path")])
        for name, form in (("name", _NAME), ("content", _CONTENT)):
            if not form.fullmatch(getattr(self, name)):
                raise SpecError([Problem(path=name, problem="is not that of a marker")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a node sees a directory: its number there, 0 where that means nothing, or a problem."""

    inode: int = 0
    problem: str = ""


def mounts_here() -> str:
    """Return what identifies the files that this process sees, and as whom; '' if not known.

    Virtual nodes of one machine have the same: what one of them sees, all do.
    """
    with suppress(OSError):
        boot, root = _BOOT.read_text().strip(), Path("/").stat()
        namespace, user = _NAMESPACE.readlink(), os.geteuid()
        return f"{boot} {namespace} {root.st_dev}:{root.st_ino} {user}"
    return ""


def look(marker: Marker, user: str) -> Seen:
    """Return whether this machine has the marker's directory for a user, who can write there."""
    try:
        options = account_for(user).options()
    except WorldError as error:
        return Seen(problem=str(error))
    process = subprocess.Popen(
        ["sh", "-c", _LOOK, "sh", marker.path, marker.name],
        **options,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, complaint = process.communicate(timeout=LOOK_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # One that waits for a file system may not end: so we do not wait for it here.
        threading.Thread(target=process.communicate, daemon=True).start()
        return Seen(problem=f"its file system did not answer within {LOOK_S:g} s")
    if process.returncode:
        return Seen(problem=complaint.decode(errors="replace").strip().rpartition(": ")[2])
    inode, kind, content = out.decode(errors="replace").split("\n", 2)
    if content != marker.content:
        return Seen(problem="it is another directory there")
    return Seen(inode=0 if kind == _FUSE else int(inode))
