"""What nodes and runs were measured to use, as parts of their views."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from headgate.model import CPUS, MEMORY, WHOLE
from headgate.state import Snapshot
from headgate.state.actual_book import memory_held, runs_on

View = dict[str, Any]


def actual_view(snapshot: Snapshot, node: int) -> View | None:
    """Return what is used of a node, null before a report."""
    actual = snapshot.nodes.actual
    if math.isnan(snapshot.nodes.reported_at[node]):
        return None
    return {"cpus": actual.at(node, CPUS) / WHOLE, "memory_bytes": actual.at(node, MEMORY)}


def outside_view(snapshot: Snapshot, node: int) -> View | None:
    """Return what processes outside Headgate use of a node, null before a report."""
    outside = snapshot.nodes.outside
    if math.isnan(snapshot.nodes.reported_at[node]):
        return None
    return {"cpus": outside.at(node, CPUS) / WHOLE, "memory_bytes": outside.at(node, MEMORY)}


def over_view(snapshot: Snapshot, task: int) -> View | None:
    """Return what the run of a task uses and holds, in bytes, where it uses more; else null.

    Of memory, and of that of a GPU; each null where it uses no more.
    """
    used = snapshot.tasks.over_bytes[task], snapshot.tasks.over_gpu_bytes[task]
    if not any(used):
        return None
    both = zip(("memory", "gpu_memory"), used, memory_held(snapshot, task), strict=True)
    return {
        name: {"used_bytes": some, "held_bytes": held} if some else None
        for name, some, held in both
    }


def overs_of_node(snapshot: Snapshot, node: int) -> Iterator[View]:
    """Yield the runs on a node that use more than they hold, each with its task."""
    for task in runs_on(snapshot, node):
        over = over_view(snapshot, task)
        if over is not None:
            yield {"task": snapshot.task_id(task), **over}
