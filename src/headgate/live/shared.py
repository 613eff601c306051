"""Results on a path that all nodes see: files `PATH/JOB/TASK`, or `PATH/JOB/TASK.PART`.

A file appears whole, by one rename. Which of them count is the catalog's business: a file that the
catalog does not know may be of another cluster, or of a run before the last.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from headgate.live.store import disk_errors
from headgate.model import Shard, task_of_result

_DRAFT = ".draft-"
_OURS = re.compile(rf"[0-9]+(\.[0-9]+)?|{re.escape(_DRAFT)}.*")


def keep_shared(path: str, shard_id: str, source: Path) -> None:
    """Write a file as a result below a shared path; it appears whole or not at all.

    WorldError `disk_full` or `shard_store`, also when the path itself is not there.
    """
    final = _file(path, shard_id)
    draft = final.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
    with disk_errors(final.parent):
        final.parent.mkdir(exist_ok=True)  # without parents: they would be on this node alone
        try:
            with source.open("rb") as read, draft.open("xb") as written:
                shutil.copyfileobj(read, written, 1 << 20)
                written.flush()
                os.fsync(written.fileno())
            draft.replace(final)
        finally:
            draft.unlink(missing_ok=True)


def find_shared(path: str, shard: Shard) -> Path | None:
    """Return the file of a result below a shared path, None where it cannot be read whole."""
    if task_of_result(shard.id) is None:
        return None
    path_of = _file(path, shard.id)
    try:
        with path_of.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size == shard.size_bytes
    except OSError:
        return None
    return path_of if whole else None


def remove_shared(path: str, job: str) -> None:
    """Remove a job's results below a shared path, and their directory when nothing else is in it.

    OSError where that fails; nothing there is no failure.
    """
    directory = Path(path, quote(job, safe=""))
    if directory.is_symlink() or not directory.is_dir():
        return
    for file in directory.iterdir():
        if _OURS.fullmatch(file.name):
            file.unlink(missing_ok=True)
    with suppress(OSError):  # files of others
        directory.rmdir()


def _file(path: str, shard_id: str) -> Path:
    job, _, name = shard_id.rpartition("/")
    return Path(path, quote(job, safe=""), name)
