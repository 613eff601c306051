"""What runs report at their end: what they have read and left, and how they ended."""

from __future__ import annotations

from headgate.protocol import KeptRun, Usage
from headgate.state.state import State

_NO_USAGE = Usage()  # of a run that read nothing, or whose executor died


def record_usage(state: State, task: int, usage: Usage) -> None:
    """Record what a run has used; without a report, its `read_s` stays the expected time."""
    job, (node, rack, cluster) = state.tasks.job[task], usage.read_bytes
    if usage.exit_status is not None:
        state.tasks.exit_status[task] = usage.exit_status
    if usage.kept is not None:
        state.tasks.kept[task] = KeptRun(*state.last_run(task), usage.kept)
    if usage != _NO_USAGE:
        state.tasks.read_s[task] = usage.read_s
    if node or rack or cluster:
        state.jobs.read_node_bytes[job] += node
        state.jobs.read_rack_bytes[job] += rack
        state.jobs.read_cluster_bytes[job] += cluster
