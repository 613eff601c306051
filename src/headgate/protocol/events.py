"""Events: facts that enter the engine. An answer to a command names its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from headgate.model import Bandwidth, Dataset, Job, Node, Queue, RunId, Shard
from headgate.protocol.commands import Timer
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
    """A node is there, all its GPUs free; one that was lost may come back, even with other GPUs.

    With `kept` it still holds what it held when it was lost, except the shards `without` (ids);
    otherwise nothing of that. `holds` are shards that it has besides; those that the state does not
    know are ignored.
    """

    node: Node
    kept: bool = False
    without: tuple[str, ...] = ()
    holds: tuple[Shard, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node is gone, with its runs; its replicas do not count until it returns with them."""

    node: str


class GpuUse(NamedTuple):
    """What is really used of a GPU; None where its driver does not say, as of a virtual one."""

    memory_bytes: int | None
    utilisation_milli: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported(Event):
    """What is really used of a node that is up, by whatever processes; thresholded by its world.

    `cpus_milli` are thousandths of processors; `gpus` are by index.
    """

    node: str
    cpus_milli: int
    memory_bytes: int
    gpus: tuple[GpuUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthMeasured(Event):
    """What transfers can expect from now on."""

    bandwidth: Bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAdded(Event):
    """A node, or the job's shared path (`SHARED`), holds a whole, checked copy of a shard.

    `run` is the run whose result it is a copy of: it counts only while that is the task's result.
    """

    shard: Shard
    node: str
    run: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLost(Event):
    """A node, or the job's shared path (`SHARED`), no longer holds a copy of a shard."""

    shard: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsExpired(Event):
    """The results of an ended job are not kept any longer: all their copies are removed."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsArchived(Event):
    """The archive has these jobs, which have ended: the state may forget them."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAdded(Event):
    """All shards of a dataset are placed; their replicas are told by ReplicaAdded."""

    dataset: Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRemoved(Event):
    """A name no longer stands for a dataset."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap(Event):
    """Up to `events` events at the end of the journal are gone, though they were acted on.

    Numbers that they may have used, of runs and jobs, are never used again.
    """

    events: int


class FailureKind(StrEnum):
    """Why a run ended without a result."""

    ERROR = "error"  # the program's own doing: counts against the task's retries
    LOST = "lost"  # its node vanished, or what it was to read: does not count
    CRASHED = "crashed"  # its executor died on a node that stayed up: counted apart from errors


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Event):
    """A run has begun on its node; answers `LaunchTask`."""

    run: RunId


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

    run: RunId
    output_bytes: int = 0
    part_bytes: tuple[int, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(Event):
    """A run has ended badly; `message` is for the user."""

    run: RunId
    kind: FailureKind
    message: str
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Event):
    """A run has ended because `StopTask` asked for it."""

    run: RunId
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReady(Event):
    """A policy has decided, on the state of version `seen`; answers `Decide`.

    Never journaled: admission turns it into PlanAdmitted or PlanRejected, which are.
    """

    seen: int
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed(Event):
    """A policy failed to decide on the state of version `seen`; answers `Decide`."""

    seen: int
    message: str


class Admitted(NamedTuple):  # a plan may have as many as there are GPUs: cheap to make
    """A run that was admitted, on these GPUs of a node; without GPUs, on its CPU slots."""

    run: RunId
    node: str
    gpus: tuple[int, ...]


class Preempted(NamedTuple):
    """Runs to be stopped, and why: the text of a `Reason`, empty where the plan gave none."""

    runs: tuple[RunId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAdmitted(Event):
    """What admission let through of a plan: runs that start, runs to be stopped, and its memo.

    The members of a gang follow each other; where one run of a gang is stopped, all are. Runs that
    are stopped one after the other for the same reason share it. `memo` is the plan's, by the ids
    of jobs: column -> job -> number. At `again_at` the policy decides again, even if nothing
    happens until then. `dropped` counts the steps of groups that were overtaken by what happened
    since the policy saw the state.
    """

    starts: tuple[Admitted, ...] = ()
    stops: tuple[Preempted, ...] = ()
    memo: dict[str, dict[str, float]] = field(default_factory=dict)
    again_at: float | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRejected(Event):
    """Admission rejected a plan whole: it was wrong for the very snapshot that it was made on."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Event):
    """The time of a timer has come; answers `WakeAt`."""

    timer: Timer
