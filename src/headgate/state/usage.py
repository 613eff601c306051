"""What runs report at their end: what they have read, used and left, and how they ended."""

from __future__ import annotations

from headgate.protocol import KeptRun, Usage
from headgate.state.state import State
from headgate.state.view import View

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
    if state.learns:
        _learn(state, task, usage)


def _learn(state: State, task: int, usage: Usage) -> None:
    """Count what a run has used in the class of tasks that it is like."""
    used = usage.peak_memory_bytes, usage.peak_gpu_bytes, usage.cpus_milli
    if not any(used):
        return
    classes, row = state.runtime_classes, usage_class(state, task)
    classes.used_runs[row] += 1
    columns = classes.used_memory_bytes, classes.used_gpu_bytes, classes.used_cpus_milli
    for column, most in zip(columns, used, strict=True):
        column[row] = max(most, column[row])


def usage_class(view: View, task: int) -> int:
    """Return the row of the runtime class of which a task is expected to use as much.

    Those of its kind, with a name those of its user, in its queue, with its width; without one
    those of its job. Of a job with a declared time, its kind: its chain has nothing narrower.
    """
    declared = view.job(view.tasks.job[task]).estimated_s is not None
    classes = view.tasks.runtime_class if declared else view.tasks.estimate_class
    row: int = classes[task]
    return row
