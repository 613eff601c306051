"""Directories of checkpoints, on paths that users give: they are used with the user's rights."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import quote

from headgate.live.base.account import account_for
from headgate.live.base.records import LaunchRecord


def checkpoint_of(launch: LaunchRecord) -> Path | None:
    """Return the directory of a task's checkpoint, None for a task without one."""
    place = launch.program.stage.checkpoint
    if not place:
        return None
    return Path(place, f"{quote(launch.run.job, safe='')}.{launch.run.ordinal}")


def remove_checkpoint(user: str, directory: Path) -> None:
    """Remove a directory on a path given by a user, with that user's rights."""
    subprocess.run(
        ["rm", "-rf", "--", directory],
        **account_for(user).options(),
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
