"""Reasons: the closed list of why something waits or is rejected, each with its numbers.

`detail()` is a sentence for people: the cause with its numbers, then, after a semicolon, the way
out. The cause is short and has no semicolon. Lists of jobs show `brief()`: the cause, with the job
that is waited for where it would not say that. `str(reason)` has the code, too, in the manner of
Slurm: `GpuMemory(needs 40 GiB, largest free GPU has 16 GiB; starts when a larger GPU is free)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headgate.base.text import enumerated
from headgate.base.units import format_ratio, format_seconds, format_size
from headgate.model import amount_of
from headgate.protocol.after_moves import AfterMoves, fits_after
from headgate.protocol.reserved_at import ReservedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something waits or is rejected; the subclasses are the closed list."""

    @property
    def code(self) -> str:
        """The stable name, for programs."""
        return type(self).__name__

    def cause(self) -> str:
        """Return what is in the way, with the numbers."""
        raise NotImplementedError

    def way_out(self) -> str:
        """Return what would end the wait, "" if nothing is known."""
        raise NotImplementedError

    def detail(self) -> str:
        """Return the cause and the way out."""
        way_out = self.way_out()
        return f"{self.cause()}; {way_out}" if way_out else self.cause()

    def brief(self) -> str:
        """Return the one clause that lists of jobs show."""
        return self.cause()

    def holds_until(self) -> float:
        """Return the earliest of the times that it names, inf without: after that it is stale."""
        return math.inf

    def __str__(self) -> str:
        return f"{self.code}({self.detail()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Short(Reason):
    """Something is short now; `reserved` is when it is there, if GPUs are reserved."""

    reserved: ReservedAt | None = None

    def way_out(self) -> str:
        return self._without() if self.reserved is None else str(self.reserved)

    def holds_until(self) -> float:
        at = None if self.reserved is None else self.reserved.at
        return math.inf if at is None else at

    def _without(self) -> str:
        """Return the way out without a reservation."""
        return "starts when running tasks end"


def _gpus_of(model: str) -> str:
    return f"{model} GPUs" if model else "GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFreeGpu(Short):
    """Too few GPUs are free; counted are those of `model`, with `memory_bytes`, on the `nodes`.

    The latter are text, "" without such a demand: `H100 or A100`, `on n1 or n2`.
    """

    free_gpus: int
    needed_gpus: int
    total_gpus: int
    memory_bytes: int = 0
    model: str = ""
    nodes: str = ""

    def cause(self) -> str:
        large = f" with {format_size(self.memory_bytes)}" if self.memory_bytes else ""
        which = f"{_gpus_of(self.model)}{large}{self.nodes and ' '}{self.nodes}"
        return f"{self.free_gpus} of {self.total_gpus} {which} free, {self.needed_gpus} needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmented(Short):
    """Enough GPUs are free, but not together: `needed_gpus` on one node, for each of `tasks`.

    Of a gang, `placeable_tasks` fit now; with `distinct_nodes`, each on another node. `model` is as
    in `NoFreeGpu`.
    """

    free_gpus: int
    most_on_one_node: int
    needed_gpus: int
    tasks: int = 1
    placeable_tasks: int = 0
    distinct_nodes: bool = False
    after_moves: AfterMoves | None = None
    model: str = ""

    def cause(self) -> str:
        free = f"{self.free_gpus} free {_gpus_of(self.model)}"
        free = f"{free}, at most {self.most_on_one_node} on one node"
        if self.tasks == 1:
            return f"{free}, {self.needed_gpus} needed there{fits_after(self.after_moves)}"
        each = "a GPU" if self.needed_gpus == 1 else f"{self.needed_gpus} GPUs"
        apart = ", each on another node" if self.distinct_nodes else ""
        fit = f"{self.placeable_tasks} of {self.tasks} tasks"
        moves = fits_after(self.after_moves, self.tasks)
        return f"{free}, {fit} with {each} fit now{apart}{moves}"

    def _without(self) -> str:
        return "starts when enough are free together"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpread(Short):
    """The tasks of a unit fit now, but not in the kind of set that the placer waits for.

    With a `slowdown`, they wait for links: the best free set spans so many parts of a `level` of
    the topology, and the one that is free in `wait_s` seconds, `better_spans`.
    """

    tasks: int
    gpus: int
    spans: int = 0
    level: str = ""
    slowdown: float = 0.0
    wait_s: float = 0.0
    better_spans: int = 0

    def cause(self) -> str:
        if self.slowdown:
            spans = "is in one" if self.spans == 1 else f"spans {self.spans}"
            return (
                f"best free set {spans} {_plural(self.level, self.spans)}: "
                f"{self.slowdown:.2g}x slower; waits {format_seconds(self.wait_s)} for "
                f"{self._better()}"
            )
        gpus = "a free GPU" if self.gpus == 1 else f"{self.gpus} free GPUs"
        what = "its task fits" if self.tasks == 1 else f"its {self.tasks} tasks fit"
        is_none = "that is" if self.gpus == 1 else "these are"
        return f"{what} {gpus}, but {is_none} no closed set of least diameter"

    def _better(self) -> str:
        count = "one" if self.better_spans == 1 else str(self.better_spans)
        if self.better_spans >= self.spans:
            count = "another" if self.better_spans == 1 else f"{count} other"
        return f"{count} {_plural(self.level, self.better_spans)}"

    def _without(self) -> str:
        return "starts when one is idle"


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShort(Short):
    """A gang starts as a whole, and its tasks do not all fit now.

    `lacking` is what the others lack where enough GPUs are free, if that is one resource.
    `stopping_tasks` are still being stopped. `model` is as in `NoFreeGpu`, if all have the same.
    """

    placeable_tasks: int
    tasks: int
    free_gpus: int
    needed_gpus: int
    lacking: str = ""
    stopping_tasks: int = 0
    after_moves: AfterMoves | None = None
    model: str = ""

    def cause(self) -> str:
        if self.stopping_tasks:
            return f"{self.stopping_tasks} of {self.tasks} tasks are being stopped"
        if self.free_gpus < self.needed_gpus:
            return f"{self.free_gpus} of {self.needed_gpus} needed {_gpus_of(self.model)} are free"
        free = f"{self.free_gpus} {_gpus_of(self.model)} free, but " if self.needed_gpus else ""
        lacking = f", the others lack {_resource(self.lacking)}" if self.lacking else ""
        moves = fits_after(self.after_moves, self.tasks)
        return f"{free}{self.placeable_tasks} of {self.tasks} tasks fit now{lacking}{moves}"

    def _without(self) -> str:
        return "starts when all its tasks fit together"


GPU_SHARE, GPU_MEMORY = "gpus", "gpu_memory"
"""Resources of a task that uses a part of a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage(Short):
    """No node has enough of a resource free, or none of those that have `beside` free, too.

    `resource` is `cpus`, `memory`, GPU_SHARE, GPU_MEMORY or a custom kind; the amounts are bytes of
    the memories, else thousandths.
    """

    resource: str
    needed: int
    most_free: int
    beside: str = ""

    def cause(self) -> str:
        if self.resource in ("memory", GPU_MEMORY):
            free, needed = format_ratio(self.most_free, self.needed).split("/")
            free = f"{free} {needed.rpartition(' ')[2]}"
        else:
            free, needed = str(amount_of(self.most_free)), str(amount_of(self.needed))
        place = "GPU" if self.resource in (GPU_SHARE, GPU_MEMORY) else "node"
        beside = f" with {self.beside} free" if self.beside else ""
        return (
            f"{_resource(self.resource)}: {needed} needed, at most {free} free on a {place}{beside}"
        )


def _resource(name: str) -> str:
    """Return the words for a resource."""
    return {"cpus": "CPUs", GPU_SHARE: "share of a GPU", GPU_MEMORY: "GPU memory"}.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFittingNode(Short):
    """Every resource that the task needs is free on some node, but not all of them on one."""

    need: str

    def cause(self) -> str:
        return f"no node has {self.need} free"

    def _without(self) -> str:
        return "starts when one has"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory(Short):
    """GPUs are free, but none with enough memory."""

    needed_bytes: int
    largest_free_bytes: int

    def cause(self) -> str:
        return (
            f"needs {format_size(self.needed_bytes)}, largest free GPU has "
            f"{format_size(self.largest_free_bytes)}"
        )

    def _without(self) -> str:
        return "starts when a larger GPU is free"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillTooLong(Short):
    """It fits now, but would run into the reservation of `ahead`, for `hole_s` seconds at most.

    `needs_s` is the bound of its run time that the policy uses, None if unknown.
    """

    needs_s: float | None
    hole_s: float
    ahead: str

    def cause(self) -> str:
        needs = "run time unknown"
        if self.needs_s is not None:
            needs = f"needs {format_seconds(self.needs_s)}"
        return f"{needs}, GPUs are free for {format_seconds(self.hole_s)}"

    def _without(self) -> str:
        return f"starts after {self.ahead}, for which they are reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimit(Reason):
    """All GPUs of the job's fair share are allocated to it; `ahead` has the rest."""

    running_gpus: int
    share_gpus: int
    ahead: str

    def cause(self) -> str:
        return _allocated(self.running_gpus, self.share_gpus)

    def way_out(self) -> str:
        return f"starts when a task of {self.ahead} ends"

    def brief(self) -> str:
        return f"waits for {self.ahead}: {self.cause()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowShare(Reason):
    """The job has less than its fair share, and other jobs have more than theirs."""

    running_gpus: int
    share_gpus: int
    ahead: str
    ahead_over_gpus: int

    def cause(self) -> str:
        return _allocated(self.running_gpus, self.share_gpus)

    def way_out(self) -> str:
        above = f"which has {self.ahead_over_gpus} above its own"
        return f"starts as tasks of {self.ahead} end, {above}"

    def brief(self) -> str:
        return f"waits for {self.ahead}: {self.cause()}"


def _allocated(gpus: int, share_gpus: int) -> str:
    return f"{gpus} GPU{'' if gpus == 1 else 's'}, fair share {share_gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimit(Reason):
    """The queue's `max_gpus` is reached."""

    queue: str
    used_gpus: int
    max_gpus: int

    def cause(self) -> str:
        return f"queue {self.queue}: {self.used_gpus} GPUs allocated, at most {self.max_gpus}"

    def way_out(self) -> str:
        if not self.used_gpus:
            return "starts when its max_gpus is raised"
        return "starts when tasks of the queue end"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTooSmall(Reason):
    """The GPUs that must be allocated together exceed the queue's `max_gpus`."""

    queue: str
    needed_gpus: int
    max_gpus: int

    def cause(self) -> str:
        return f"rejected: needs {self.needed_gpus} GPUs, queue {self.queue} allows {self.max_gpus}"

    def way_out(self) -> str:
        return f"request at most {self.max_gpus}, use another queue, or raise its max_gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsInFlightLimit(Reason):
    """The queue's `max_jobs_in_flight` is reached."""

    queue: str
    in_flight: int
    max_jobs_in_flight: int
    ahead: int

    def cause(self) -> str:
        return (
            f"queue {self.queue}: {self.in_flight} of at most {self.max_jobs_in_flight} jobs in "
            f"flight, {self.ahead} ahead"
        )

    def way_out(self) -> str:
        return "starts when one of them ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindHead(Reason):
    """Strict order of arrival: the first job cannot start yet."""

    head: str

    def cause(self) -> str:
        return f"behind {self.head}, which arrived first"

    def way_out(self) -> str:
        return "starts after it"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFor(Reason):
    """The GPUs that are free are kept for a unit of `job`, which needs several together."""

    job: str
    free_gpus: int

    def cause(self) -> str:
        free = "the free GPU is" if self.free_gpus == 1 else f"{self.free_gpus} free GPUs are"
        return f"{free} kept for {self.job}, first in line"

    def way_out(self) -> str:
        return "starts after it, or when other GPUs are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForLocality(Reason):
    """Moving the data to a free GPU costs more than waiting for a nearer one."""

    move_s: float
    wait_s: float

    def cause(self) -> str:
        return (
            f"reading on a free GPU costs {format_seconds(self.move_s)}, waiting "
            f"{format_seconds(self.wait_s)}"
        )

    def way_out(self) -> str:
        return "starts when a GPU nearer to its data is free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declines(Reason):
    """The job declines the free GPUs for now, since its data is elsewhere (delay scheduling)."""

    move_s: float
    best_s: float
    skips: int
    patience: float

    def cause(self) -> str:
        return (
            f"reading on a free GPU costs {format_seconds(self.move_s)}, on the best "
            f"{format_seconds(self.best_s)}"
        )

    def way_out(self) -> str:
        return (
            "starts when a GPU nearer to its data is free, or when its skip counter, "
            f"{self.skips} now, exceeds {self.patience:g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedFor(Reason):
    """A run is stopped for a job below its fair share; `job` is empty for any such job."""

    job: str

    def cause(self) -> str:
        winner = f"{self.job}, below its" if self.job else "jobs below their"
        return f"preempted for {winner} fair share"

    def way_out(self) -> str:
        return "starts again when GPUs are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutrankedBy(Reason):
    """A run is stopped for a job that comes first in the policy's order."""

    job: str
    order: str

    def cause(self) -> str:
        return f"preempted for {self.job}, first by {self.order}"

    def way_out(self) -> str:
        return "starts again when GPUs are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedFor(Reason):
    """A run moves, so that `job` gets a better place, or gets one sooner."""

    job: str

    def cause(self) -> str:
        return f"to make room for {self.job}"

    def way_out(self) -> str:
        return "starts again on its new place when it has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFits(Reason):
    """No node that is up could ever hold a task, even when idle, or all nodes a whole gang.

    At submission, `task` is the number of the first such task, and `most` what nodes have at most;
    of a gang, `largest` is the most members that it could have. A task that waits has none of them.
    """

    need: str
    task: int | None = None
    most: str = ""
    largest: int | None = None

    def cause(self) -> str:
        if self.largest is not None:
            return "rejected: the cluster cannot satisfy this request"
        if self.task is not None:
            return "rejected: no node can satisfy this request"
        return f"needs {self.need}, which no node that is up has"

    def way_out(self) -> str:
        if self.largest is not None:
            return f"needs {self.need}, at most {self.largest} fit: request less, or add nodes"
        if self.task is not None:
            return f"needs {self.need}, {self.most}: request less, or add such a node"
        return "starts when such a node joins"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedElsewhere(Reason):
    """Other programs of a joined Ray cluster use `gpus` of `nodes`; all others are too few."""

    gpus: int
    nodes: tuple[str, ...]

    def cause(self) -> str:
        are = "1 GPU is" if self.gpus == 1 else f"{self.gpus} GPUs are"
        where = enumerated(self.nodes)
        return f"{are} in use by other Ray programs (on {where}), and the others do not suffice"

    def way_out(self) -> str:
        return "starts when enough of them are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRefuses(Reason):
    """The policy in force does not support the job; `instead` is what to use."""

    policy: str
    what: str
    instead: str = "a policy that does, such as fifo"

    def cause(self) -> str:
        return f"rejected: policy {self.policy} does not support {self.what}"

    def way_out(self) -> str:
        return f"use {self.instead}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided(Reason):
    """The job arrived after the last round."""

    def cause(self) -> str:
        return "not scheduled yet"

    def way_out(self) -> str:
        return "the next scheduling round decides"


UNDECIDED = Undecided()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBroke(Reason):
    """The policy failed in its last round; the engine requests another one."""

    message: str

    def cause(self) -> str:
        return self.message

    def way_out(self) -> str:
        return "another scheduling round follows shortly"
