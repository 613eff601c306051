"""Stops: why a run is ended before its program has ended by itself."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class StopKind(StrEnum):
    """The causes of a stop."""

    PREEMPTED = "preempted"  # by the policy, for other jobs
    RECLAIMED = "reclaimed"  # another queue takes back what its own had borrowed
    CANCELLED = "cancelled"  # a user has cancelled it, or its job
    TIMED_OUT = "timed_out"  # it has reached its time limit
    JOB_FAILED = "job_failed"  # another task of its job has failed for good
    GANG = "gang"  # another member of its gang has ended without a result
    LOST = "lost"  # its node is lost
    RESIZED = "resized"  # by the policy, to start again with another width
    MOVED = "moved"  # by the policy or an administrator, to start again in another place


class StopCause(NamedTuple):
    """Why a run is stopped, as a text for people; and for which job, or by which user.

    `lender` is the queue that takes back what it has lent.
    """

    kind: StopKind
    text: str
    job: str = ""
    by: str = ""
    lender: str = ""


class RunStop(NamedTuple):
    """The stop of a run of a task, at a time in the world's clock.

    `attempt` is the run. `now`: it was requested without a grace period. `end` is how the run ended
    after its notice, "" where that is not known; `lost_gpu_s` what it had computed in vain then.
    """

    attempt: int
    at: float
    cause: StopCause
    now: bool = False
    end: str = ""
    lost_gpu_s: float = 0.0
