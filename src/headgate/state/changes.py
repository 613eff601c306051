"""What differs between two snapshots of one line of states: rows, table by table.

Nothing is written down for it as the state moves: two views of a column share every page that was
not written to between them, so only the other pages are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.base.lists import Ints

if TYPE_CHECKING:
    from headgate.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """Rows of each table, ascending, that are new or of which something has changed.

    What counts: `_COLUMNS`. Shards written to and back again between the two may be among them.
    """

    tasks: Ints
    jobs: Ints
    queues: Ints
    nodes: Ints
    gpus: Ints
    shards: Ints
    kinds: Ints


_COLUMNS: dict[str, tuple[str, ...]] = {
    # What a task holds, and since when, changes with its attempts or its state alone.
    "tasks": ("state", "attempts", "started_at", "read_s", "progress_s"),
    "jobs": ("state", "waiting", "unfinished", "held_gpus"),
    "queues": ("spec", "held_gpus"),
    "nodes": ("alive", "rack", "first_gpu"),
    "gpus": ("task",),
    "shards": ("size_bytes", "replicas"),
    "kinds": ("compute_s", "held_s"),
}


def changes_between(before: Snapshot, after: Snapshot) -> Changes | None:
    """Return what differs from `before` on; None unless that is an earlier one of the same line.

    A state on paper begins a line of its own, as does what was read back from bytes.
    O(pages), and O(rows) of the pages that were written to.
    """
    if before.names is not after.names or before.version > after.version:
        return None
    return Changes(
        **{
            table: _changed(getattr(before, table), getattr(after, table), columns)
            for table, columns in _COLUMNS.items()
        }
    )


def _changed(before: Any, after: Any, columns: tuple[str, ...]) -> Ints:
    parts = [getattr(after, name).changed(getattr(before, name)) for name in columns]
    return np.unique(np.concatenate(parts))
