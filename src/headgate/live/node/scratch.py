"""Scratch directories of runs: `runs/<job>/<ordinal>.<attempt>` on a node, removed at their end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headgate.live.base.permissions import make_traversable, remove_tree

_TRIES = 1000


def make_scratch(scratch: Path) -> None:
    """Make the scratch directory of a run, which an executor that died may have left."""
    remove_tree(scratch)
    for left in reversed(range(_TRIES)):
        try:
            make_traversable(scratch.parent.parent, scratch.parent.name)
            scratch.mkdir(mode=0o700)  # ours until the shards are in it, then of the run's user
            break
        except (FileNotFoundError, FileExistsError):
            if not left:  # else the last other run of the job is removing the parent
                raise


def remove_scratch(scratch: Path) -> None:
    """Remove the scratch directory of a run, and its parent when no other run is there."""
    remove_tree(scratch)
    with suppress(OSError):  # other runs of the job are here
        scratch.parent.rmdir()
