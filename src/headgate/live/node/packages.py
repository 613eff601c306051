"""Packages that users have sent, stored by the controller and served to the nodes.

A package belongs to the user who sent it: its shard is named by user and digest, so that a digest
that another user knows opens nothing. The store is that of shards, with a shard service of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.units import format_size
from headgate.live.node.flight import ShardServer
from headgate.live.node.store import ShardStore

if TYPE_CHECKING:  # executors, which use the names of packages, start without it
    from headgate.state import Snapshot

log = logging.getLogger(__name__)

MOST_BYTES = 600 << 20
"""Bytes of a package as an archive at most: 500 MiB of files, and their names."""
KEEP_S = 7 * 86400.0
"""Seconds since its last use after which a package is removed, unless a job in flight has it."""

_PERIOD_S = 3600.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Packages:
    """The packages of one controller; calls come from any thread and block while data moves."""

    def __init__(self, root: Path, *, token: str, snapshot: Callable[[], Snapshot]) -> None:
        """Open the store below `root`; the shard service requires `token`."""
        self._store = ShardStore(root)
        self._token, self._snapshot = token, snapshot
        self._server: ShardServer | None = None

    def serve(self, host: str) -> tuple[str, int]:
        """Start the shard service on this machine's address, and return where it listens."""
        self._server = ShardServer(self._store, host, token=self._token)
        return host, self._server.port

    def close(self) -> None:
        """End the shard service."""
        if self._server is not None:
            self._server.close()

    def put(self, digest: str, pieces: Iterator[bytes], *, user: str) -> Mapping[str, Any]:
        """Store a package.

        SpecError `too_large` above `MOST_BYTES`, `changed` for another content than the digest's;
        WorldError `disk_full`.
        """
        stored = self._store.put(package_shard(user, _checked(digest)), _measured(digest, pieces))
        return {"package": digest, "size_bytes": stored.size_bytes}

    def use(self, digest: str, *, user: str) -> Mapping[str, Any]:
        """Record a use of a package of this user; SpecError `not_found`."""
        shard = package_shard(user, _checked(digest))
        stored = self._store.find(shard)
        try:
            if stored is not None:
                os.utime(self._store.path(shard))
                return {"package": digest, "size_bytes": stored.size_bytes}
        except (WorldError, FileNotFoundError):  # it is removed at this moment
            pass
        hint = "headgate submit sends the working directory; see PUT /packages"
        problem = Problem(path="working_dir", problem=f"there is no package {digest}", hint=hint)
        raise SpecError([problem], code="not_found")

    async def run(self) -> None:
        """Remove expired packages every hour, until cancelled."""
        while True:
            await asyncio.to_thread(self.expire)
            await asyncio.sleep(_PERIOD_S)

    def expire(self, *, keep_s: float = KEEP_S) -> None:
        """Remove the packages that were last used longer ago, and that no job in flight has."""
        used = _used(self._snapshot())
        before_ns = time.time_ns() - int(keep_s * 1e9)
        for stored in self._store.list():
            if stored.id not in used and self._store.remove(stored.id, before_ns=before_ns):
                log.info("%s (%s) has expired", stored.id, format_size(stored.size_bytes))


def package_shard(user: str, digest: str) -> str:
    """Return the name of the shard of a user's package."""
    return f"package:{user}:{digest}"


def _used(view: Snapshot) -> frozenset[str]:
    """Return the packages of jobs in flight, as shards; O(jobs)."""
    from headgate.state.life import ENDED

    rows = np.flatnonzero(~np.isin(view.jobs.state.array(), ENDED)).tolist()
    jobs = (view.job(row) for row in rows)
    return frozenset(
        package_shard(job.user, job.program.environment.package)
        for job in jobs
        if job.program.environment.package
    )


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        hint = "it is the SHA-256 of the package, in hex"
        problem = "is not the digest of a package"
        raise SpecError([Problem(path=digest[:80], problem=problem, hint=hint)])
    return digest


def _measured(digest: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a package; SpecError at their end if they are not those of the digest."""
    found, size_bytes = hashlib.sha256(), 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > MOST_BYTES:
            text = f"a package has at most {format_size(MOST_BYTES)}"
            raise SpecError(text, code="too_large")
        found.update(piece)
        yield piece
    if found.hexdigest() != digest:
        text = f"the files have changed while they were sent: they are not package {digest}"
        raise SpecError(text, code="changed")
