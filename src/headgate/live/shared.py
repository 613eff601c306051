"""Results on a path that all nodes share: files `PATH/JOB/TASK`, or `PATH/JOB/TASK.PART`.

A file appears complete, by one rename. Only files in the state are valid: a file without an entry
may belong to another cluster, or to an earlier run. The user of the job chooses the path, so every
access to it has that user's rights.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from headgate.base.errors import Problem, WorldError
from headgate.live.account import account_for, file_sizes
from headgate.live.store import PIECE_BYTES, READ_ONLY, disk_errors, write_whole
from headgate.model import Shard, task_of_result

# $1: the path, $2: the job's directory, $3: the name of the result. Parent directories are not
# created: they would be on this node alone.
_KEEP = """
set -e; umask 077
cd -- "$1"; mkdir -p -- "$2"  # another result of the job may create it at this moment
draft=$(mktemp -- "$2/.draft-XXXXXXXXXX"); trap 'rm -f -- "$draft"' EXIT
cat > "$draft"; sync -- "$draft"; mv -fT -- "$draft" "$2/$3"
"""
_REMOVE = r"""
cd -- "$1" 2> /dev/null && [ -d "$2" ] && [ ! -L "$2" ] || exit 0
find "$2" -mindepth 1 -maxdepth 1 -regextype posix-extended \
    -regex '.*/([0-9]+(\.[0-9]+)?|\.draft-[^/]*)' -delete || exit 1
rmdir -- "$2" 2> /dev/null || true
"""
_FULL = ("No space left on device", "Disk quota exceeded")


def keep_shared(path: str, shard_id: str, source: Path, *, user: str) -> None:
    """Write a file as a result below a shared path, atomically.

    WorldError `disk_full` or `shard_store`, also when the path itself does not exist.
    """
    file = _file(path, shard_id)
    with disk_errors(source), source.open("rb") as content:
        problem = _as_user(user, _KEEP, path, file.parent.name, file.name, stdin=content)
    if problem:
        full = any(text in problem for text in _FULL)
        hint = "free some space there" if full else ""
        raise WorldError(
            [Problem(path=str(file), problem=problem, hint=hint)],
            code="disk_full" if full else "shard_store",
        )


def find_shared(path: str, shard: Shard, *, user: str) -> Path | None:
    """Return the file of a result below a shared path, None if it is missing or incomplete.

    It must be opened with the user's rights: the user may have replaced it by a link. WorldError
    `no_account`, or `unreachable` when the file system does not respond in time.
    """
    if task_of_result(shard.id) is None:
        return None
    file = _file(path, shard.id)
    found = file_sizes(account_for(user), [str(file)])
    return file if found.get(str(file)) == shard.size_bytes else None


def copy_shared(path: str, shard: Shard, to: Path, *, user: str) -> bool:
    """Copy a result from a shared path to the new file `to`; return whether it was complete.

    Any user may read the copy. WorldError as of `find_shared`, and `disk_full` here.
    """
    if find_shared(path, shard, user=user) is None:
        return False
    # The user may have replaced the file since: `nonblock` does not wait for the writer of a pipe.
    command = [
        *("dd", f"if={_file(path, shard.id)}", f"count={shard.size_bytes}", "bs=1M"),
        *("iflag=nonblock,fullblock,count_bytes", "status=none"),
    ]
    options: dict[str, Any] = account_for(user).options()
    with disk_errors(to.parent), to.open("xb", buffering=0) as copy:
        os.fchmod(copy.fileno(), READ_ONLY)
        with subprocess.Popen(
            command, **options, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as reader:
            assert reader.stdout is not None
            while piece := reader.stdout.read(PIECE_BYTES):
                write_whole(copy.fileno(), piece)
    return reader.returncode == 0 and to.stat().st_size == shard.size_bytes


def remove_shared(path: str, job: str, *, user: str) -> None:
    """Remove a job's results below a shared path, and their directory if it is empty then.

    OSError on failure; missing results are no failure.
    """
    try:
        problem = _as_user(user, _REMOVE, path, quote(job, safe=""))
    except WorldError as error:  # the user no longer exists
        raise OSError(str(error)) from error
    if problem:
        raise OSError(problem)


def _as_user(user: str, script: str, *arguments: str, stdin: IO[bytes] | None = None) -> str:
    """Run a shell script as a user; return the first line of its error, or ''."""
    options: dict[str, Any] = account_for(user).options()
    done = subprocess.run(
        ["sh", "-c", script, "sh", *arguments],
        **options,
        check=False,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    message = done.stderr.decode(errors="replace").strip().partition("\n")[0]
    return (message or f"exit status {done.returncode}") if done.returncode else ""


def _file(path: str, shard_id: str) -> Path:
    job, _, name = shard_id.rpartition("/")
    return Path(path, quote(job, safe=""), name)
