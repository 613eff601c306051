"""Events: facts that enter the engine. An event that answers a command names it in `cause`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headgate.model import Bandwidth, Dataset, Job, Node, Queue, Shard
from headgate.protocol.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact, and when it happened, in seconds of its world's clock."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A job that passed the door."""

    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(Event):
    """Somebody who may do so wants a job ended."""

    job: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged(Event):
    """A queue is new, or its weight or ceilings are."""

    queue: Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """A node is there, all its GPUs free; one that was lost may come back, even with other GPUs."""

    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node is gone, with its runs and its replicas."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthMeasured(Event):
    """What transfers can expect from now on."""

    bandwidth: Bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAdded(Event):
    """A node holds a whole, checked copy of a shard."""

    shard: Shard
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLost(Event):
    """A node no longer holds a copy of a shard."""

    shard: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAdded(Event):
    """All shards of a dataset are placed; their replicas are told by ReplicaAdded."""

    dataset: Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRemoved(Event):
    """A name no longer stands for a dataset."""

    name: str


class FailureKind(StrEnum):
    """Why a run ended without a result."""

    ERROR = "error"  # the program's own doing: counts against the task's retries
    CRASHED = "crashed"  # its executor died on a node that stayed up
    LOST = "lost"  # the world's doing (its node or its data vanished): does not count


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Event):
    """A run has begun on its node; answers `LaunchTask`."""

    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run used: bytes read by locality (node, rack, cluster), seconds spent reading."""

    read_bytes: tuple[int, int, int] = (0, 0, 0)
    read_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(Event):
    """A run has ended well; its result, of `output_bytes`, lies on its node.

    `part_bytes` are the sizes of its parts, where it has several; without, they are alike.
    """

    cause: int
    output_bytes: int = 0
    part_bytes: tuple[int, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(Event):
    """A run has ended badly; `message` is for the user."""

    cause: int
    kind: FailureKind
    message: str
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Event):
    """A run has ended because it was asked to; `cause` is the run's `LaunchTask`."""

    cause: int
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReady(Event):
    """A policy has decided, on the state as of version `seen`; answers `Decide`."""

    cause: int
    seen: int
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed(Event):
    """A policy broke; answers `Decide`."""

    cause: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Event):
    """The time asked for has come; answers `WakeAt`."""

    cause: int
