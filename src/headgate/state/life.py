"""The life cycles of tasks and jobs as literal tables; there are no other transitions.

The diagrams in the documentation are drawn from these tables.
"""

from __future__ import annotations

from enum import IntEnum


class TaskState(IntEnum):
    """The state of a task."""

    HELD = 0  # its job is not in flight yet, or has `max_running` in flight; or it is surplus
    BLOCKED = 1  # earlier tasks of its job have not finished
    WAITING = 2  # can be placed now
    STARTING = 3  # launched; not yet reported as running
    RUNNING = 4
    STOPPING = 5  # being stopped; still holds its grant
    FINISHED = 6
    FAILED = 7
    CANCELLED = 8
    MOVING = 9  # its run has ended; the next one starts on the grant that it holds


class JobState(IntEnum):
    """The state of a job."""

    QUEUED = 0  # its queue has `max_jobs_in_flight` jobs in flight, or it comes after other jobs
    ACTIVE = 1
    STOPPING = 2  # its last runs are being stopped
    FINISHED = 3
    FAILED = 4
    CANCELLED = 5


_T = TaskState
TASK_MOVES: dict[TaskState, tuple[TaskState, ...]] = {
    # FINISHED from here and WAITING: a slot, or a unit of an elastic job, that is needed no more
    _T.HELD: (_T.BLOCKED, _T.WAITING, _T.CANCELLED, _T.FINISHED),
    _T.BLOCKED: (_T.WAITING, _T.HELD, _T.CANCELLED),
    # HELD: surplus of an elastic job, which is granted again
    _T.WAITING: (_T.STARTING, _T.BLOCKED, _T.CANCELLED, _T.FINISHED, _T.HELD),
    _T.STARTING: (_T.RUNNING, _T.STOPPING, _T.FINISHED, _T.WAITING, _T.BLOCKED, _T.FAILED),
    _T.RUNNING: (_T.STOPPING, _T.FINISHED, _T.WAITING, _T.BLOCKED, _T.FAILED),
    # waits again when its job continues; FINISHED when it ended before the stop arrived
    _T.STOPPING: (_T.CANCELLED, _T.WAITING, _T.BLOCKED, _T.FINISHED, _T.MOVING),
    # its result was lost while still needed, or its gang restarts
    _T.FINISHED: (_T.WAITING, _T.HELD),
    _T.FAILED: (),
    _T.CANCELLED: (),
    # waits again when its target, or that of another member of its gang, is lost
    _T.MOVING: (_T.STARTING, _T.WAITING),
}

_J = JobState
JOB_MOVES: dict[JobState, tuple[JobState, ...]] = {
    _J.QUEUED: (_J.ACTIVE, _J.CANCELLED, _J.FINISHED),
    # CANCELLED from here: tasks of it were cancelled, and all others have finished
    _J.ACTIVE: (_J.FINISHED, _J.STOPPING, _J.CANCELLED),
    _J.STOPPING: (_J.FAILED, _J.CANCELLED),
    _J.FINISHED: (),
    _J.FAILED: (),
    _J.CANCELLED: (),
}

PENDING = (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING)
"""States in which a task has no run and holds nothing, but will."""

DONE = (TaskState.FINISHED, TaskState.CANCELLED)
"""States of tasks that count as over while their job continues."""

RUNS = (TaskState.STARTING, TaskState.RUNNING, TaskState.STOPPING)
"""States in which a task has a run."""

EXECUTING = (TaskState.STARTING, TaskState.RUNNING)
"""States in which a task has a run that is not being stopped."""

HOLDING = (*RUNS, TaskState.MOVING)
"""States in which a task holds GPUs or CPU slots."""

ENDED = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
"""States that a job never leaves."""
