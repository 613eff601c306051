"""What it costs to stop a run: the work that is lost with it, and what else counts."""

from __future__ import annotations

from headgate.model import WHOLE
from headgate.state.view import View


def lost_gpu_s(view: View, task: int) -> float:
    """Return the GPU seconds that a run (of a task, row) loses if it is stopped now, 0 of a unit
    of an elastic job.

    Those since its last checkpoint, or its launch, as `State.lose_run` counts them; of a run
    without GPUs, seconds.
    """
    if view.job(view.tasks.job[task]).elastic is not None:
        return 0.0
    ran_s = view.now - view.tasks.launched_at[task]
    kept_s = view.checkpoint_progress_s(task, view.now) / view.speed(task)
    milli = view.names.demands[view.tasks.demand[task]].gpus_milli
    return float(ran_s - kept_s) * ((milli or WHOLE) / WHOLE)


def uses_more(view: View, task: int) -> bool:
    """Return whether the run of a task (row) uses more memory, also of a GPU, than it holds."""
    return bool(view.tasks.over_bytes[task] or view.tasks.over_gpu_bytes[task])
