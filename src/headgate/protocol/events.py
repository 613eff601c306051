"""Events: facts that enter the engine. One that follows a command has the command's identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.model import (
    NO_USAGE,
    Bandwidth,
    Dataset,
    FailureKind,
    Job,
    KeptFiles,
    Node,
    Queue,
    RunId,
    Shard,
    Usage,
)
from headgate.model.scaling import Scaling
from headgate.model.topology import ClusterTopology
from headgate.protocol.commands import Timer
from headgate.protocol.hardened import Hardened
from headgate.protocol.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact, and when it happened, in seconds of its world's clock."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A job that passed the submission check."""

    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(Event):
    """A user with the right to do so cancelled a job; `now`: without grace for its runs."""

    job: str
    by: str
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCancelled(Event):
    """A user with the right to do so cancelled one task of a job; its other tasks continue.

    `now`: without grace for its run. It has no effect on a task that cannot be cancelled alone.
    """

    job: str
    ordinal: int
    by: str
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsWithdrawn(Event):
    """The owner of a job's slots needs no more of them: those without a run are finished."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged(Event):
    """A queue was added, or changed; its parent exists."""

    queue: Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRemoved(Event):
    """A queue without jobs in flight, jobs that wait, or queues below it, was removed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAssigned(Event):
    """A user with the right to do so moved a job to another queue; its runs continue."""

    job: str
    queue: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """A node has joined, all its GPUs free; a lost node may return, even with other GPUs.

    With `kept` it still has the shards that it had when it was lost, except those in `without`
    (ids); otherwise none of them. `holds` are further shards that it has;
    unknown ones are ignored. `order` is the key of the order that it was made for, "" for none.
    """

    node: Node
    kept: bool = False
    without: tuple[str, ...] = ()
    holds: tuple[Shard, ...] = ()
    order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node is lost, with its runs; its replicas do not count until it returns with them."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChanged(Event):
    """The cluster scales by this catalogue from now on; None: its nodes are not ordered."""

    scaling: Scaling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFailed(Event):
    """The provider failed to make the node of an order, and tries again; `message` is for users.

    With `given_up` it does not: the order is void.
    """

    order: str
    message: str
    given_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRemoved(Event):
    """Nothing of the node of an order is left at the provider; follows `RemoveNode`."""

    order: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraining(Event):
    """No run may start on a node from now on; those that it has end by themselves."""

    node: str
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResumed(Event):
    """Runs may start on a draining node again."""

    node: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsChanged(Event):
    """A node has these labels (`as_labels`) from now on, whenever it joins; `by` set them.

    It changes later placements only: runs stay where they are.
    """

    node: str
    labels: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusWithheld(Event):
    """Which GPUs of a node, by index, other programs use; all its others are available.

    A run that holds one of them keeps it until its end; no other starts there. A node joins with
    none; the event counts only for the `incarnation` of the node that it was observed on.
    """

    node: str
    incarnation: str
    gpus: tuple[int, ...] = ()


class GpuUse(NamedTuple):
    """The measured use of a GPU; None where its driver does not report it, as of a virtual GPU."""

    memory_bytes: int | None
    utilisation_milli: int | None


class GpuOutside(NamedTuple):
    """The memory of a GPU, by its index, that processes outside Headgate use.

    `pid` is the process that uses most of it.
    """

    gpu: int
    memory_bytes: int
    pid: int


class Outside(NamedTuple):
    """What processes use of a node that belong to no run; `cpus_milli` is a smoothed load."""

    cpus_milli: int = 0
    memory_bytes: int = 0
    gpus: tuple[GpuOutside, ...] = ()


NO_OUTSIDE = Outside()


class OverUse(NamedTuple):
    """What a run uses where that is more than it holds, in bytes; 0 of what is not more.

    Of its node's memory, and of the memory of the GPU of which it uses most.
    """

    run: RunId
    memory_bytes: int = 0
    gpu_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported(Event):
    """The measured use of a node that is up, by all processes; thresholded by its world.

    `cpus_milli` are thousandths of processors; `gpus` are by index. No run may use what is used
    `outside`; `over` are the runs that use more than they hold, all others do not. A report that
    says the impossible, as of more than the node has or of a run elsewhere, changes nothing.
    """

    node: str
    cpus_milli: int
    memory_bytes: int
    gpus: tuple[GpuUse, ...] = ()
    outside: Outside = NO_OUTSIDE
    over: tuple[OverUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthMeasured(Event):
    """The bandwidth that transfers can expect from now on."""

    bandwidth: Bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyChanged(Event):
    """The cluster has this topology from now on; None: that of its racks.

    It changes later placements only: runs stay where they are. It may name nodes that have not
    joined.
    """

    topology: ClusterTopology | None


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
    """The results of an ended job have expired: all their copies are removed."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsArchived(Event):
    """These jobs, which have ended, are in the archive: the state may drop them."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAdded(Event):
    """All shards of a dataset are placed; ReplicaAdded events report their replicas."""

    dataset: Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRemoved(Event):
    """A dataset was removed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap(Event):
    """Up to `events` events at the end of the journal are missing, though they had effects.

    The numbers of runs and jobs that they may have used are never reused.
    """

    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Event):
    """A run has started on its node; follows `LaunchTask`."""

    run: RunId


class KeptRun(NamedTuple):
    """The last run of a task that left files, and its node."""

    attempt: int
    node: str
    kept: KeptFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(Event):
    """A run has finished; its result, of `output_bytes`, is stored on its node.

    `part_bytes` are the sizes of its parts, where it has several; without, they are equal.
    """

    run: RunId
    output_bytes: int = 0
    part_bytes: tuple[int, ...] = ()
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(Event):
    """A run has failed; `message` is for the user."""

    run: RunId
    kind: FailureKind
    message: str
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Event):
    """A run has ended as requested by `StopTask`; `message` says how it ended, if that is known."""

    run: RunId
    usage: Usage = NO_USAGE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReady(Event):
    """A policy has decided, on the state of version `seen`; follows `Decide`.

    Never journaled: admission turns it into PlanAdmitted or PlanRejected, which are.
    """

    seen: int
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed(Event):
    """A policy failed to decide on the state of version `seen`; follows `Decide`."""

    seen: int
    message: str


class Admitted(NamedTuple):  # up to one per GPU in a plan: cheap to create
    """A run that was admitted, on these GPUs of a node; without GPUs, on its CPU slots."""

    run: RunId
    node: str
    gpus: tuple[int, ...]


class Preempted(NamedTuple):
    """Runs to be stopped, and why: the text of a `Reason`, empty where the plan gave none.

    `job` gets what they hold; it is empty where that is no single job. `lender` is the queue that
    takes back with this what it has lent, if it does.
    """

    runs: tuple[RunId, ...]
    reason: str
    job: str = ""
    lender: str = ""


class Moved(NamedTuple):
    """Runs to be stopped, each with the place of the next run of its task; and why.

    A gang moves as a whole: some of its members may stay where they are. `reason` and `job` are as
    in `Preempted`.
    """

    runs: tuple[Admitted, ...]
    reason: str
    job: str = ""


class WidthSet(NamedTuple):
    """A training job gets a width: so many of its tasks, once its present runs have ended."""

    job: str
    tasks: int
    reason: str = ""


class Ordered(NamedTuple):
    """An order of a node: its key, which is never used again, and the name of its shape."""

    key: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAdmitted(Event):
    """The admitted part of a plan: runs to start, to stop and to move, and its memo.

    The members of a gang are consecutive; where one run of a gang is stopped, all are. Consecutive
    stops, or moves, for the same reason share it. `memo` is the plan's, by the ids of jobs: column
    -> job -> number; `node_memo` likewise by the ids of nodes. At `again_at`, in seconds of the
    world's clock, the policy decides again, even without an event. `dropped` counts the steps of
    groups that have become infeasible since the snapshot. `orders` are nodes to be made, `drains`
    idle nodes (ids) to be removed, each of which was made for an order. `hardened` is the unit
    whose places are kept from now on, if any. `widths` are those that training jobs get.
    """

    starts: tuple[Admitted, ...] = ()
    stops: tuple[Preempted, ...] = ()
    moves: tuple[Moved, ...] = ()
    memo: dict[str, dict[str, float]] = field(default_factory=dict)
    again_at: float | None = None
    dropped: int = 0
    node_memo: dict[str, dict[str, float]] = field(default_factory=dict)
    orders: tuple[Ordered, ...] = ()
    drains: tuple[str, ...] = ()
    hardened: Hardened | None = None
    widths: tuple[WidthSet, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequested(Event):
    """A user with the right to do so requests a move, which was feasible on a recent snapshot.

    It has no effect where it is infeasible by now.
    """

    move: Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRejected(Event):
    """Admission rejected a plan as a whole: it was infeasible on its own snapshot."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Event):
    """A timer has fired; follows `WakeAt`."""

    timer: Timer
