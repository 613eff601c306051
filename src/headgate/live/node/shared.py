"""Results on a path that all nodes share: files `PATH/JOB/TASK`, or `PATH/JOB/TASK.PART`.

A file appears complete, by one rename. Only files in the state are valid: a file without an entry
may belong to another cluster, or to an earlier run. The user of the job chooses the path, so every
access to it has that user's rights.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Any
from urllib.parse import quote

from headgate.base.errors import Problem, WorldError
from headgate.base.units import format_seconds
from headgate.live.base.account import account_for, file_sizes
from headgate.live.node.store import PIECE_BYTES, READ_ONLY, disk_errors, write_whole
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
_GRACE_S = 60.0
_LEAST_BYTES_PER_S = 256 << 10  # a file system of the user that is slower does not hold us up
_FULL = ("No space left on device", "Disk quota exceeded")


def keep_shared(path: str, shard_id: str, source: Path, *, user: str) -> None:
    """Write a file as a result below a shared path, atomically.

    WorldError `disk_full` or `shard_store`, also when the path itself does not exist, or takes less
    than 256 KiB a second beyond a minute.
    """
    file = _file(path, shard_id)
    with disk_errors(source), source.open("rb") as content:
        limit_s = _limit_s(source.stat().st_size)
        names = (path, file.parent.name, file.name)
        problem = _as_user(user, _KEEP, *names, stdin=content, limit_s=limit_s)
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
    with disk_errors(to.parent), to.open("xb", buffering=0) as copy:
        os.fchmod(copy.fileno(), READ_ONLY)
        limit_s = _limit_s(shard.size_bytes)
        with _run_as(user, command, limit_s, stdout=PIPE, stderr=DEVNULL) as reader:
            assert reader.stdout is not None
            while piece := reader.stdout.read(PIECE_BYTES):
                write_whole(copy.fileno(), piece)
    return reader.returncode == 0 and to.stat().st_size == shard.size_bytes


def remove_shared(path: str, job: str, *, user: str) -> None:
    """Remove a job's results below a shared path, and their directory if it is empty then.

    OSError on failure; missing results are no failure.
    """
    try:
        limit_s = 10 * _GRACE_S
        problem = _as_user(user, _REMOVE, path, quote(job, safe=""), limit_s=limit_s)
    except WorldError as error:  # the user no longer exists
        raise OSError(str(error)) from error
    if problem:
        raise OSError(problem)


def _limit_s(size_bytes: int) -> float:
    return _GRACE_S + size_bytes / _LEAST_BYTES_PER_S


def _as_user(
    user: str, script: str, *arguments: str, limit_s: float, stdin: IO[bytes] | int = DEVNULL
) -> str:
    """Run a shell script as a user; return the first line of its error, or ''."""
    command = ["sh", "-c", script, "sh", *arguments]
    with _run_as(user, command, limit_s, stdin=stdin, stdout=DEVNULL, stderr=PIPE) as process:
        message = process.communicate()[1].decode(errors="replace").strip().partition("\n")[0]
    if process.returncode == -signal.SIGKILL:
        message = f"its file system did not respond within {format_seconds(limit_s)}"
    return (message or f"exit status {process.returncode}") if process.returncode else ""


@contextmanager
def _run_as(
    user: str, command: Sequence[str], limit_s: float, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program as a user, and wait for its end; all its processes are killed in time."""
    options: dict[str, Any] = account_for(user).options()
    with subprocess.Popen(command, **options, **streams, start_new_session=True) as process:
        killer = threading.Timer(limit_s, partial(_kill, process))
        killer.start()
        try:
            yield process
            process.wait()
        except BaseException:
            _kill(process)
            raise
        finally:
            killer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _file(path: str, shard_id: str) -> Path:
    job, _, name = shard_id.rpartition("/")
    return Path(path, quote(job, safe=""), name)
