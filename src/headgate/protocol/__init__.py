"""Facts in, wishes out: the only words between the engine and a world."""

from headgate.protocol.commands import Command, Decide, LaunchGang, LaunchTask, StopTask, WakeAt
from headgate.protocol.events import (
    BandwidthMeasured,
    Event,
    FailureKind,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PlanFailed,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    ReplicaLost,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
)
from headgate.protocol.plan import Placement, Plan, Refusal
from headgate.protocol.reasons import Reason

__all__ = [
    "BandwidthMeasured",
    "Command",
    "Decide",
    "Event",
    "FailureKind",
    "JobCancelled",
    "JobSubmitted",
    "LaunchGang",
    "LaunchTask",
    "NodeJoined",
    "NodeLost",
    "Placement",
    "Plan",
    "PlanFailed",
    "PlanReady",
    "QueueChanged",
    "Reason",
    "Refusal",
    "ReplicaAdded",
    "ReplicaLost",
    "StopTask",
    "TaskFailed",
    "TaskFinished",
    "TaskStarted",
    "TaskStopped",
    "TimerFired",
    "WakeAt",
]
