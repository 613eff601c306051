"""Reasons: the closed list of why something waits or is rejected, each with its numbers.

`str(reason)` is one CamelCase code, the numbers and the way out, in the manner of Slurm:
`ShareLimit(4/4 GPUs; frees when a task of sio-1 ends)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.units import format_seconds, format_size
from headgate.model import amount_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something waits or is rejected; the subclasses are the closed list."""

    @property
    def code(self) -> str:
        """The stable name, for programs."""
        return type(self).__name__

    def detail(self) -> str:
        """Return the numbers, and what would end the wait."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.code}({self.detail()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFreeGpu(Reason):
    """All GPUs that fit the task are held."""

    free_gpus: int
    needed_gpus: int
    total_gpus: int

    def detail(self) -> str:
        return (
            f"{self.free_gpus} of {self.total_gpus} GPUs free, {self.needed_gpus} needed; "
            "starts when running tasks end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFreeCpu(Reason):
    """All CPU slots are held."""

    needed_cpus: float
    most_free_cpus: float

    def detail(self) -> str:
        return (
            f"{self.needed_cpus} CPU slots needed on one node, at most {self.most_free_cpus} free; "
            "starts when running tasks end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFreeResource(Reason):
    """No node has enough of some resource free, or enough of all at the same time.

    Amounts are bytes of memory, else thousandths.
    """

    resource: str
    needed: int
    most_free: int

    def detail(self) -> str:
        if self.resource == "memory":
            needed, free = format_size(self.needed), format_size(self.most_free)
        else:
            needed, free = str(amount_of(self.needed)), str(amount_of(self.most_free))
        return (
            f"{needed} of {self.resource} needed on one node, at most {free} free; "
            "starts when running tasks end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFittingNode(Reason):
    """Every resource that the task needs is free on some node, but not all of them on one."""

    need: str

    def detail(self) -> str:
        return f"{self.need} needed on one node, no node has all of it free; starts when one has"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory(Reason):
    """GPUs are free, but none with enough memory."""

    needed_bytes: int
    largest_free_bytes: int

    def detail(self) -> str:
        return (
            f"needs {format_size(self.needed_bytes)}, largest free GPU has "
            f"{format_size(self.largest_free_bytes)}; starts when a larger GPU is free"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimit(Reason):
    """The job holds all of its fair share; `ahead` holds the rest."""

    running_gpus: int
    share_gpus: int
    ahead: str

    def detail(self) -> str:
        way_out = f"; frees when a task of {self.ahead} ends" if self.ahead else ""
        return f"{self.running_gpus}/{self.share_gpus} GPUs of its share{way_out}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowShare(Reason):
    """The job holds less than its fair share, and other jobs hold more than theirs."""

    running_gpus: int
    share_gpus: int
    ahead: str
    ahead_over_gpus: int

    def detail(self) -> str:
        return (
            f"{self.running_gpus}/{self.share_gpus} GPUs of its share, {self.ahead} holds "
            f"{self.ahead_over_gpus} above its own; GPUs come free as its tasks end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimit(Reason):
    """The queue's `max_gpus` is reached."""

    queue: str
    used_gpus: int
    max_gpus: int

    def detail(self) -> str:
        return (
            f"queue {self.queue} uses {self.used_gpus}/{self.max_gpus} GPUs; "
            "starts when one of its tasks ends"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTooSmall(Reason):
    """The GPUs that must be held at the same time exceed the queue's `max_gpus`."""

    queue: str
    needed_gpus: int
    max_gpus: int

    def detail(self) -> str:
        return (
            f"needs {self.needed_gpus} GPUs together, queue {self.queue} may hold "
            f"{self.max_gpus}; starts when its max_gpus is raised"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsInFlightLimit(Reason):
    """The queue's `max_jobs_in_flight` is reached."""

    queue: str
    in_flight: int
    max_jobs_in_flight: int
    ahead: int

    def detail(self) -> str:
        return (
            f"queue {self.queue} has {self.in_flight}/{self.max_jobs_in_flight} jobs in flight, "
            f"{self.ahead} ahead; starts when one of them ends"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindHead(Reason):
    """Strict order of arrival: the first job cannot start yet."""

    head: str

    def detail(self) -> str:
        return f"behind {self.head}, which arrived first; starts after it"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShort(Reason):
    """A gang starts as a whole, and its tasks do not all fit now."""

    placeable_tasks: int
    tasks: int
    free_gpus: int
    needed_gpus: int

    def detail(self) -> str:
        return (
            f"{self.placeable_tasks}/{self.tasks} tasks fit now, {self.free_gpus} GPUs free of "
            f"{self.needed_gpus} needed; starts when all fit together"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForLocality(Reason):
    """Moving the data to a free GPU costs more than waiting for a nearer one."""

    move_s: float
    wait_s: float

    def detail(self) -> str:
        return (
            f"cheapest free GPU costs {format_seconds(self.move_s)} of reading, waiting is priced "
            f"at {format_seconds(self.wait_s)}; starts when a nearer GPU is free"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Declines(Reason):
    """The job declines the free GPUs for now, since its data is elsewhere (delay scheduling)."""

    move_s: float
    best_s: float
    skips: int
    patience: float

    def detail(self) -> str:
        return (
            f"cheapest free GPU costs {format_seconds(self.move_s)} of reading, the best one would "
            f"cost {format_seconds(self.best_s)}; skip counter {self.skips}, accepts less "
            f"beyond {self.patience:g}; starts then or when a nearer GPU is free"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedFor(Reason):
    """A run is stopped for a job below its fair share; `job` is empty for any such job."""

    job: str

    def detail(self) -> str:
        winner = f"{self.job}, which is below its" if self.job else "jobs below their"
        return f"{winner} fair share; starts again when GPUs are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForTasks(Reason):
    """Earlier tasks of the job have not finished."""

    unfinished: int

    def detail(self) -> str:
        return f"{self.unfinished} earlier tasks unfinished; starts after them"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFits(Reason):
    """No node that is up could ever hold the task, even when idle, or all nodes the whole gang.

    `largest` is the most members that a gang could have; None without a gang.
    """

    need: str
    largest: int | None = None

    def detail(self) -> str:
        if self.largest is None:
            return f"needs {self.need}, which no node has; starts when such a node joins"
        return (
            f"needs {self.need}, and the whole cluster holds at most {self.largest} of them; "
            "starts when more nodes join"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefuses(Reason):
    """The policy in force does not support the job."""

    policy: str
    what: str

    def detail(self) -> str:
        return f"policy {self.policy} does not place {self.what}; use fifo for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided(Reason):
    """The job arrived after the last round."""

    def detail(self) -> str:
        return "arrived after the last round; the next round decides"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBroke(Reason):
    """The policy failed in its last round; the engine requests another one."""

    message: str

    def detail(self) -> str:
        return f"{self.message}; another round follows shortly"
