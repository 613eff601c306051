"""Accounts: the Unix user and the environment with which a user's programs run on this machine."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, WorldError

INTERPRETER = sys.executable
"""The Python that runs tasks; their users must be able to execute it and to read its packages."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LANGUAGE = "C.UTF-8"
_UMASK = 0o022
_CHECK_S = 60.0
_OVERFLOW_UID = 65534  # Linux's overflow user
_NEEDED = "import headgate.live.run.worker, headgate.workloads.task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this machine, as the password and group databases describe it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def environment(self) -> dict[str, str]:
        """Return the environment of a fresh login; Headgate's own interpreter comes first."""
        return {
            "PATH": f"{Path(INTERPRETER).parent}:{SYSTEM_PATH}",
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "LANG": _LANGUAGE,
        }

    def options(self, envs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the arguments with which `subprocess` runs a program as this user."""
        options: dict[str, Any] = {
            "env": {**self.environment(), **(envs or {})},
            "umask": _UMASK,
            "cwd": "/",
        }
        if os.geteuid() == 0:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}
        return options


def account_for(user: str) -> Account:
    """Return the account for programs of a user here: theirs if we are root, else our own.

    Reads the system's user databases, which may block; WorldError `no_account` for an unknown user.
    """
    try:
        entry = pwd.getpwnam(user) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise WorldError(f"there is no user '{user}'", code="no_account") from None
    return Account(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=entry.pw_dir,
    )


def any_member(gid: int) -> Account:
    """Return an account without any rights but those of a group: what all its members can do."""
    return Account(name="nobody", uid=_OVERFLOW_UID, gid=gid, groups=(gid,), home="/")


def why_unusable(account: Account) -> str:
    """Return why a user cannot run Headgate's interpreter and packages; empty when they can."""
    try:
        done = subprocess.run(
            [INTERPRETER, "-P", "-c", _NEEDED],
            **account.options(),
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_CHECK_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def unusable(users: str, problem: str) -> Problem:
    """Return the problem of users who cannot run Headgate, with the remedy."""
    hint = (
        "install Headgate where every user may read it, such as in a venv below /opt whose Python "
        "is not in a home directory"
    )
    text = f"tasks of {users} cannot run: {problem}"
    return Problem(path=INTERPRETER, problem=text, hint=hint)


def file_sizes(account: Account, paths: Sequence[str]) -> dict[str, int]:
    """Return the sizes of the regular files among `paths`, as far as this user can see them.

    WorldError `unreachable` when the file system does not respond in time.
    """
    if not paths:
        return {}
    try:
        done = subprocess.run(
            ["xargs", "-0", "-r", "stat", "-L", "--printf=%s %f %n\\0", "--"],
            **account.options(),
            check=False,  # it fails if any of them is missing
            input=b"".join(os.fsencode(path) + b"\0" for path in paths),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_CHECK_S,
        )
    except subprocess.TimeoutExpired:
        text = f"the sizes of {len(paths)} files could not be read within {_CHECK_S:g} s"
        hint = "does their file system respond?"
        problem = Problem(path=paths[0], problem=text, hint=hint)
        raise WorldError([problem], code="unreachable") from None
    found = [entry.split(" ", 2) for entry in os.fsdecode(done.stdout).split("\0")[:-1]]
    return {path: int(size) for size, mode, path in found if stat.S_ISREG(int(mode, 16))}
