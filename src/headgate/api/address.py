"""The address of a Headgate: a Unix socket in its state directory."""

from __future__ import annotations

import os
from pathlib import Path

from headgate.base.errors import Problem, SpecError

_LONGEST_BYTES = 107  # of a path in `sockaddr_un`, without the terminating zero


def socket_path(state: Path) -> Path:
    """Return the socket of a state directory; raise SpecError when its path is too long.

    The path is absolute, so that it means the same for every process.
    """
    path = state.absolute() / "headgate.sock"
    length = len(os.fsencode(path))
    if length > _LONGEST_BYTES:
        problem = f"the socket's path {path} has {length} bytes, the system allows {_LONGEST_BYTES}"
        hint = "choose a shorter state directory (--state-dir DIR or HEADGATE_STATE)"
        raise SpecError([Problem(path="state", problem=problem, hint=hint)])
    return path
