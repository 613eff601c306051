"""The number and checksum of a journal's last batch, kept apart from the journal itself.

SQLite drops whole batches silently when the end of its write-ahead log is damaged or missing.
This file shows that they existed. It is written after every batch and not synced: after a power
loss it may be behind the journal, never ahead of what was durable.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LINE_BYTES = 64  # constant: rewriting it in place needs no room on the disk


class Tail:
    """The file beside one journal; `batch` is the number of the last event of the last batch."""

    def __init__(self, journal: Path) -> None:
        """Open or make it; raises OSError."""
        path = journal.with_name(f"{journal.name}.last")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> tuple[int, bytes] | None:
        """Return (batch, checksum) as last written; None if empty or unreadable."""
        words = os.pread(self._descriptor, _LINE_BYTES, 0).split()
        with suppress(ValueError):
            batch, checksum = words
            return int(batch), bytes.fromhex(checksum.decode())
        return None

    def write(self, batch: int, checksum: bytes) -> None:
        """Record the last batch; after a failure the file is behind, which does no harm."""
        line = f"{batch} {checksum.hex()}".ljust(_LINE_BYTES - 1) + "\n"
        with suppress(OSError):
            os.pwrite(self._descriptor, line.encode(), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
